"""Bounded losses for exponential-mechanism samplers, with the two numbers a certificate needs.

A loss L_D(theta) is a sum over records divided by a *public* number of records, so that adding,
removing or
replacing one record changes it by a bounded amount, whatever the records are: they are wrapped or
clipped into the domain first. `sensitivity` bounds osc(L_D - L_D') over all such neighbours,
`oscillation` bounds osc(L_D) over all datasets. Constants in theta never matter, hence oscillations
and not sup norms.

Every loss is called as `loss(points, dataset)`, points of shape (m, d), and returns shape (m,).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import (
    Allowed,
    CheckedSettings,
    Count,
    Finite,
    Fraction,
    Int,
    OneOf,
)
from dvrenyi_plugin._internal.ranges import check_interval, check_positive, check_size
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_callable, check_samples
from dvrenyi_plugin.flows.grid import PERIODIC, REFLECTING, Axis
from dvrenyi_plugin.mechanisms.exponential.loss_bounds import check_bounds
from dvrenyi_plugin.mechanisms.simple.additive_noise import clip_rows

FloatArray = NDArray[np.float64]

_RECORDS_PER_BLOCK = 512


class Loss(Protocol):
    """A loss over a torus or a box; see the module's docstring."""

    @property
    def dimension(self) -> int:
        """Number of coordinates of a point, 1 to 3."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest value that any dataset can give."""

    @property
    def oscillation(self) -> float:
        """Bound on max - min over the points, for any dataset."""

    @property
    def sensitivity(self) -> float:
        """Bound on the oscillation of the difference between neighbouring datasets."""

    @property
    def slope(self) -> float | None:
        """Bound on the derivative along any coordinate, for any dataset; None when unknown."""

    @property
    def curvature(self) -> float | None:
        """Bound on the second derivative along any direction, for any dataset; None when unknown or
        infinite.
        """

    def axis(self, cells: int) -> Axis:
        """Returns one of the domain's axes (all are alike) with `cells` cells."""

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        """Returns the loss at points of shape (m, dimension), shape (m,)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CircularMeanLoss(CheckedSettings):
    """Mean of sum_k (1 - cos(theta_k - y_k)) over records that are angles: its minimiser is the
    circular mean. A dataset is an array of angles in radians, shape (n, dimension) or (n,) for one.

    Attributes:
      num_records: public number of records that the sum is divided by; datasets may be smaller, not
        larger.
      dimension: angles in a record, 1 to 3.
    """

    num_records: Count
    dimension: Annotated[int, Int(at_least=1, at_most=3)] = 1

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, 2.0 * self.dimension)

    @property
    def oscillation(self) -> float:
        return 2.0 * self.dimension

    @property
    def sensitivity(self) -> float:
        # cos(theta - y') - cos(theta - y) has amplitude 2 |sin((y - y') / 2)| <= 2, so oscillation
        # 4.
        return 4.0 * self.dimension / self.num_records

    @property
    def slope(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        return 1.0

    def axis(self, cells: int) -> Axis:
        return Axis(-math.pi, math.pi, cells, PERIODIC)

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        records = _records(dataset, self.num_records, self.dimension)
        cosines, sines = np.cos(records).sum(axis=0), np.sin(records).sum(axis=0)
        points = _points(points, self.dimension)
        match = np.cos(points) @ cosines + np.sin(points) @ sines
        return np.asarray((len(records) * self.dimension - match) / self.num_records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanLoss(CheckedSettings):
    """Mean squared distance to the records, in a box: its minimiser is the mean of the clipped
    records. A dataset is an array of shape (n, dimension), or (n,) for one dimension.

    Attributes:
      num_records: public number of records that the sum is divided by; datasets may be smaller, not
        larger.
      low: lower end of every coordinate.
      high: upper end of every coordinate.
      dimension: 1 to 3.
    """

    num_records: Count
    low: Finite = 0.0
    high: Finite = 1.0
    dimension: Annotated[int, Int(at_least=1, at_most=3)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("low and high", self.low, self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, self.oscillation)

    @property
    def oscillation(self) -> float:
        side = self.high - self.low
        return self.dimension * side * side

    @property
    def sensitivity(self) -> float:
        # |theta - y|^2 - |theta - y'|^2 is linear in theta with slopes 2 |y_k - y_k'| <= 2 (high -
        # low).
        return 2.0 * self.oscillation / self.num_records

    @property
    def slope(self) -> float:
        return 2.0 * (self.high - self.low)

    @property
    def curvature(self) -> float:
        return 2.0

    def axis(self, cells: int) -> Axis:
        return Axis(self.low, self.high, cells, REFLECTING)

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        records = _records(dataset, self.num_records, self.dimension)
        # Centred at the box: no digits are lost for a box far from zero.
        centre = (self.low + self.high) / 2.0
        records = np.clip(records, self.low, self.high) - centre
        offsets = _points(points, self.dimension) - centre
        total = (
            len(records) * np.sum(offsets**2, axis=1)
            - 2.0 * offsets @ records.sum(axis=0)
            + np.sum(records**2)
        )
        return np.asarray(np.maximum(total, 0.0) / self.num_records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileLoss(CheckedSettings):
    """Mean pinball loss on an interval: its minimiser is a quantile of the clipped records. A
    dataset is an array of shape (n,) or (n, 1).

    Attributes:
      num_records: public number of records that the sum is divided by; datasets may be smaller, not
        larger.
      low: lower end of the interval.
      high: upper end of the interval.
      quantile: in (0, 1); 0.5 is the median.
    """

    num_records: Count
    low: Finite = 0.0
    high: Finite = 1.0
    quantile: Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("low and high", self.low, self.high)

    @property
    def dimension(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, self.oscillation)

    @property
    def oscillation(self) -> float:
        return max(self.quantile, 1.0 - self.quantile) * (self.high - self.low)

    @property
    def sensitivity(self) -> float:
        # The slopes of two pinball losses differ by 1 between the two records and by 0 elsewhere.
        return (self.high - self.low) / self.num_records

    @property
    def slope(self) -> float:
        return max(self.quantile, 1.0 - self.quantile)

    @property
    def curvature(self) -> None:
        return None

    def axis(self, cells: int) -> Axis:
        return Axis(self.low, self.high, cells, REFLECTING)

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        records = _records(dataset, self.num_records, 1)[:, 0]
        records = np.sort(np.clip(records, self.low, self.high) - self.low)
        theta = _points(points, 1)[:, 0] - self.low
        sums = np.concatenate([[0.0], np.cumsum(records)])
        below = np.searchsorted(records, theta)
        under = theta * below - sums[below]
        over = sums[-1] - sums[below] - theta * (len(records) - below)
        total = (1.0 - self.quantile) * under + self.quantile * over
        return np.asarray(np.maximum(total, 0.0) / self.num_records)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogisticLoss(CheckedSettings):
    """Mean logistic loss log(1 + exp(-y x . theta)) over the box [-radius, radius]^dimension.

    A dataset is an array of shape (n, dimension + 1) with the label in the last column, or a pair
    (features, labels). Labels above 0 count as +1, the others as -1. Features are scaled down to
    Euclidean norm 1.

    Attributes:
      num_records: public number of records that the sum is divided by; datasets may be smaller, not
        larger.
      dimension: features in a record, 1 to 3.
      radius: half the side of the box, > 0.
    """

    num_records: Count
    dimension: Annotated[int, Int(at_least=1, at_most=3)] = 2
    radius: Annotated[float, Allowed(check_positive)] = 3.0

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, float(np.logaddexp(0.0, self.oscillation)))

    @property
    def oscillation(self) -> float:
        # |x . theta| <= r = radius sqrt(d), and log(1 + e^r) - log(1 + e^-r) = r.
        return self.radius * math.sqrt(self.dimension)

    @property
    def sensitivity(self) -> float:
        return 2.0 * self.oscillation / self.num_records

    @property
    def slope(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        # The second derivative of log(1 + e^-m) is at most 1/4, and |x| <= 1.
        return 0.25

    def axis(self, cells: int) -> Axis:
        return Axis(-self.radius, self.radius, cells, REFLECTING)

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        if isinstance(dataset, tuple):
            if len(dataset) != 2:
                raise ValueError(
                    f"dataset must be records or a pair (features, labels), got {len(dataset)}"
                    f" parts"
                )
            features, labels = (np.asarray(part) for part in dataset)
            if len(features) != len(labels):
                raise ValueError(
                    f"dataset must have a label for every row of features, got {len(labels)} labels"
                    f" for {len(features)} rows"
                )
            dataset = np.column_stack([features, labels])
        records = _records(dataset, self.num_records, self.dimension + 1)
        features = clip_rows(records[:, :-1], clip_norm=1.0, norm_order=2)
        signed = features * np.where(records[:, -1:] > 0.0, 1.0, -1.0)
        points = _points(points, self.dimension)
        total = np.zeros(len(points))
        for first in range(0, len(signed), _RECORDS_PER_BLOCK):
            margins = points @ signed[first : first + _RECORDS_PER_BLOCK].T
            total += np.logaddexp(0.0, -margins).sum(axis=1)
        return total / self.num_records


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallableLoss(CheckedSettings):
    """Any loss with bounds and a sensitivity that its author vouches for.

    The bounds are checked wherever the loss is evaluated. The sensitivity cannot be: if it is
    wrong, so is every claim that rests on it.

    Attributes:
      function: maps (points of shape (m, dimension), dataset) to values of shape (m,).
      bounds: (low, high), holding for every dataset.
      sensitivity: bound on max - min over points of the difference between neighbouring datasets'
        losses, >= 0.
      dimension: 1 to 3.
      low: lower end of every coordinate.
      high: upper end of every coordinate.
      boundary: "periodic" (a torus) or "reflecting" (a box).
      slope: bound on the derivative along any coordinate for every dataset, > 0; None when unknown:
        then a grid too coarse is found out only when a dataset shows it.
      curvature: bound on the second derivative along any direction for every dataset, > 0; None
        when unknown or infinite (a loss with kinks).
    """

    function: Annotated[Callable[[FloatArray, Any], Any], Allowed(check_callable)]
    bounds: Annotated[tuple[float, float], Allowed(check_bounds)]
    sensitivity: Annotated[float, Allowed(check_size)]
    dimension: Annotated[int, Int(at_least=1, at_most=3)] = 1
    low: Finite = -math.pi
    high: Finite = math.pi
    boundary: Annotated[str, OneOf((PERIODIC, REFLECTING))] = PERIODIC
    slope: Annotated[float, Allowed(check_positive)] | None = None
    curvature: Annotated[float, Allowed(check_positive)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("low and high", self.low, self.high)

    @property
    def oscillation(self) -> float:
        return self.bounds[1] - self.bounds[0]

    def axis(self, cells: int) -> Axis:
        return Axis(self.low, self.high, cells, self.boundary)

    def __call__(self, points: FloatArray, dataset: Any) -> FloatArray:
        points = _points(points, self.dimension)
        values = call_user_code("function", self.function, points, dataset)
        return user_numbers("function", values, (len(points),), finite=False)


def _points(points: Any, dimension: int) -> FloatArray:
    array = check_samples("points", points, min_samples=0)
    if array.shape[1] != dimension:
        raise ValueError(f"points must have {dimension} columns, got shape {np.shape(points)}")
    return array


def _records(dataset: Any, num_records: int, columns: int) -> FloatArray:
    records = check_samples("dataset", dataset, min_samples=0)
    if records.shape[1] != columns:
        raise ValueError(f"dataset must have {columns} columns, got shape {np.shape(dataset)}")
    if len(records) > num_records:
        raise ValueError(
            f"dataset must have at most num_records = {num_records} records, got {len(records)}"
        )
    return records


__all__ = [
    "CallableLoss",
    "CircularMeanLoss",
    "LogisticLoss",
    "Loss",
    "MeanLoss",
    "QuantileLoss",
]
