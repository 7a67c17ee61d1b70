"""Families of trade-off curves ordered by leakage: what a lower bound in a claim's own unit is read
from.

To refute every member up to a parameter is to certify that parameter: "not mu-Gaussian DP for any
mu below b", or "not (epsilon, delta)-DP for any epsilon below b at this delta". It says nothing
about another family.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dvrenyi_plugin._internal.validation import check_delta
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    BoundedRangeCurve,
    GaussianCurve,
    TradeOffCurve,
)

Array = NDArray[np.float64]

# Steps of 1%: half a step is lost on average, and at 50,000 pairs the sampling error of the bound
# is about as large.
_STEP = 1.01


class TradeOffFamily(abc.ABC):
    """Curves F_t that grow with t at every level."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the curves are, for reports."""

    @property
    @abc.abstractmethod
    def parameter(self) -> str:
        """What t is, for reports."""

    @abc.abstractmethod
    def curve(self, value: float) -> TradeOffCurve:
        """Returns F_value."""

    @property
    @abc.abstractmethod
    def grid(self) -> Array:
        """The parameters that are tested, shape (k,), increasing and positive."""

    def power_and_slope_at(self, values: Array, levels: Array) -> tuple[Array, Array]:
        """Returns F_t(level) and a supergradient, both of shape (k, m).

        Args:
          values: shape (k,), parameters.
          levels: shape (k, m), levels in (0, 1), one row for each parameter.
        """
        power, slope = np.empty((2, *levels.shape))
        for row, (value, level) in enumerate(zip(values, levels, strict=True)):
            curve = self.curve(float(value))
            power[row], slope[row] = curve.power_at(level), curve.slope_at(level)
        return power, slope


def check_family(family: Any) -> TradeOffFamily:
    """Returns the family, or raises ValueError for anything else."""
    if not isinstance(family, TradeOffFamily):
        raise ValueError(f"family must be a TradeOffFamily, got {family!r}")
    return family


class GaussianFamily(TradeOffFamily):
    """mu-Gaussian DP, by mu."""

    @property
    def name(self) -> str:
        """Returns "Gaussian DP"."""
        return "Gaussian DP"

    @property
    def parameter(self) -> str:
        """Returns "mu"."""
        return "mu"

    def curve(self, value: float) -> GaussianCurve:
        """Returns mu-Gaussian DP."""
        return GaussianCurve(value)

    @property
    def grid(self) -> Array:
        """0.01 to 20."""
        return _geometric(0.01, 20.0)

    def power_and_slope_at(self, values: Array, levels: Array) -> tuple[Array, Array]:
        """See `TradeOffFamily.power_and_slope_at`."""
        mu, z = values[:, np.newaxis], ndtri(levels)
        return ndtr(z + mu), np.exp(np.minimum(-mu * (z + mu / 2.0), 690.0))


class ApproximateDpFamily(TradeOffFamily):
    """(epsilon, delta)-DP at one delta, by epsilon.

    Args:
      delta: in [0, 1]; 0 for pure DP.
    """

    def __init__(self, delta: float) -> None:
        self.delta = check_delta(delta)

    @property
    def name(self) -> str:
        """Returns which delta it is."""
        return f"(epsilon, {self.delta:g})-DP" if self.delta > 0.0 else "pure DP"

    @property
    def parameter(self) -> str:
        """Returns "epsilon"."""
        return "epsilon"

    def curve(self, value: float) -> ApproximateDpCurve:
        """Returns (epsilon, delta)-DP."""
        return ApproximateDpCurve(value, self.delta)

    @property
    def grid(self) -> Array:
        """0.001 to 60."""
        return _geometric(0.001, 60.0)

    def power_and_slope_at(self, values: Array, levels: Array) -> tuple[Array, Array]:
        """See `TradeOffFamily.power_and_slope_at`."""
        steep, flat = np.exp(values)[:, np.newaxis], np.exp(-values)[:, np.newaxis]
        rising, bent = steep * levels + self.delta, 1.0 - flat * (1.0 - self.delta - levels)
        power = np.minimum(1.0, np.minimum(rising, bent))
        slope = np.where(rising <= bent, steep, flat)
        return power, np.where(power < 1.0, slope, 0.0)


class BoundedRangeFamily(TradeOffFamily):
    """Pairs whose log ratio has a bounded range, by its width."""

    @property
    def name(self) -> str:
        """Returns "bounded range"."""
        return "bounded range"

    @property
    def parameter(self) -> str:
        """Returns "width"."""
        return "width"

    def curve(self, value: float) -> BoundedRangeCurve:
        """Returns the curve of this width."""
        return BoundedRangeCurve(value)

    @property
    def grid(self) -> Array:
        """0.001 to 60."""
        return _geometric(0.001, 60.0)


def _geometric(first: float, last: float) -> Array:
    count = math.ceil(math.log(last / first) / math.log(_STEP)) + 1
    return np.geomspace(first, last, count)
