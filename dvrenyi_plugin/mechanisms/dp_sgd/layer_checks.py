"""What an engine takes for a layer's per-example gradients, held against automatic differentiation
before anything is trained.

An engine that cannot treat a layer may fail in the middle of training, or be silently wrong: Opacus
1.6 is, for padding other than zeros and for embeddings with a padding index. Which layers those are
depends on its version, so none is listed.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dvrenyi_plugin.mechanisms.dp_sgd.networks import named_leaves

_NUM_RECORDS = 3
# Of the largest entry: far above what float32 rounds, far below what a wrong formula gives.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """One layer with weights to train, and what comes in and goes back where the network sees
    random records.

    Attributes:
      name: its name in the network.
      layer: the module.
      inputs: shape (3, ...).
      cotangent: stands for the gradient in the outputs, shape (3, ...).
    """

    name: str
    layer: nn.Module
    inputs: Tensor
    cotangent: Tensor

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What is trained."""
        return [weight for weight in self.layer.parameters() if weight.requires_grad]


def layer_cases(network: nn.Sequential, input_shape: Sequence[int]) -> list[LayerCase]:
    """Returns a case for every layer with weights to train, each layer once. Nothing is changed."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((_NUM_RECORDS, *input_shape), generator=generator)
    cases: dict[int, LayerCase] = {}
    for name, layer in named_leaves(network):
        with torch.no_grad():
            outputs = layer(values)
        cotangent = torch.randn(outputs.shape, generator=generator)
        case = LayerCase(name, layer, values, cotangent)
        if case.parameters:
            cases.setdefault(id(layer), case)
        values = outputs
    return list(cases.values())


def check_layer(
    case: LayerCase, engine: str, gradients: Callable[[LayerCase], list[Tensor]], *, norms: bool
) -> None:
    """Raises ValueError, naming the layer, unless an engine's per-example gradients of it are
    right.

    Args:
      case: the layer.
      engine: as messages call it.
      gradients: what the engine takes for them, one tensor of shape (3, ...) for each of
        `case.parameters`.
      norms: whether that is their norms only, shape (3,).
    """
    expected = _by_autograd(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = gradients(case)
        reason = None
    except Exception as error:
        # What an engine that does not know a layer raises is anything: AttributeError, TypeError,
        # RuntimeError.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
    else:
        if not all(_agree(*pair, norms=norms) for pair in zip(expected, found, strict=True)):
            reason = "its per-example gradients come out wrong"
    if reason is not None:
        raise ValueError(
            f"model must have layers that {engine} can train, but {case.name!r} is"
            f" {_describe(case.layer)}: {reason}"
        )


def _by_autograd(case: LayerCase) -> list[Tensor]:
    """Returns each record's gradient, one tensor of shape (3, ...) for each parameter."""
    rows = []
    for record, cotangent in zip(case.inputs, case.cotangent, strict=True):
        value = (case.layer(record.unsqueeze(0)) * cotangent.unsqueeze(0)).sum()
        rows.append(
            torch.autograd.grad(value, case.parameters, allow_unused=True, materialize_grads=True)
        )
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _agree(expected: Tensor, found: Tensor, *, norms: bool) -> bool:
    expected = expected.reshape(_NUM_RECORDS, -1)
    if norms:
        expected = expected.norm(dim=1, keepdim=True)
    found = found.detach().reshape(_NUM_RECORDS, -1)
    largest = float(expected.abs().max())
    return expected.shape == found.shape and torch.allclose(
        found, expected, rtol=0.0, atol=_TOLERANCE * largest
    )


def _describe(layer: nn.Module) -> str:
    text = str(layer)
    return type(layer).__name__ if "\n" in text else text
