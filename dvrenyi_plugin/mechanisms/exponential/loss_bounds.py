"""The range of a loss, which claims rest on: as it is stated, and as it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.ranges import LARGEST
from dvrenyi_plugin._internal.validation import check_real

FloatArray = NDArray[np.float64]


def check_bounds(name: str, bounds: Any) -> tuple[float, float]:
    """Returns a pair (low, high) of loss values.

    Raises:
      ValueError: no pair, out of order, or beyond 1e100.
    """
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise ValueError(f"{name} must be a pair (low, high), got {bounds!r}")
    low = check_real(f"{name}[0]", bounds[0], at_least=-LARGEST)
    return low, check_real(f"{name}[1]", bounds[1], at_least=low, at_most=LARGEST)


def check_loss_values(values: FloatArray, bounds: tuple[float, float]) -> FloatArray:
    """Returns loss values clipped into their bounds, which they may leave by rounding only.

    The claims rest on the bounds exactly, hence the clip.

    Raises:
      ValueError: with the extreme values found.
    """
    low, high = bounds
    slack = 1e-9 * max(abs(low), abs(high))
    smallest, largest = float(np.min(values)), float(np.max(values))
    # Written so that NaN fails.
    if not (smallest >= low - slack and largest <= high + slack):
        raise ValueError(
            f"loss must stay inside its bounds [{low:g}, {high:g}], got values from {smallest:g} to"
            f" {largest:g}"
        )
    return np.clip(values, low, high)


__all__ = ["check_bounds", "check_loss_values"]
