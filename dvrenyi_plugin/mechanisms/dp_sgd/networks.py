"""The networks that are audited, built by name, and their weights as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.validation import check_choice, check_int, check_seed
from dvrenyi_plugin.mechanisms.dp_sgd.names import MODEL_NAMES


def build_model(name: str, input_shape: tuple[int, ...], num_classes: int = 10) -> nn.Sequential:
    """Returns a new network with outputs of shape (n, num_classes), its weights drawn by torch.

    Args:
      name: "mlp" (one hidden layer of 32, tanh), "logistic" (linear), "cnn" (the MNIST network:
        convolutions 5x5x16 and 4x4x32, each with 2x2 max pooling and tanh, then a dense layer of
        32), or "cifar_cnn" (six 3x3 convolutions in pairs of 32, 64 and 128 channels, 2x2 max
        pooling after each pair, tanh, then a dense layer of 128).
      input_shape: shape of one record; the convolutional networks need (channels, height, width).
      num_classes: >= 2.

    Raises:
      ValueError: unknown name, or records of a shape the network cannot take.
    """
    check_choice("model", name, MODEL_NAMES)
    num_classes = check_int("num_classes", num_classes, at_least=2)
    if name in ("mlp", "logistic"):
        width = int(np.prod(input_shape))
        if name == "logistic":
            return nn.Sequential(nn.Flatten(), nn.Linear(width, num_classes))
        return nn.Sequential(
            nn.Flatten(), nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, num_classes)
        )
    smallest = 14 if name == "cnn" else 8
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"model {name!r} needs records of shape (channels, height, width) with height and width"
            f" at least {smallest}, got {tuple(input_shape)}"
        )
    channels, height, width = input_shape
    if name == "cnn":
        height, width = (((side - 4) // 2 - 3) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 16, 5),
            nn.MaxPool2d(2),
            nn.Tanh(),
            nn.Conv2d(16, 32, 4),
            nn.MaxPool2d(2),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * height * width, 32),
            nn.Tanh(),
            nn.Linear(32, num_classes),
        )
    layers: list[nn.Module] = []
    for width_in, width_out in ((channels, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(width_in, width_out, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(width_out, width_out, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(128 * (height // 8) * (width // 8), 128), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(128, num_classes))


def model_factory(
    model: str | Callable[[], Any], input_shape: tuple[int, ...], num_classes: int
) -> Callable[[], nn.Sequential]:
    """Returns a function that builds and checks the network a config asks for.

    Raises:
      ValueError: (when called) the function gives no nn.Sequential, its output is not (n,
        num_classes), it has no parameters, or a layer makes clipping or the noise meaningless:
        batch normalisation and a softmax over the batch mix records, running statistics remember
        them without noise, and random layers such as dropout draw from no seed of ours.
    """

    def build() -> nn.Sequential:
        network = (
            build_model(model, input_shape, num_classes) if isinstance(model, str) else model()
        )
        if (
            not isinstance(network, nn.Sequential)
            or type(network).forward is not nn.Sequential.forward
        ):
            raise ValueError(
                f"model must build a plain torch.nn.Sequential, got {type(network).__name__}"
            )
        for name, module in network.named_modules():
            if getattr(module, "inplace", False):
                # Per-example gradients need the layers' outputs, which nothing may overwrite.
                module.inplace = False
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                raise ValueError(
                    f"model must not mix records, but {name!r} is {type(module).__name__}; use"
                    f" GroupNorm"
                )
            if getattr(module, "track_running_stats", False):
                raise ValueError(
                    f"model must keep no running statistics of records, but {name!r} is {module}"
                )
            drops = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0.0
            if drops or isinstance(module, nn.RReLU):
                raise ValueError(
                    f"model must be deterministic, but {name!r} is {type(module).__name__}"
                )
        if not any(parameter.requires_grad for parameter in network.parameters()):
            raise ValueError("model must have parameters to train, got none")
        _check_outputs(network, input_shape, num_classes)
        return network

    return build


def _check_outputs(network: nn.Sequential, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Raises unless each record has its own row of logits, whatever other records there are."""
    records = torch.randn((2, *input_shape), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        try:
            outputs = network(records)
            alone = torch.cat([network(record) for record in torch.split(records, 1)])
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"model must take records of shape {input_shape}: {error}") from None
    if outputs.shape != (2, num_classes):
        raise ValueError(
            f"model must map 2 records to shape (2, {num_classes}), got shape"
            f" {tuple(outputs.shape)}"
        )
    # Kernels may round differently for another number of records: a thousandth is far above that.
    tolerance = 1e-3 * float(outputs.abs().max())
    if not torch.allclose(outputs, alone, rtol=0.0, atol=tolerance, equal_nan=True):
        raise ValueError(
            "model must not mix records, but a record's outputs change with the records beside it"
        )


def named_leaves(network: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Returns the layers in the order in which they are called, with their names; a layer used
    twice comes twice.
    """
    for key, layer in network._modules.items():
        name = f"{prefix}{key}"
        if type(layer) is nn.Sequential:
            yield from named_leaves(layer, f"{name}.")
        elif layer is not None:
            yield name, layer


def shared_parameters(network: nn.Module) -> list[tuple[str, str]]:
    """Returns (first name, other name) of every parameter that goes by several names."""
    first: dict[int, str] = {}
    return [
        (first[id(parameter)], name)
        for name, parameter in network.named_parameters(remove_duplicate=False)
        if first.setdefault(id(parameter), name) != name
    ]


def check_no_hooks(model: nn.Module) -> None:
    """Raises ValueError if a module does more than its type says, in forward hooks."""
    hooked = [
        name
        for name, module in model.named_modules()
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    ]
    if hooked:
        raise ValueError(
            f"model must have no hooks, which only OpacusDpSgdMechanism would call, got hooks of"
            f" {hooked}"
        )


def random_weights(
    name: str, input_shape: tuple[int, ...], num_classes: int = 10, *, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Returns torch's usual random start of a named network, from a seed, leaving torch's own state
    alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(check_seed(seed))
        return weights_of(build_model(name, input_shape, num_classes))


def weights_of(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Returns a copy of the parameters, name -> float32 array."""
    return {
        name: parameter.detach().cpu().numpy().astype(np.float32)
        for name, parameter in model.named_parameters()
    }


def load_weights(model: nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Writes `weights` into the parameters of `model`.

    Raises:
      ValueError: names or shapes are not those of the model.
    """
    parameters = dict(model.named_parameters())
    missing, unknown = (
        sorted(parameters.keys() - weights),
        sorted(weights.keys() - parameters.keys()),
    )
    if missing or unknown:
        raise ValueError(
            f"initial_weights must name the model's parameters, missing {missing}, unknown"
            f" {unknown}"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tuple(parameter.shape) != np.shape(weights[name]):
                raise ValueError(
                    f"initial_weights[{name!r}] must have shape {tuple(parameter.shape)}, got"
                    f" {np.shape(weights[name])}"
                )
            parameter.copy_(torch.from_numpy(np.array(weights[name], dtype=np.float32)))
