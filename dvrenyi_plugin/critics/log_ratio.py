"""What an estimate of log dQ/dP is: the samples that it is fitted to, its values at them, and how
several are averaged into one.

Nothing here affects validity: the e-process is valid with any estimate that does not look ahead. A
better estimate earns more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogRatio = Callable[[Array], Array]

# One-dimensional samples beyond this many are pooled into as many equal-mass cells before fitting:
# the fits then cost the same at any sample size, and the pooling error is far below the sampling
# error.
_MAX_POINTS = 1024
# Samples a side used in higher dimension.
_MAX_SAMPLES = 20_000
# Families that weigh less than this beside the best one are left out of the average.
_LEAST_WEIGHT = 1e-3


@dataclasses.dataclass(frozen=True)
class Past:
    """Values of a log ratio at the points that it was fitted to; where a fit would flatter itself
    there, those of a fit without the sample.

    Attributes:
      q: shape (k,), for the samples of Q at the points.
      p: shape (k,), for those of P.
    """

    q: Array
    p: Array

    @classmethod
    def same(cls, values: Array) -> Past:
        """Returns one value for all samples at a point, shape (k,)."""
        return cls(values, values)


@dataclasses.dataclass(frozen=True)
class PooledSamples:
    """Points with the number of samples of each law at them.

    Attributes:
      points: shape (k, d).
      weights_q: shape (k,), samples of Q at each point.
      weights_p: shape (k,), samples of P at each point.
      edges: shape (k,), increasing, for scalars: the largest sample that a point stands for.
    """

    points: Array
    weights_q: Array
    weights_p: Array
    edges: Array | None = None

    @property
    def total(self) -> float:
        """Number of samples."""
        return float(self.weights_q.sum() + self.weights_p.sum())

    @property
    def log_odds_offset(self) -> float:
        """log(number of Q samples / number of P samples), to be taken off a classifier's log
        odds."""
        return math.log(self.weights_q.sum() / self.weights_p.sum())

    def loss(self, past: Past) -> float:
        """Returns minus the log-likelihood of which law each sample is from, given the values of a
        log ratio at the points."""
        return float(
            self.weights_q @ np.logaddexp(0.0, -(past.q + self.log_odds_offset))
            + self.weights_p @ np.logaddexp(0.0, past.p + self.log_odds_offset)
        )


@dataclasses.dataclass(frozen=True)
class FittedFamily:
    """One family's estimate.

    Attributes:
      log_ratio: (n, d) -> (n,), on the scale of log dQ/dP (calibrated, not just a score).
      past: its values at the points that it was fitted to.
      num_parameters: free parameters.
      log_prior: log of its weight before any sample is seen, up to a constant.
    """

    log_ratio: LogRatio
    past: Past
    num_parameters: float
    log_prior: float = -1.0

    def score(self, data: PooledSamples) -> float:
        """Returns half of the Bayesian information criterion, less the log prior: about minus the
        log of the family's posterior weight."""
        penalty = 0.5 * self.num_parameters * math.log(data.total)
        return data.loss(self.past) + penalty - self.log_prior


class LogRatioFamily(Protocol):
    """A way to estimate log dQ/dP."""

    @property
    def name(self) -> str:
        """Short name for reports."""

    def fit(self, data: PooledSamples) -> FittedFamily:
        """Returns the estimate from these samples."""


class CrossFittedLogRatio:
    """An estimate of log dQ/dP, (n, d) -> (n,), that knows its values at the samples that it was
    fitted to, had it not been fitted to them.

    In many columns, or on many values, a fit takes its own samples far apart. Bets that are
    planned on such values are too bold.

    Args:
      log_ratio: the estimate.
      values_q: shape (n,), at samples of Q.
      values_p: shape (m,), at samples of P.
    """

    def __init__(self, log_ratio: LogRatio, values_q: Array, values_p: Array) -> None:
        self._log_ratio = log_ratio
        self.values_q = values_q
        self.values_p = values_p

    def __call__(self, samples: Array) -> Array:
        return self._log_ratio(samples)


def values_at_past(log_ratio: LogRatio, past_q: Array, past_p: Array) -> tuple[Array, Array]:
    """Returns the values to plan bets on: those of a `CrossFittedLogRatio`, which may be of the
    newest samples only; else the estimate's at these samples.

    Args:
      log_ratio: the estimate.
      past_q: shape (n, d), the samples of Q that it was fitted to.
      past_p: shape (m, d), those of P.
    """
    if isinstance(log_ratio, CrossFittedLogRatio):
        return log_ratio.values_q, log_ratio.values_p
    return log_ratio(past_q), log_ratio(past_p)


def pool_samples(samples_q: Array, samples_p: Array) -> PooledSamples:
    """Returns the pooled samples, shapes (n, d) and (m, d), with their counts.

    One-dimensional samples keep one point a distinct value while there are at most 1,024; else they
    are pooled into equal-mass cells that are represented by their mean. In higher dimension every
    sample is a point, those of Q first; of more than 20,000 a side the newest are taken.
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
        edges,
    )


@dataclasses.dataclass(frozen=True)
class AveragedFit:
    """The average of several families' ratios.

    Attributes:
      log_ratio: (n, d) -> (n,), log of the weighted mean of the families' dQ/dP.
      past: its values at the points.
      name: of the family that weighs most.
      score: that family's.
    """

    log_ratio: LogRatio
    past: Past
    name: str
    score: float


def average_families(data: PooledSamples, families: Sequence[LogRatioFamily]) -> AveragedFit:
    """Returns the average of the families' fits, each weighted by exp(-score), about its posterior
    probability.

    From few samples an average loses less than a selection that picks the wrong family.

    Raises:
      ValueError: families is empty.
    """
    if not families:
        raise ValueError("families must hold at least one family, got none")
    fits = [family.fit(data) for family in families]
    scores = np.array([fit.score(data) for fit in fits])
    best = int(np.argmin(scores))
    weights = np.exp(scores[best] - scores)
    kept = [(fits[i], math.log(weights[i])) for i in np.flatnonzero(weights >= _LEAST_WEIGHT)]
    log_total = math.log(sum(math.exp(log_weight) for _, log_weight in kept))

    def log_ratio(points: Array) -> Array:
        return _log_sum(
            [log_weight - log_total + fit.log_ratio(points) for fit, log_weight in kept]
        )

    past = Past(
        _log_sum([log_weight - log_total + fit.past.q for fit, log_weight in kept]),
        _log_sum([log_weight - log_total + fit.past.p for fit, log_weight in kept]),
    )
    return AveragedFit(log_ratio, past, families[best].name, float(scores[best]))


def _log_sum(terms: Sequence[Array]) -> Array:
    # One after another, so that a row's value does not depend on how many rows there are.
    total = terms[0]
    for term in terms[1:]:
        total = np.logaddexp(total, term)
    return total


__all__ = [
    "Array",
    "AveragedFit",
    "CrossFittedLogRatio",
    "FittedFamily",
    "LogRatio",
    "LogRatioFamily",
    "Past",
    "PooledSamples",
    "average_families",
    "pool_samples",
    "values_at_past",
]
