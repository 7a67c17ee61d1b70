"""Families of estimates of log dQ/dP from scalars (and, in few columns, from vectors)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, Int, OneOf, Positive
from dvrenyi_plugin.critics.log_ratio import (
    Array,
    FittedFamily,
    LogRatioFamily,
    Past,
    PooledSamples,
)
from dvrenyi_plugin.critics.logistic_fit import fit_logistic
from dvrenyi_plugin.critics.standardiser import Standardiser, weighted_quantile

# Standardised inputs are clipped here, so that one outlier cannot move the fit or be extrapolated
# to.
_INPUT_CLIP = 6.0
# Estimated ratios are kept inside this range; beyond it a sample decides by itself.
_LOG_RATIO_CLIP = 50.0
_SHAPES = ("saturated", "redescending", "even")
# All families but those of Gaussian pairs must explain the samples e times better.
_LOG_PRIOR = -1.0
# Samples a distinct value, on average, for values to be told apart one by one.
_SAMPLES_OF_A_VALUE = 4.0
# Standard deviations of the logs of ratios on few values, from which the samples choose.
_DEVIATIONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_NEWTON_STEPS = 10


@dataclasses.dataclass(frozen=True)
class PolynomialLogRatio(CheckedSettings):
    """Ridge logistic regression on powers of each standardised coordinate (and, from degree 2 and
    up to 12 dimensions, products of pairs). Degree 1 contains every Gaussian shift, degree 2 every
    Gaussian pair.

    Attributes:
      degree: >= 1.
      ridge: penalty on squared coefficients, in units of one sample's log-likelihood, > 0.
    """

    degree: Count = 1
    ridge: Positive = 0.01

    @property
    def name(self) -> str:
        return f"polynomial of degree {self.degree}"

    def fit(self, data: PooledSamples) -> FittedFamily:
        standardise = standardiser_of(data)

        def features(points: Array) -> Array:
            z = standardise(points)
            columns = [z**power for power in range(1, self.degree + 1)]
            if self.degree >= 2 and 1 < z.shape[1] <= 12:
                i, j = np.triu_indices(z.shape[1], k=1)
                columns.append(z[:, i] * z[:, j])
            return np.concatenate(columns, axis=1)

        # The families of Gaussian pairs come first: they are what losses of models look like.
        log_prior = 0.0 if self.degree <= 2 else _LOG_PRIOR
        return _fit_logistic(features, data, self.ridge, log_prior)


@dataclasses.dataclass(frozen=True)
class BoundedLogRatio(CheckedSettings):
    """Ridge logistic regression on one bounded score of one coordinate z: two parameters with the
    intercept, as many as a straight line.

    Attributes:
      width: of the score, in units of the standardised coordinate, > 0.
      shape: "saturated" for tanh(z / width), near the truth for Laplace laws; "redescending" for
        (z / width) / (1 + (z / width)^2), for heavier tails; "even" for tanh(|z| / width), for laws
        that differ in scale.
      ridge: penalty on squared coefficients, > 0.
    """

    width: Positive = 1.0
    shape: Annotated[str, OneOf(_SHAPES)] = "saturated"
    ridge: Positive = 0.01

    @property
    def name(self) -> str:
        return f"{self.shape} score of width {self.width:g}"

    def fit(self, data: PooledSamples) -> FittedFamily:
        standardise = standardiser_of(data)

        def features(points: Array) -> Array:
            z = standardise(points)[:, :1] / self.width
            if self.shape == "redescending":
                return np.asarray(z / (1.0 + z * z))
            return np.tanh(np.abs(z) if self.shape == "even" else z)

        return _fit_logistic(features, data, self.ridge)


@dataclasses.dataclass(frozen=True)
class SplineLogRatio(CheckedSettings):
    """Ridge logistic regression on a piecewise linear function of one coordinate, knots at
    quantiles.

    Attributes:
      num_knots: inner knots, >= 1.
      ridge: penalty on squared coefficients, > 0.
    """

    num_knots: Count = 7
    ridge: Positive = 0.3

    @property
    def name(self) -> str:
        return f"linear spline with {self.num_knots} knots"

    def fit(self, data: PooledSamples) -> FittedFamily:
        standardise = standardiser_of(data)
        z = standardise(data.points)[:, 0]
        levels = np.arange(1, self.num_knots + 1) / (self.num_knots + 1)
        knots = np.unique(weighted_quantile(z, data.weights_q + data.weights_p, levels))

        def features(points: Array) -> Array:
            column = standardise(points)[:, :1]
            return np.concatenate([column, np.maximum(column - knots, 0.0)], axis=1)

        return _fit_logistic(features, data, self.ridge)


@dataclasses.dataclass(frozen=True)
class MonotoneLogRatio(CheckedSettings):
    """Isotonic regression of the label on one coordinate, in the direction in which the means
    differ.

    Attributes:
      prior_count: samples of each law added to every block, > 0, so that no ratio is infinite.
    """

    prior_count: Positive = 0.5

    @property
    def name(self) -> str:
        return "monotone"

    def fit(self, data: PooledSamples) -> FittedFamily:
        order = np.argsort(data.points[:, 0])
        x = data.points[order, 0]
        q, p = data.weights_q[order], data.weights_p[order]
        with np.errstate(over="ignore", invalid="ignore"):  # a wrong direction costs a fit
            increasing = bool(q @ x / q.sum() >= p @ x / p.sum())
        shares = isotonic_regression(q / (q + p), weights=q + p, increasing=increasing)
        starts = np.asarray(shares.blocks, dtype=np.int64)[:-1]
        q_sums, p_sums = np.add.reduceat(q, starts), np.add.reduceat(p, starts)
        heights = _heights(q_sums, p_sums, self.prior_count, data.log_odds_offset)
        return _step_function(data, x[starts], heights, float(heights.size))


@dataclasses.dataclass(frozen=True)
class HistogramLogRatio(CheckedSettings):
    """A step function of one coordinate: one cell a value when there are few, with heights that are
    shrunk as much as the samples ask for; else equal-mass cells.

    Attributes:
      max_cells: >= 2; of equal mass there are fewer, so that a cell holds about 20 samples.
      prior_count: samples of each law added to every cell of equal mass, > 0.
    """

    max_cells: Annotated[int, Int(at_least=2)] = 32
    prior_count: Positive = 0.5

    @property
    def name(self) -> str:
        return f"histogram of at most {self.max_cells} cells"

    def fit(self, data: PooledSamples) -> FittedFamily:
        order = np.argsort(data.points[:, 0])
        x = data.points[order, 0]
        q, p = data.weights_q[order], data.weights_p[order]
        if x.size <= min(self.max_cells, data.total / _SAMPLES_OF_A_VALUE):
            return _fit_values(data, order)
        total = q + p
        cells = int(min(self.max_cells, max(2.0, total.sum() // 20.0)))
        before = np.cumsum(total) - total
        starts = np.unique(np.searchsorted(before, np.arange(cells) * total.sum() / cells))
        starts = starts[starts < x.size]
        starts[0] = 0
        q_sums, p_sums = np.add.reduceat(q, starts), np.add.reduceat(p, starts)
        heights = _heights(q_sums, p_sums, self.prior_count, data.log_odds_offset)
        return _step_function(data, x[starts], heights, float(heights.size))


SCALAR_FAMILIES: tuple[LogRatioFamily, ...] = (
    PolynomialLogRatio(1),
    PolynomialLogRatio(2),
    PolynomialLogRatio(3),
    BoundedLogRatio(0.25),
    BoundedLogRatio(1.0),
    BoundedLogRatio(1.2, "redescending"),
    BoundedLogRatio(1.0, "even"),
    SplineLogRatio(),
    MonotoneLogRatio(),
    HistogramLogRatio(),
    # For laws on some hundred values; the criterion below refuses it until there are samples
    # enough.
    HistogramLogRatio(max_cells=256),
)


def standardiser_of(data: PooledSamples) -> Standardiser:
    """Returns the standardiser that the families here apply to each column."""
    return Standardiser.of_weighted(data.points, data.weights_q + data.weights_p, _INPUT_CLIP)


def _step_function(
    data: PooledSamples,
    left_edges: Array,
    heights: Array,
    num_parameters: float,
) -> FittedFamily:
    """Returns the step function with these heights right of these edges, shape (cells,), the first
    height left of all."""

    def log_ratio(points: Array) -> Array:
        cell = np.searchsorted(left_edges, points[:, 0], side="right") - 1
        return np.asarray(heights[np.maximum(cell, 0)])

    past = Past.same(log_ratio(data.points))
    return FittedFamily(log_ratio, past, num_parameters, _LOG_PRIOR)


def _fit_values(data: PooledSamples, order: NDArray[np.intp]) -> FittedFamily:
    """Returns one shrunken height for each value; bets on a sample are planned on the height that
    the other samples give its value.

    Args:
      data: samples on few values.
      order: in which the values increase.
    """
    q, p, offset = data.weights_q[order], data.weights_p[order], data.log_odds_offset
    heights, deviation, evidence = _shrunken_heights(q, p, offset)
    back = np.argsort(order)
    past = Past(
        _most_likely_heights(np.maximum(q - 1.0, 0.0), p, offset, deviation)[back],
        _most_likely_heights(q, np.maximum(p - 1.0, 0.0), offset, deviation)[back],
    )
    # As many parameters as give the evidence, and one for the deviation of the heights.
    num_parameters = 2.0 * (evidence - data.loss(past)) / math.log(data.total) + 1.0
    fitted = _step_function(data, data.points[order, 0], heights, num_parameters)
    return dataclasses.replace(fitted, past=past)


def _heights(q: Array, p: Array, prior: float, offset: float) -> Array:
    """Returns log dQ/dP of cells with these counts, shape (cells,)."""
    # The prior is split in proportion to the totals, so that an empty cell has log ratio 0.
    share = 1.0 / (1.0 + math.exp(-offset))
    heights = np.log(q + 2.0 * prior * share) - np.log(p + 2.0 * prior * (1.0 - share))
    return np.asarray(heights - offset)


def _most_likely_heights(q: Array, p: Array, offset: float, deviation: float) -> Array:
    """Returns the most likely log dQ/dP of cells with these counts, shape (cells,), normal a priori
    with this standard deviation."""
    heights = np.zeros(q.size)
    for _ in range(_NEWTON_STEPS):
        share = expit(offset + heights)
        curvature = (q + p) * share * (1.0 - share) + deviation**-2.0
        heights -= ((q + p) * share - q + heights * deviation**-2.0) / curvature
    return heights


def _shrunken_heights(q: Array, p: Array, offset: float) -> tuple[Array, float, float]:
    """Returns log dQ/dP of cells with these counts, shape (cells,), normal a priori with the
    standard deviation of greatest evidence; that deviation, and minus the log of its evidence, less
    what no choice of heights changes."""
    best = np.zeros(q.size), 0.0, math.inf
    for deviation in _DEVIATIONS:
        heights = _most_likely_heights(q, p, offset, deviation)
        log_odds = offset + heights
        share = expit(log_odds)
        information = (q + p) * share * (1.0 - share) * deviation**2.0
        loss = q @ np.logaddexp(0.0, -log_odds) + p @ np.logaddexp(0.0, log_odds)
        evidence = float(
            loss + 0.5 * np.sum(np.square(heights / deviation) + np.log1p(information))
        )
        if evidence < best[2]:
            best = heights, deviation, evidence
    return best


def _fit_logistic(
    features: Callable[[Array], Array],
    data: PooledSamples,
    ridge: float,
    log_prior: float = _LOG_PRIOR,
) -> FittedFamily:
    """Returns the ridge logistic fit, with its effective number of parameters."""
    design = np.concatenate([np.ones((len(data.points), 1)), features(data.points)], axis=1)
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-9  # the intercept is free; the jitter keeps a constant column invertible
    offset = data.log_odds_offset
    # The odds of the class counts are the right start when the laws are equal.
    start = np.zeros(design.shape[1])
    start[0] = offset
    fitted = fit_logistic(design, data.weights_q, data.weights_p, penalty, start)
    intercept, slopes = fitted.coefficients[0], fitted.coefficients[1:]

    def from_features(columns: Array) -> Array:
        values = intercept + columns @ slopes - offset
        return np.asarray(np.clip(values, -_LOG_RATIO_CLIP, _LOG_RATIO_CLIP))

    return FittedFamily(
        lambda points: from_features(features(points)),
        Past.same(from_features(design[:, 1:])),
        fitted.num_effective,
        log_prior,
    )


__all__ = [
    "SCALAR_FAMILIES",
    "BoundedLogRatio",
    "HistogramLogRatio",
    "MonotoneLogRatio",
    "PolynomialLogRatio",
    "SplineLogRatio",
    "standardiser_of",
]
