"""Estimators of log dQ/dP from samples, for the e-process to bet with.

Nothing here affects validity: the e-process is valid with any estimate that does not look ahead. A
better estimate earns more. Every family returns values on the scale of log dQ/dP (calibrated, not
just a score).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, Int, Positive
from dvrenyi_plugin.critics.logistic_fit import fit_logistic
from dvrenyi_plugin.critics.standardiser import Standardiser, weighted_quantile

Array = NDArray[np.float64]
LogRatio = Callable[[Array], Array]

# One-dimensional samples beyond this many are pooled into as many equal-mass cells before fitting:
# the fits then cost the same at any sample size, and the pooling error is far below the sampling
# error.
_MAX_POINTS = 1024
# Samples a side used in higher dimension.
_MAX_SAMPLES = 20_000
# Standardised inputs are clipped here, so that one outlier cannot move the fit or be extrapolated
# to.
_INPUT_CLIP = 6.0
# Estimated ratios are kept inside this range; beyond it a sample decides by itself.
_LOG_RATIO_CLIP = 50.0


@dataclasses.dataclass(frozen=True)
class PooledSamples:
    """Points with the number of samples of each law at them.

    Attributes:
      points: shape (k, d).
      weights_q: shape (k,), samples of Q at each point.
      weights_p: shape (k,), samples of P at each point.
    """

    points: Array
    weights_q: Array
    weights_p: Array

    @property
    def log_odds_offset(self) -> float:
        """log(number of Q samples / number of P samples), to be taken off a classifier's log
        odds."""
        return math.log(self.weights_q.sum() / self.weights_p.sum())


class LogRatioFamily(Protocol):
    """A way to estimate log dQ/dP."""

    @property
    def name(self) -> str:
        """Short name for reports."""

    def fit(self, data: PooledSamples) -> tuple[LogRatio, float]:
        """Returns the fitted log ratio, (n, d) -> (n,), and its number of free parameters."""


def pool_samples(samples_q: Array, samples_p: Array) -> PooledSamples:
    """Returns the pooled samples, shapes (n, d) and (m, d), with their counts.

    One-dimensional samples keep one point a distinct value while there are at most 1,024; else they
    are pooled into equal-mass cells that are represented by their mean.
    """
    if samples_q.shape[1] == 1:
        return _pool_scalars(samples_q[:, 0], samples_p[:, 0])
    q, p = samples_q[-_MAX_SAMPLES:], samples_p[-_MAX_SAMPLES:]
    is_q = np.concatenate([np.ones(len(q)), np.zeros(len(p))])
    return PooledSamples(np.concatenate([q, p]), is_q, 1.0 - is_q)


def _pool_scalars(q: Array, p: Array) -> PooledSamples:
    pooled = np.sort(np.concatenate([q, p]))
    if pooled.size > _MAX_POINTS:
        edges = np.unique(pooled[np.linspace(0, pooled.size - 1, _MAX_POINTS + 1).astype(int)[1:]])
        cell = np.searchsorted(edges, pooled)
        counts = np.bincount(cell, minlength=edges.size)
        with np.errstate(over="ignore"):
            sums = np.bincount(cell, weights=pooled, minlength=edges.size)
        points = sums / np.maximum(counts, 1)
        points = np.where(np.isfinite(points), points, edges)
    else:
        edges = points = np.unique(pooled)
    return PooledSamples(
        points[:, np.newaxis],
        np.bincount(np.searchsorted(edges, q), minlength=edges.size).astype(np.float64),
        np.bincount(np.searchsorted(edges, p), minlength=edges.size).astype(np.float64),
    )


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

    def fit(self, data: PooledSamples) -> tuple[LogRatio, float]:
        standardise = _standardiser(data)

        def features(points: Array) -> Array:
            z = standardise(points)
            columns = [z**power for power in range(1, self.degree + 1)]
            if self.degree >= 2 and 1 < z.shape[1] <= 12:
                i, j = np.triu_indices(z.shape[1], k=1)
                columns.append(z[:, i] * z[:, j])
            return np.concatenate(columns, axis=1)

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

    def fit(self, data: PooledSamples) -> tuple[LogRatio, float]:
        standardise = _standardiser(data)
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

    def fit(self, data: PooledSamples) -> tuple[LogRatio, float]:
        order = np.argsort(data.points[:, 0])
        x = data.points[order, 0]
        q, p = data.weights_q[order], data.weights_p[order]
        with np.errstate(over="ignore", invalid="ignore"):  # a wrong direction costs a fit
            increasing = bool(q @ x / q.sum() >= p @ x / p.sum())
        shares = isotonic_regression(q / (q + p), weights=q + p, increasing=increasing)
        starts = np.asarray(shares.blocks, dtype=np.int64)[:-1]
        return _step_function(x[starts], q, p, starts, self.prior_count, data.log_odds_offset)


@dataclasses.dataclass(frozen=True)
class HistogramLogRatio(CheckedSettings):
    """A step function of one coordinate on equal-mass cells, or one cell a value when there are
    few.

    Attributes:
      max_cells: >= 2; fewer are used so that a cell holds about 20 samples.
      prior_count: samples of each law added to every cell, > 0.
    """

    max_cells: Annotated[int, Int(at_least=2)] = 32
    prior_count: Positive = 0.5

    @property
    def name(self) -> str:
        return f"histogram of at most {self.max_cells} cells"

    def fit(self, data: PooledSamples) -> tuple[LogRatio, float]:
        order = np.argsort(data.points[:, 0])
        x = data.points[order, 0]
        q, p = data.weights_q[order], data.weights_p[order]
        total = q + p
        if x.size <= self.max_cells:
            starts = np.arange(x.size)
        else:
            cells = int(min(self.max_cells, max(2.0, total.sum() // 20.0)))
            before = np.cumsum(total) - total
            starts = np.unique(np.searchsorted(before, np.arange(cells) * total.sum() / cells))
            starts = starts[starts < x.size]
            starts[0] = 0
        return _step_function(x[starts], q, p, starts, self.prior_count, data.log_odds_offset)


SCALAR_FAMILIES: tuple[LogRatioFamily, ...] = (
    PolynomialLogRatio(1),
    PolynomialLogRatio(2),
    PolynomialLogRatio(3),
    SplineLogRatio(),
    MonotoneLogRatio(),
    HistogramLogRatio(),
    # For laws on some hundred values; the criterion below refuses it until there are samples
    # enough.
    HistogramLogRatio(max_cells=256),
)
VECTOR_FAMILIES: tuple[LogRatioFamily, ...] = (
    PolynomialLogRatio(1, ridge=1.0),
    PolynomialLogRatio(2, ridge=3.0),
)


def fit_log_ratio(
    samples_q: Array, samples_p: Array, families: Sequence[LogRatioFamily] | None = None
) -> tuple[LogRatio, str]:
    """Returns the fitted log dQ/dP of the family with the best Bayesian information criterion, and
    its name.

    Args:
      samples_q: shape (n, d), n >= 1, samples of the numerator law.
      samples_p: shape (m, d), m >= 1, samples of the other law.
      families: candidates; by default those suited to the dimension.
    """
    data = pool_samples(samples_q, samples_p)
    if families is None:
        families = SCALAR_FAMILIES if samples_q.shape[1] == 1 else VECTOR_FAMILIES
    total = float(data.weights_q.sum() + data.weights_p.sum())
    best: tuple[float, LogRatio, str] | None = None
    for family in families:
        log_ratio, parameters = family.fit(data)
        log_odds = log_ratio(data.points) + data.log_odds_offset
        loss = float(
            data.weights_q @ np.logaddexp(0.0, -log_odds)
            + data.weights_p @ np.logaddexp(0.0, log_odds)
        )
        score = loss + 0.5 * parameters * math.log(total)
        if best is None or score < best[0]:
            best = score, log_ratio, family.name
    if best is None:
        raise ValueError("families must hold at least one family, got none")
    return best[1], best[2]


def _standardiser(data: PooledSamples) -> Standardiser:
    return Standardiser.of_weighted(data.points, data.weights_q + data.weights_p, _INPUT_CLIP)


def _step_function(
    left_edges: Array, q: Array, p: Array, starts: NDArray[np.int64], prior: float, offset: float
) -> tuple[LogRatio, float]:
    q_sums, p_sums = np.add.reduceat(q, starts), np.add.reduceat(p, starts)
    # The prior is split in proportion to the totals, so that an empty cell has log ratio 0.
    share = 1.0 / (1.0 + math.exp(-offset))
    heights = np.log(q_sums + 2.0 * prior * share) - np.log(p_sums + 2.0 * prior * (1.0 - share))
    heights -= offset

    def log_ratio(points: Array) -> Array:
        cell = np.searchsorted(left_edges, points[:, 0], side="right") - 1
        return np.asarray(heights[np.maximum(cell, 0)])

    return log_ratio, float(heights.size)


def _fit_logistic(
    features: Callable[[Array], Array], data: PooledSamples, ridge: float
) -> tuple[LogRatio, float]:
    """Returns the ridge logistic fit and its effective number of parameters."""
    design = np.concatenate([np.ones((len(data.points), 1)), features(data.points)], axis=1)
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-9  # the intercept is free; the jitter keeps a constant column invertible
    offset = data.log_odds_offset
    # The odds of the class counts are the right start when the laws are equal.
    start = np.zeros(design.shape[1])
    start[0] = offset
    fitted = fit_logistic(design, data.weights_q, data.weights_p, penalty, start)
    intercept, slopes = fitted.coefficients[0], fitted.coefficients[1:]

    def log_ratio(points: Array) -> Array:
        values = intercept + features(points) @ slopes - offset
        return np.asarray(np.clip(values, -_LOG_RATIO_CLIP, _LOG_RATIO_CLIP))

    return log_ratio, fitted.num_effective
