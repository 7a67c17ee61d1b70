"""The numbers that flows take: wide enough for every use, and their squares and products stay
finite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import check_real

LARGEST = 1e100
"""Largest absolute value of a potential, a coordinate or a constant of a certificate."""

SMALLEST = 1e-100
"""Smallest length, step or bandwidth."""

MOST_CELLS = 10_000_000
MOST_STEPS = 1_000_000


def check_kind(name: str, value: Any, kind: type) -> None:
    """Refuses a thing of another class.

    Raises:
      ValueError: naming the argument, its value and the class.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")


def check_size(name: str, value: Any) -> float:
    """Returns a number in [0, 1e100].

    Raises:
      ValueError: naming the argument, its value and the range.
    """
    return check_real(name, value, at_least=0.0, at_most=LARGEST)


def check_positive(name: str, value: Any) -> float:
    """Returns a number in [1e-100, 1e100].

    Raises:
      ValueError: naming the argument, its value and the range.
    """
    return check_real(name, value, at_least=SMALLEST, at_most=LARGEST)


def check_max_jump(name: str, value: Any) -> float:
    """Returns the largest jump of a potential between neighbouring cells: above 0, inf for no
    limit.

    Raises:
      ValueError: naming the argument, its value and the range.
    """
    if isinstance(value, float) and value == math.inf:
        return math.inf
    return check_real(name, value, above=0.0)


def check_moderate(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns an array whose entries are all within 1e100 of zero.

    Raises:
      ValueError: with the number of entries that are not, and the first of them.
    """
    # Written so that NaN fails.
    bad = ~(np.abs(values) <= LARGEST)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must be finite and at most {LARGEST:g} in absolute value, got"
            f" {int(bad.sum())} entries that are not, the first is {values[first]:g} at index"
            f" {first}"
        )
    return values


def check_interval(name: str, low: float, high: float, parts: int = 1) -> None:
    """Refuses ends out of order, and intervals whose points a float cannot tell apart.

    Args:
      name: of the two ends.
      low: lower end.
      high: upper end.
      parts: equal parts that must be told apart.

    Raises:
      ValueError: with both ends.
    """
    width = (high - low) / parts
    # A thousand numbers in every part; no width whose square leaves the range of a float.
    resolved = max(SMALLEST, 1e3 * math.ulp(max(abs(low), abs(high))))
    if not (max(abs(low), abs(high)) <= LARGEST and width >= resolved):
        raise ValueError(
            f"{name} must be finite, the lower end below the upper one, at most {LARGEST:g} in"
            f" absolute"
            f" value and far enough apart for floats between them, got [{low}, {high}]"
            + (f" for {parts} cells" if parts > 1 else "")
        )


def check_step_count(steps: float, remedy: str) -> None:
    """Refuses more steps than 1,000,000, which nobody waits for.

    Args:
      steps: needed.
      remedy: which arguments to change.

    Raises:
      ValueError: with the number of steps needed.
    """
    if steps > MOST_STEPS:
        raise ValueError(f"{remedy} must need at most {MOST_STEPS:,} steps, got {steps:,.6g}")
