"""Estimators of log dQ/dP from vectors: a direction first, then scalar families on the projection.

In many columns a fit takes its own samples farther apart than it does others. So the projection of
each sample is that of a direction fitted without it (cross-fitting, as in Chernozhukov et al.,
2018): scalar families learn from these how much the direction tells, and bets are planned on them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Switch
from dvrenyi_plugin.critics.log_ratio import (
    Array,
    FittedFamily,
    LogRatioFamily,
    Past,
    PooledSamples,
    average_families,
    pool_samples,
)
from dvrenyi_plugin.critics.simple_families import (
    BoundedLogRatio,
    PolynomialLogRatio,
    SplineLogRatio,
    standardiser_of,
)

# A covariance of more columns is taken as diagonal, so that a refit stays below seconds.
_MAX_COVARIANCE = 512
_FOLDS = 5
_DIRECTIONS = ("discriminant", "sparse")
# Families of many coefficients are offered to as many columns as they can pay with.
_MAX_QUADRATIC = 32
_MAX_POLYNOMIAL = 50
_MAX_PRODUCTS = 12
_PROJECTED_FAMILIES: tuple[LogRatioFamily, ...] = (
    PolynomialLogRatio(1),
    PolynomialLogRatio(2),
    SplineLogRatio(),
    BoundedLogRatio(1.0),
)


@dataclasses.dataclass(frozen=True)
class DirectionLogRatio(CheckedSettings):
    """Scalar families on the projection to one direction.

    Attributes:
      direction: "discriminant" for Fisher's, with the covariance shrunk as by Ledoit and Wolf
        (2004), "sparse" for the difference of means with what noise explains cut off.
      quadratic: whether the columns are joined by all products of two of them.
      folds: samples are projected by a direction that was fitted without their fold, >= 2.
    """

    direction: Annotated[str, OneOf(_DIRECTIONS)] = "discriminant"
    quadratic: Switch = False
    folds: Annotated[int, Int(at_least=2)] = _FOLDS

    @property
    def name(self) -> str:
        return f"{self.direction} direction" + (" of products" if self.quadratic else "")

    def fit(self, data: PooledSamples) -> FittedFamily:
        standardise = standardiser_of(data)

        def features(points: Array) -> Array:
            z = standardise(points)
            if not self.quadratic:
                return z
            i, j = np.triu_indices(z.shape[1])
            return np.concatenate([z, z[:, i] * z[:, j]], axis=1)

        raw = features(data.points)
        centre, scale = raw.mean(axis=0), raw.std(axis=0)
        scale = np.where(scale > 0.0, scale, 1.0)
        columns = (raw - centre) / scale
        is_q = data.weights_q > 0.0
        fold = np.empty(len(columns), dtype=np.intp)
        for side in (is_q, ~is_q):
            fold[side] = np.arange(side.sum()) % self.folds
        projected = np.empty(len(columns))
        for left_out in range(self.folds):
            rest = fold != left_out
            projected[~rest] = columns[~rest] @ self._direction(columns[rest], is_q[rest])
        whole = self._direction(columns, is_q)

        def project(points: Array) -> Array:
            return np.asarray(((features(points) - centre) / scale) @ whole)

        return _fit_scalars(data, projected, project)

    def _direction(self, columns: Array, is_q: NDArray[np.bool_]) -> Array:
        """Returns the unit vector, shape (d,), along which the laws differ; 0 if none is seen."""
        q, p = columns[is_q], columns[~is_q]
        if not len(q) or not len(p):
            return np.zeros(columns.shape[1])
        difference = q.mean(axis=0) - p.mean(axis=0)
        residuals = np.concatenate([q - q.mean(axis=0), p - p.mean(axis=0)])
        if self.direction == "sparse":
            difference = _thresholded(difference, residuals, 1.0 / len(q) + 1.0 / len(p))
        elif columns.shape[1] <= _MAX_COVARIANCE:
            difference = np.linalg.solve(_shrunk_covariance(residuals), difference)
        length = float(np.linalg.norm(difference))
        return np.asarray(difference / length if length > 0.0 else difference)


@dataclasses.dataclass(frozen=True)
class RadialLogRatio(CheckedSettings):
    """Scalar families on the distance from the centre, for laws that differ in size."""

    @property
    def name(self) -> str:
        return "distance from the centre"

    def fit(self, data: PooledSamples) -> FittedFamily:
        standardise = standardiser_of(data)

        def project(points: Array) -> Array:
            return np.asarray(np.sqrt(np.square(standardise(points)).sum(axis=1)))

        return _fit_scalars(data, project(data.points), project)


def vector_families(num_columns: int) -> tuple[LogRatioFamily, ...]:
    """Returns the families that suit vectors of so many columns, >= 2."""
    families: list[LogRatioFamily] = [
        DirectionLogRatio("discriminant"),
        DirectionLogRatio("sparse"),
        RadialLogRatio(),
    ]
    if num_columns <= _MAX_QUADRATIC:
        families.append(DirectionLogRatio("sparse", quadratic=True))
    if num_columns <= _MAX_POLYNOMIAL:
        families.append(PolynomialLogRatio(1, ridge=1.0))
    if num_columns <= _MAX_PRODUCTS:
        families.append(PolynomialLogRatio(2, ridge=3.0))
    return tuple(families)


def _fit_scalars(
    data: PooledSamples, projected: Array, project: Callable[[Array], Array]
) -> FittedFamily:
    """Returns the average of scalar families on projections.

    Args:
      data: samples, one a point.
      projected: shape (k,), each sample's projection to learn from.
      project: (n, d) -> (n,), that of other samples.
    """
    is_q = data.weights_q > 0.0
    scalars = pool_samples(projected[is_q, np.newaxis], projected[~is_q, np.newaxis])
    fit = average_families(scalars, _PROJECTED_FAMILIES)
    past = Past.same(fit.log_ratio(projected[:, np.newaxis]))
    # As many parameters as give the scalar fit's own score.
    num_parameters = 2.0 * (fit.score - data.loss(past)) / math.log(data.total)
    return FittedFamily(
        lambda points: fit.log_ratio(project(points)[:, np.newaxis]),
        past,
        num_parameters,
        log_prior=0.0,
    )


def _thresholded(difference: Array, residuals: Array, inverse_count: float) -> Array:
    """Returns how many standard errors each column's means differ by, less half of what the largest
    of so many differences of noise would be; unthresholded when no column has more."""
    errors = np.sqrt(np.square(residuals).mean(axis=0) * inverse_count)
    scores = difference / np.where(errors > 0.0, errors, 1.0)
    least = 0.5 * math.sqrt(2.0 * math.log(max(2, scores.size)))
    kept = np.sign(scores) * np.maximum(np.abs(scores) - least, 0.0)
    return np.asarray(kept if kept.any() else scores)


def _shrunk_covariance(residuals: Array) -> Array:
    """Returns the covariance of centred rows, shape (n, d), shrunk to a multiple of the identity as
    much as its own sampling error asks for (Ledoit and Wolf 2004)."""
    rows, columns = residuals.shape
    covariance = residuals.T @ residuals / rows
    mean = float(np.trace(covariance)) / columns
    if mean <= 0.0:
        return np.eye(columns)
    spread = float(np.square(covariance - mean * np.eye(columns)).sum())
    fourth = float(np.square(np.square(residuals).sum(axis=1)).mean())
    error = max(0.0, (fourth - float(np.square(covariance).sum())) / rows)
    # Never quite singular.
    share = max(1e-6, min(1.0, error / spread)) if spread > 0.0 else 1.0
    return np.asarray((1.0 - share) * covariance + share * mean * np.eye(columns))


__all__ = ["DirectionLogRatio", "RadialLogRatio", "vector_families"]
