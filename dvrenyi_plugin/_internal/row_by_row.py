"""Critics of samples must treat their rows one by one.

A certificate is valid for one fixed function of a sample. A value that depends on the other rows of
the call (batch statistics, attention over rows, x.mean()) lets every sample see those that are
certified with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers

Array = NDArray[np.float64]
# Rows in a small group that is evaluated by itself. Whatever is taken over rows differs most there.
_SMALL_GROUP = 8
# What float32 may lose with another number of rows. In nats, and relative to the largest value.
_TOLERANCE = 1e-3


class RowByRow:
    """A user's function of samples, called with copies, its values checked at every call.

    The values of the rows must be the same, to 0.001 of the largest (at least 0.001), when the rows
    are shuffled, when they are mixed with others, and when a few of them are evaluated alone. A
    dependence below that passes.

    Args:
      name: of the function, for messages.
      function: maps samples of shape (n, d) to values of shape (n,).
      others: shape (m, d), samples to mix with those of a call; may be empty.
      finite: refuse NaN and infinite values.
    """

    def __init__(
        self, name: str, function: Callable[[Array], Any], others: Array, *, finite: bool = True
    ) -> None:
        self._name = name
        self._function = function
        # Spread over all of them: the first ones may be of one law.
        self._others = others[np.linspace(0, len(others) - 1, min(len(others), 32)).astype(int)]
        self._finite = finite

    def __call__(self, samples: Array) -> Array:
        """Returns the values of samples of shape (n, d), shape (n,), float64.

        Raises:
          ValueError: values that depend on other rows, or of another shape.
        """
        values = self._values(samples)
        if len(samples) == 0:
            return values
        # A stream of its own: the global ones are the user's.
        rng = np.random.default_rng(0)
        mixed = rng.permutation(len(samples) + len(self._others))
        few = rng.permutation(len(samples))[:_SMALL_GROUP]
        self._compare(values, samples, mixed, "shuffled and mixed with others")
        self._compare(values, samples, few, f"evaluated {len(few)} at a time")
        # Not one alone: many honest models squeeze that to shape ().
        self._compare(values, samples, few[:2], f"evaluated {len(few[:2])} at a time")
        return values

    def _compare(self, values: Array, samples: Array, order: NDArray[np.intp], how: str) -> None:
        """Evaluates these of the samples, followed by the others, in this order."""
        again = self._values(np.concatenate([samples, self._others])[order])
        own = order < len(samples)
        before, after = values[order[own]], again[own]
        allowed = _TOLERANCE * max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))
        same = np.isclose(before, after, rtol=0.0, atol=allowed, equal_nan=True)
        if not same.all():
            worst = int(np.argmin(same))
            raise ValueError(
                f"{self._name} must treat rows one by one: the value of a sample may not depend on"
                f" the other"
                f" samples of the call, got {before[worst]:.6g} for a sample among {len(samples)}"
                f" and"
                f" {after[worst]:.6g} for the same one {how}. Batch statistics, attention over rows"
                f" and means"
                " over rows are not allowed, nor is randomness in evaluation"
            )

    def _values(self, samples: Array) -> Array:
        values = call_user_code(self._name, self._function, samples)
        return user_numbers(self._name, values, (len(samples),), finite=self._finite)


__all__ = ["RowByRow"]
