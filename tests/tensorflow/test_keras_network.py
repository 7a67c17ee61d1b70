"""The Keras twin of a torch network computes the same function from the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.keras_network import KerasNetwork
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model, weights_of

IMAGE = (3, 16, 18)  # neither square nor of one channel: a wrong order of coordinates shows


def twin(network: nn.Sequential, shape: tuple[int, ...]) -> KerasNetwork:
    keras_network = KerasNetwork(network, shape)
    keras_network.set_weights(weights_of(network))
    return keras_network


def outputs(network: nn.Sequential, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns torch's and Keras's outputs on the same random records."""
    records = np.random.default_rng(0).standard_normal((5, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(records)).numpy()
    return expected, twin(network, shape).model(records).numpy()


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn", "cifar_cnn"])
def test_named_networks(name: str) -> None:
    torch.manual_seed(0)
    expected, got = outputs(build_model(name, IMAGE, 7), IMAGE)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    "activation",
    [
        nn.Tanh(),
        nn.ReLU(),
        nn.Sigmoid(),
        nn.SiLU(),
        nn.ELU(0.7),
        nn.LeakyReLU(0.2),
        nn.GELU(),
        nn.GELU(approximate="tanh"),
        nn.Identity(),
    ],
)
def test_activations(activation: nn.Module) -> None:
    torch.manual_seed(0)
    expected, got = outputs(nn.Sequential(nn.Linear(6, 8), activation, nn.Linear(8, 4)), (6,))
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2), bias=False)],
        [nn.Conv2d(3, 4, 3, dilation=2), nn.AvgPool2d(3, stride=2)],
        [nn.MaxPool2d((2, 3), stride=(1, 2)), nn.Conv2d(3, 4, 2, stride=2)],
        [nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()), nn.Conv2d(4, 2, 1)],
        [nn.Linear(18, 5, bias=False), nn.ReLU(), nn.Conv2d(3, 2, 2)],
    ],
)
def test_layers_of_images(layers: list[nn.Module]) -> None:
    torch.manual_seed(0)
    expected, got = outputs(nn.Sequential(*layers, nn.Flatten(), nn.Tanh()), IMAGE)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_weights_come_back_as_they_went_in() -> None:
    network = build_model("cnn", IMAGE, 7)
    weights = weights_of(network)
    returned = twin(network, IMAGE).weights()
    assert list(returned) == list(weights)
    for name, weight in weights.items():
        np.testing.assert_array_equal(returned[name], weight)


def test_frozen_parameters_are_not_trained() -> None:
    network = build_model("mlp", (6,), 4)
    network[1].weight.requires_grad_(False)
    variables = twin(network, (6,)).trainable_variables
    assert [tuple(variable.shape) for variable in variables] == [(32,), (32, 4), (4,)]


@pytest.mark.parametrize(
    "layer",
    [
        nn.GroupNorm(1, 3),
        nn.Conv2d(3, 3, 3, groups=3),
        nn.Conv2d(3, 3, 3, padding="same"),
        nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.Flatten(2),
    ],
)
def test_other_layers_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"model must have layers .* but 'odd' is"):
        KerasNetwork(_named(layer), IMAGE)


def _named(layer: nn.Module) -> nn.Sequential:
    network = nn.Sequential()
    network.add_module("odd", layer)
    return network


def test_shared_layers_are_refused() -> None:
    shared = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="must not use a layer twice, but '2'"):
        KerasNetwork(nn.Sequential(shared, nn.Tanh(), shared), (4,))
