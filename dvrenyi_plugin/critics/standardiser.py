"""The one standardiser of samples, robust: a few outliers, however far out, do not move it."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# 5% to 95% range and interquartile range of N(0, 1).
_NORMAL_RANGE_90 = 3.29
_NORMAL_RANGE_50 = 1.349
_FARTHEST_UNIT = 1e6
_SMALLEST_SCALE = 1e-12


@dataclasses.dataclass(frozen=True)
class Standardiser:
    """Centres and scales every column, and moves what lies far out to a farthest place.

    A function of the clipped value is still one fixed function of a sample.

    Attributes:
      unit: shape (d,), columns are divided by it first, so that no square overflows.
      centre: shape (d,), subtracted next.
      scale: shape (d,), divided by next.
      farthest: largest absolute value that is returned.
    """

    unit: Array
    centre: Array
    scale: Array
    farthest: float

    def __call__(self, samples: Array) -> Array:
        """Returns standardised samples, shape (n, d)."""
        with np.errstate(over="ignore"):  # infinity is clipped like any other outlier
            standard = (samples / self.unit - self.centre) / self.scale
        return np.clip(standard, -self.farthest, self.farthest)

    @classmethod
    def of_quartiles(
        cls, samples: Array, farthest: float, normal_range: float = _NORMAL_RANGE_50
    ) -> Standardiser:
        """Returns the one by median and interquartile range.

        The standard deviation is used where half of the values coincide.

        Args:
          samples: shape (n, d).
          farthest: see the class.
          normal_range: interquartile range of a column that is to have scale 1.
        """
        largest = np.abs(samples).max(axis=0)
        # Divided by a value a million times the others, these would be told apart no longer.
        with np.errstate(over="ignore", invalid="ignore"):
            middle = np.abs(np.quantile(samples, (0.25, 0.5, 0.75), axis=0)).max(axis=0)
            largest = np.where(middle > 0.0, np.minimum(largest, _FARTHEST_UNIT * middle), largest)
        unit = np.maximum(largest, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            units = np.clip(samples / unit, -_FARTHEST_UNIT, _FARTHEST_UNIT)
        lower, centre, upper = np.quantile(units, (0.25, 0.5, 0.75), axis=0)
        scale = (upper - lower) / normal_range
        scale = np.where(scale > _SMALLEST_SCALE, scale, units.std(axis=0))
        return cls(unit, centre, np.where(scale > _SMALLEST_SCALE, scale, 1.0), farthest)

    @classmethod
    def of_weighted(cls, points: Array, weights: Array, farthest: float) -> Standardiser:
        """Returns the one by median and 5% to 95% range of points that stand for several samples.

        Args:
          points: shape (k, d).
          weights: shape (k,), samples at each point.
          farthest: see the class.
        """
        levels = np.array([0.05, 0.5, 0.95])
        lower, centre, upper = np.stack(
            [weighted_quantile(column, weights, levels) for column in points.T], axis=1
        )
        # Scales stay finite for every finite sample.
        scale = upper / _NORMAL_RANGE_90 - lower / _NORMAL_RANGE_90
        largest = np.maximum(np.abs(points).max(axis=0), np.finfo(np.float64).tiny)
        fallback = (points / largest).std(axis=0) * largest
        scale = np.where(scale > 0.0, scale, np.where(fallback > 0.0, fallback, 1.0))
        return cls(np.ones(points.shape[1]), centre, scale, farthest)


def weighted_quantile(values: Array, weights: Array, levels: Array) -> Array:
    """Returns the least values with at least these shares of the weight at or below them."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative, levels * cumulative[-1])
    return np.asarray(values[order][np.minimum(index, values.size - 1)])
