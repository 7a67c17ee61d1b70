"""Trade-off curves: a privacy claim as the most power that it allows at each level.

A curve F says of two laws P and Q that no event gains more than it allows: Q(E) <= F(P(E)) for
every event E. F is concave and nondecreasing on [0, 1] with F(1) = 1; 1 - F is the trade-off
function of Dong, Roth and Su (2022), "Gaussian Differential Privacy". Every test of "the output
came from P" with level a has power at most F(a).

A curve is *symmetric* when it says of (P, Q) exactly what it says of (Q, P). A claim about
neighbouring datasets speaks of both orders; with a symmetric curve, one order is enough to test it.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dvrenyi_plugin._internal.validation import (
    check_bool,
    check_delta,
    check_epsilon,
    check_int,
    check_numbers,
    check_real,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_delta, gaussian_dp_epsilon

Array = NDArray[np.float64]

# Slopes are kept finite. A tangent is at most power / level steep, so that none is steeper than
# this at levels above 1e-300.
_STEEPEST = 1e300
# Beyond these a curve is 1 at every level that floats resolve.
LARGEST_MU, _LARGEST_EPSILON = 100.0, 600.0
_LARGEST_INT = 2**63 - 1
# A curve without a closed form is applied once for each record of a group.
_LARGEST_GROUP = 10_000
# Levels at which the conjugate is maximised before it is polished.
_CONJUGATE_LEVELS = 400


class TradeOffCurve(abc.ABC):
    """The most power that a claim allows at each level."""

    def power(self, level: ArrayLike) -> Array:
        """Returns F(level), shape of `level`, in [0, 1].

        Args:
          level: any shape, each in [0, 1].
        """
        levels = check_numbers("level", level)
        if not np.all((levels >= 0.0) & (levels <= 1.0)):
            raise ValueError(f"level must be in [0, 1], got {level!r}")
        return self.power_at(levels)

    def slope(self, level: ArrayLike) -> Array:
        """Returns a supergradient s of F: F(b) <= F(level) + s (b - level) for every b in [0, 1].

        Args:
          level: any shape, each in (0, 1).
        """
        levels = check_numbers("level", level)
        if not np.all((levels > 0.0) & (levels < 1.0)):
            raise ValueError(f"level must be in (0, 1), got {level!r}")
        return self.slope_at(levels)

    @abc.abstractmethod
    def power_at(self, level: Array) -> Array:
        """Returns what `power` does, unchecked: the e-process asks for it thousands of times."""

    @abc.abstractmethod
    def slope_at(self, level: Array) -> Array:
        """Returns what `slope` does, without a check."""

    @property
    @abc.abstractmethod
    def symmetric(self) -> bool:
        """Whether the curve says of (P, Q) what it says of (Q, P)."""

    def delta(self, epsilon: float) -> float:
        """Returns the least delta such that the curve implies Q(E) <= e^epsilon P(E) + delta.

        That is the largest F(a) - e^epsilon a. For a symmetric curve this is (epsilon, delta)-DP.
        """
        factor = math.exp(min(check_epsilon(epsilon), 700.0))

        def gap(level: Array) -> Array:
            return np.asarray(self.power_at(level) - factor * level)

        # Concave in the level: a coarse maximum lies beside the true one.
        levels = _levels_down_to_zero()
        for _ in range(3):
            values = gap(levels)
            best = int(values.argmax())
            low, high = levels[max(best - 1, 0)], levels[min(best + 1, levels.size - 1)]
            levels = np.linspace(low, high, _CONJUGATE_LEVELS)
        return float(min(1.0, max(0.0, gap(levels).max())))

    def epsilon(self, delta: float) -> float:
        """Returns the least epsilon >= 0 with `self.delta(epsilon) <= delta`, inf without one.

        Args:
          delta: in [0, 1].
        """
        delta = check_delta(delta)
        # Above its own epsilon an (epsilon, delta) curve stays at delta, but for rounding.
        enough = delta * (1.0 + 1e-12) + 1e-15

        def excess(epsilon: float) -> float:
            return self.delta(epsilon) - enough

        if excess(0.0) <= 0.0:
            return 0.0
        upper = 1.0
        while excess(upper) > 0.0:
            upper *= 2.0
            if upper > 600.0:
                return math.inf
        return float(brentq(excess, 0.0, upper, xtol=1e-12))

    def group(self, size: int) -> TradeOffCurve:
        """Returns the curve for groups of `size` records: F applied `size` times.

        Source: Dong, Roth and Su (2022), theorem 2.14.
        """
        size = check_int("size", size, at_least=1)
        return self if size == 1 else GroupCurve(self, size)


class GaussianCurve(TradeOffCurve):
    """mu-Gaussian DP: F(a) = Phi(Phi^-1(a) + mu).

    Args:
      mu: >= 0.
    """

    def __init__(self, mu: float) -> None:
        self.mu = check_real("mu", mu, at_least=0.0, at_most=LARGEST_MU)

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        return np.asarray(ndtr(ndtri(level) + self.mu))

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        # Finite even at levels that groups round to 0 or 1.
        z = np.clip(ndtri(level), -LARGEST_MU, LARGEST_MU)
        exponent = -self.mu * (z + self.mu / 2.0)
        return np.asarray(np.exp(np.minimum(exponent, math.log(_STEEPEST))))

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True

    def delta(self, epsilon: float) -> float:
        """Returns the exact delta in closed form."""
        return gaussian_dp_delta(self.mu, epsilon)

    def epsilon(self, delta: float) -> float:
        """Returns the exact epsilon; inf at delta = 0 unless mu = 0."""
        if check_delta(delta) == 0.0 and self.mu > 0.0:
            return math.inf
        return gaussian_dp_epsilon(self.mu, delta)

    def group(self, size: int) -> TradeOffCurve:
        """Returns (size mu)-Gaussian DP."""
        return GaussianCurve(_group_parameter(size, self.mu, LARGEST_MU))


class BoundedRangeCurve(TradeOffCurve):
    """Pairs whose log ratio lies in an interval of width w: F(a) = a / (a + (1 - a) e^-w).

    With log dQ/dP in [t - w, t], Q(E) <= e^t P(E) and Q(E^c) >= e^{t-w} P(E^c), so the odds of Q(E)
    are at most e^w times those of P(E). Two-point laws attain it at every level, so no smaller
    curve will do for the class.

    Args:
      width: w >= 0.
    """

    def __init__(self, width: float) -> None:
        self.width = check_real("width", width, at_least=0.0, at_most=_LARGEST_EPSILON)

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        a = np.asarray(level, dtype=np.float64)
        return np.asarray(a / (a + (1.0 - a) * math.exp(-self.width)))

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        a, shrink = np.asarray(level, dtype=np.float64), math.exp(-self.width)
        total = a + (1.0 - a) * shrink
        return np.asarray(shrink / total / total)  # the square would underflow

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True

    def group(self, size: int) -> TradeOffCurve:
        """Returns the curve of width (size w)."""
        return BoundedRangeCurve(_group_parameter(size, self.width, _LARGEST_EPSILON))


class ApproximateDpCurve(TradeOffCurve):
    """(epsilon, delta)-DP: F(a) = min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)).

    Args:
      epsilon: >= 0.
      delta: in [0, 1]; 0 for pure DP.
    """

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        self._epsilon = check_real("epsilon", epsilon, at_least=0.0, at_most=_LARGEST_EPSILON)
        self._delta = check_delta(delta)
        self._corner = (1.0 - self._delta) / (1.0 + math.exp(self._epsilon))

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        a = np.asarray(level, dtype=np.float64)
        steep = math.exp(self._epsilon) * a + self._delta
        flat = 1.0 - math.exp(-self._epsilon) * (1.0 - self._delta - a)
        return np.minimum(1.0, np.minimum(steep, flat))

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        a = np.asarray(level, dtype=np.float64)
        steep, flat = math.exp(self._epsilon), math.exp(-self._epsilon)
        return np.where(a <= self._corner, steep, np.where(a < 1.0 - self._delta, flat, 0.0))

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True


class PointsCurve(TradeOffCurve):
    """The least concave curve through given points: straight between them.

    Args:
      levels: shape (k,), increasing, in [0, 1]; (0, 0) and (1, 1) are added where they are missing.
      powers: shape (k,), each in [0, 1].
      symmetric: whether the curve says of (P, Q) what it says of (Q, P); the caller knows.

    Raises:
      ValueError: the points are not on a concave nondecreasing curve above the diagonal.
    """

    def __init__(self, levels: ArrayLike, powers: ArrayLike, *, symmetric: bool = False) -> None:
        a, b = check_numbers("levels", levels), check_numbers("powers", powers)
        if a.ndim != 1 or a.shape != b.shape or a.size == 0:
            raise ValueError(
                f"levels and powers must have one shape (k,), got {a.shape} and {b.shape}"
            )
        for name, values in (("levels", a), ("powers", b)):
            if not np.all((values >= 0.0) & (values <= 1.0)):
                raise ValueError(f"{name} must be in [0, 1], got {values!r}")
        if np.any(np.diff(a) <= 0.0):
            raise ValueError(f"levels must increase, got {a!r}")
        if a[0] > 0.0:
            a, b = np.append(0.0, a), np.append(0.0, b)
        if a[-1] < 1.0:
            a, b = np.append(a, 1.0), np.append(b, 1.0)
        steps = np.diff(a)
        slopes = np.diff(b) / steps
        # Rounding of close points may make a later slope larger by a few digits. The curve is
        # lifted there, never lowered: it must not promise more than the points do, and a tangent
        # must stay above it.
        concave = np.maximum.accumulate(slopes[::-1])[::-1]
        lifted = np.minimum(1.0, np.append(b[0], b[0] + np.cumsum(concave * steps)))
        lifted[-1] = 1.0
        if b[-1] < 1.0 or np.any(slopes < 0.0) or np.any(lifted - b > 1e-9):
            raise ValueError(
                "levels and powers must lie on a concave, nondecreasing curve that ends in (1, 1)"
            )
        self._levels, self._powers, self._slopes = a, lifted, concave
        self._symmetric = check_bool("symmetric", symmetric)

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        return np.asarray(np.interp(level, self._levels, self._powers))

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        cell = np.searchsorted(self._levels, level, side="left") - 1
        return self._slopes[np.clip(cell, 0, self._slopes.size - 1)]

    @property
    def symmetric(self) -> bool:
        """As the caller said."""
        return self._symmetric


class MinimumCurve(TradeOffCurve):
    """Several claims at once: the smallest power that any of them allows.

    Args:
      curves: at least one.
    """

    def __init__(self, curves: Sequence[TradeOffCurve]) -> None:
        if not isinstance(curves, Sequence) or not curves:
            raise ValueError(f"curves must be a sequence of at least one curve, got {curves!r}")
        self.curves = tuple(check_curve("curves", curve) for curve in curves)

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        return np.asarray(np.min([curve.power_at(level) for curve in self.curves], axis=0))

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        lowest = np.argmin([curve.power_at(level) for curve in self.curves], axis=0)
        slopes = np.stack([curve.slope_at(level) for curve in self.curves])
        return np.asarray(np.take_along_axis(slopes, lowest[np.newaxis], axis=0)[0])

    @property
    def symmetric(self) -> bool:
        """Whether all of them are."""
        return all(curve.symmetric for curve in self.curves)


class GroupCurve(TradeOffCurve):
    """A curve applied several times over: what it says of groups of records.

    Args:
      single: the curve for one record.
      size: records of a group, >= 1.
    """

    def __init__(self, single: TradeOffCurve, size: int) -> None:
        self._single = check_curve("single", single)
        self._size = check_int("size", size, at_least=1, at_most=_LARGEST_GROUP)

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        value = np.asarray(level, dtype=np.float64)
        for _ in range(self._size):
            value = self._single.power_at(value)
        return value

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`: the chain rule holds for nondecreasing curves."""
        value = np.asarray(level, dtype=np.float64)
        slope = np.ones_like(value)
        for _ in range(self._size):
            with np.errstate(over="ignore"):  # capped like any other steep tangent
                slope = np.minimum(slope * self._single.slope_at(value), _STEEPEST)
            value = self._single.power_at(value)
        return np.asarray(slope)

    @property
    def symmetric(self) -> bool:
        """Whether the curve of one record is."""
        return self._single.symmetric


def _group_parameter(size: int, of_one: float, largest: float) -> float:
    """Returns size times the parameter of one record, which must not be too large."""
    most = math.floor(largest / of_one) if of_one * _LARGEST_INT > largest else _LARGEST_INT
    return min(check_int("size", size, at_least=1, at_most=most) * of_one, largest)


def check_curve(name: str, curve: Any) -> TradeOffCurve:
    """Returns the curve, or raises ValueError for anything else."""
    if not isinstance(curve, TradeOffCurve):
        raise ValueError(f"{name} must be a TradeOffCurve, got {curve!r}")
    return curve


def _levels_down_to_zero() -> Array:
    return np.concatenate([[0.0], np.geomspace(1e-300, 0.01, 300), np.linspace(0.01, 1.0, 200)[1:]])
