"""Borders that no output depends on are left out, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.crop import crop, used_size
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model


@pytest.mark.parametrize(
    ("modules", "size", "used"),
    [
        ([nn.MaxPool2d(2)], (9, 8), (8, 8)),
        ([nn.Conv2d(1, 2, 3)], (9, 8), (9, 8)),
        ([nn.Conv2d(1, 2, 3, stride=2)], (10, 9), (9, 9)),
        ([nn.Conv2d(1, 2, 2, dilation=(2, 3), stride=3)], (9, 9), (9, 7)),
        ([nn.Tanh(), nn.AvgPool2d((3, 2))], (8, 7), (6, 6)),
        ([nn.MaxPool2d([2, 3])], (9, 8), (8, 6)),
        ([nn.AvgPool2d((2,), stride=[3, 2])], (9, 9), (8, 8)),
        ([nn.MaxPool2d(2, ceil_mode=True)], (9, 8), (9, 8)),
        ([nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2)], (9, 9), (9, 9)),
        ([nn.Conv2d(1, 2, 3, padding="same"), nn.MaxPool2d(2)], (9, 9), (9, 9)),
        ([nn.MaxPool2d(2), nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2)], (11, 11), (10, 10)),
        ([nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.MaxPool2d(2)], (10, 10), (10, 10)),
        ([nn.Flatten(), nn.Linear(81, 3)], (9, 9), (9, 9)),
        ([], (9, 9), (9, 9)),
    ],
)
def test_used_size(modules: list[nn.Module], size: tuple[int, int], used: tuple[int, int]) -> None:
    assert used_size(modules, *size) == used


@pytest.mark.parametrize(
    ("name", "shape", "used"),
    [("cnn", (1, 28, 28), (26, 26)), ("cifar_cnn", (3, 32, 32), (32, 32))],
)
def test_built_in_networks(name: str, shape: tuple[int, ...], used: tuple[int, int]) -> None:
    assert used_size(list(build_model(name, shape)), *shape[1:]) == used


windows = st.builds(
    lambda kind, kernel, stride, dilation: (
        nn.Conv2d(1, 1, kernel, stride=stride, dilation=dilation)
        if kind == "conv"
        else nn.AvgPool2d(kernel, stride=stride)
    ),
    st.sampled_from(["conv", "pool"]),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)


@settings(max_examples=150, deadline=None)
@given(
    modules=st.lists(st.one_of(windows, st.just(nn.Tanh())), max_size=4),
    height=st.integers(14, 24),
    width=st.integers(14, 24),
)
def test_the_used_part_is_what_has_a_gradient(modules: list[Any], height: int, width: int) -> None:
    """Average pooling and convolutions with positive weights: what is used has a nonzero
    gradient.
    """
    for module in modules:
        for parameter in module.parameters():
            nn.init.constant_(parameter, 0.01)
    images = torch.zeros((1, 1, height, width), requires_grad=True)
    try:
        outputs = nn.Sequential(*modules)(images)
    except RuntimeError:  # a window larger than what is left: no such network can be built
        return
    outputs.sum().backward()
    assert images.grad is not None
    used = used_size(modules, height, width)
    rows, columns = torch.nonzero(images.grad[0, 0], as_tuple=True)
    assert (int(rows.max()) + 1, int(columns.max()) + 1) == used
    cropped = nn.Sequential(*modules)(crop(images, used))
    torch.testing.assert_close(cropped, outputs)
