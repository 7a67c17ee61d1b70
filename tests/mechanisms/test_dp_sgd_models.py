"""The named networks, their weights as arrays, and what a model factory refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    build_model,
    load_weights,
    model_factory,
    random_weights,
    weights_of,
)


class Reversed(nn.Sequential):
    """A Sequential that is not one."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for module in reversed(list(self)):
            values = module(values)
        return values


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("mlp", (1, 28, 28), [(32, 784), (32,), (10, 32), (10,)]),
        ("logistic", (8, 8), [(10, 64), (10,)]),
        (
            "cnn",
            (1, 28, 28),
            [(16, 1, 5, 5), (16,), (32, 16, 4, 4), (32,), (32, 512), (32,), (10, 32), (10,)],
        ),
        (
            "cifar_cnn",
            (3, 32, 32),
            [
                *((32, 3, 3, 3), (32,), (32, 32, 3, 3), (32,)),
                *((64, 32, 3, 3), (64,), (64, 64, 3, 3), (64,)),
                *((128, 64, 3, 3), (128,), (128, 128, 3, 3), (128,)),
                *((128, 2048), (128,), (10, 128), (10,)),
            ],
        ),
    ],
)
def test_networks_have_the_published_shapes(
    name: str, shape: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    model = build_model(name, shape)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == expected
    assert model(torch.zeros((3, *shape))).shape == (3, 10)


def test_mnist_network_pools_before_tanh() -> None:
    kinds = [type(module).__name__ for module in build_model("cnn", (1, 28, 28))]
    assert kinds[:6] == ["Conv2d", "MaxPool2d", "Tanh"] * 2


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("cnn", (784,), "channels, height, width"),
        ("cnn", (1, 8, 8), "at least 14"),
        ("cifar_cnn", (3, 7, 32), "at least 8"),
        ("resnet", (3, 32, 32), "model must be one of"),
    ],
)
def test_impossible_networks_are_refused(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(name, shape)


def test_smallest_allowed_images_work() -> None:
    assert build_model("cnn", (2, 14, 15))(torch.zeros(1, 2, 14, 15)).shape == (1, 10)
    assert build_model("cifar_cnn", (3, 8, 9), 4)(torch.zeros(1, 3, 8, 9)).shape == (1, 4)


def test_random_weights_reproduce_and_leave_torchs_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = random_weights("mlp", (4, 4), seed=1)
    assert torch.equal(torch.rand(3), expected)
    again, other = random_weights("mlp", (4, 4), seed=1), random_weights("mlp", (4, 4), seed=2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["1.weight"], other["1.weight"])


def test_weights_survive_the_way_into_a_model_and_back() -> None:
    weights = random_weights("cnn", (1, 28, 28), seed=3)
    model = build_model("cnn", (1, 28, 28))
    load_weights(model, weights)
    back = weights_of(model)
    assert list(back) == list(weights)
    assert all(np.array_equal(back[name], weights[name]) for name in weights)


def test_weights_of_another_model_are_refused() -> None:
    model = build_model("logistic", (4,))
    weights = weights_of(model)
    with pytest.raises(ValueError, match=r"missing \['1.bias'\]"):
        load_weights(model, {"1.weight": weights["1.weight"]})
    with pytest.raises(ValueError, match=r"unknown \['extra'\]"):
        load_weights(model, {**weights, "extra": weights["1.bias"]})
    with pytest.raises(ValueError, match=r"1.bias.* must have shape \(10,\), got \(3,\)"):
        load_weights(model, {**weights, "1.bias": np.zeros(3)})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Linear(4, 2), "Sequential"),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=0)), "mix records"),
        (
            lambda: nn.Sequential(
                nn.Unflatten(1, (2, 2)),
                nn.InstanceNorm1d(2, track_running_stats=True),
                *(nn.Flatten(), nn.Linear(4, 2)),
            ),
            "running statistics",
        ),
        (
            lambda: nn.Sequential(
                nn.Unflatten(1, (2, 2)),
                nn.MaxPool1d(2, return_indices=True),
                *(nn.Flatten(), nn.Linear(2, 2)),
            ),
            "must take records",
        ),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), "mix records"),
        (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)), "deterministic"),
        (lambda: nn.Sequential(nn.Linear(4, 2), nn.RReLU()), "deterministic"),
        (lambda: Reversed(nn.Linear(2, 2), nn.Linear(4, 2)), "plain torch.nn.Sequential"),
        (lambda: nn.Sequential(nn.Flatten()), "parameters to train"),
        (lambda: nn.Sequential(nn.Linear(4, 3)), r"shape \(2, 2\)"),
        (lambda: nn.Sequential(nn.Linear(5, 2)), "must take records"),
    ],
)
def test_factory_refuses_what_cannot_be_private_or_used(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_factory(build, (4,), 2)()  # type: ignore[arg-type]
