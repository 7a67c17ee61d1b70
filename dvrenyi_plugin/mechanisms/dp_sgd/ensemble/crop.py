"""The part of an image that a network looks at: borders that floor division drops need no
arithmetic.

Pooling 9 x 9 positions in pairs uses 8 x 8 of them. What the last row and column hold then moves
neither the output nor any gradient, and leaving out the pixels that only they see changes nothing
but the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_POSITIONWISE = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
)
_WINDOWED = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)


def used_size(modules: Sequence[nn.Module], height: int, width: int) -> tuple[int, int]:
    """Returns the height and width, counted from the first row and column, that the output depends
    on.

    Args:
      modules: what images of (channels, height, width) pass through, in order. Windows are followed
        back up to the first module that is neither a window without padding nor applied position by
        position; that one is taken to use all it gets.
      height, width: of the images, in pixels.
    """
    windows = []
    for module in modules:
        if type(module) in _WINDOWED and not _is_padded(module):
            windows.append(module)
        elif type(module) not in _POSITIONWISE:
            break
    return _used_side(windows, 0, height), _used_side(windows, 1, width)


def _used_side(windows: Sequence[Any], axis: int, side: int) -> int:
    used = side
    for window in windows:
        used = (used - _extent(window, axis)) // _pair(window.stride)[axis] + 1
    for window in reversed(windows):
        used = (used - 1) * _pair(window.stride)[axis] + _extent(window, axis)
    return used


def _extent(window: Any, axis: int) -> int:
    """Pixels from the first to the last that one position sees."""
    dilation = _pair(getattr(window, "dilation", 1))[axis]
    return dilation * (_pair(window.kernel_size)[axis] - 1) + 1


def _is_padded(window: Any) -> bool:
    padding = window.padding
    return (
        isinstance(padding, str) or any(_pair(padding)) or bool(getattr(window, "ceil_mode", False))
    )


def _pair(value: Any) -> tuple[int, int]:
    # Pooling layers keep what they were given: a number, or one or two in a tuple or list.
    sides = value if isinstance(value, Sequence) else (value,)
    return sides[0], sides[-1]


def crop(images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Returns the first rows and columns of images, shape (..., height, width), as a view."""
    return images[..., : size[0], : size[1]]
