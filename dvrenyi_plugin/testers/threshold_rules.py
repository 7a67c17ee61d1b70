"""0/1 rules on a scalar score: the score, the candidate thresholds and their integer counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ScoreFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# One record must not decide the direction: standardised features are cut here.
_LARGEST_FEATURE = 8.0
_NEWTON_STEPS = 8


@dataclasses.dataclass(frozen=True)
class ThresholdCounts:
    """How often "score >= threshold" happens at every distinct score.

    Attributes:
      thresholds: shape (k,), increasing, all distinct scores of both samples.
      true_positives: shape (k,), counts in the first sample.
      false_positives: shape (k,), counts in the second sample.
    """

    thresholds: NDArray[np.float64]
    true_positives: NDArray[np.int64]
    false_positives: NDArray[np.int64]


def count_at_every_threshold(
    scores1: NDArray[np.float64], scores2: NDArray[np.float64]
) -> ThresholdCounts:
    """Returns the counts of "score >= threshold", thresholds being all distinct scores.

    Args:
      scores1: shape (n1,), of the law that the rule should flag.
      scores2: shape (n2,), of the other.
    """
    thresholds = np.unique(np.concatenate([scores1, scores2]))
    below1 = np.searchsorted(np.sort(scores1), thresholds, side="left")
    below2 = np.searchsorted(np.sort(scores2), thresholds, side="left")
    return ThresholdCounts(thresholds, scores1.size - below1, scores2.size - below2)


def num_fitting(count: int, fit_fraction: float) -> int:
    """Returns how many of `count` samples, >= 2, are used for fitting: at least one, and not all."""
    return min(count - 1, max(1, round(fit_fraction * count)))


def split_samples(
    samples: NDArray[np.float64], fit_fraction: float, stream: np.random.SeedSequence
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns a random part for fitting and the rest for certifying, at least one sample each.

    Args:
      samples: shape (n, d), n >= 2, rows independent.
      fit_fraction: part used for fitting, in (0, 1).
      stream: of this split alone; another sample needs another stream.
    """
    count = len(samples)
    num_fit = num_fitting(count, fit_fraction)
    order = np.random.default_rng(stream).permutation(count)
    return samples[order[:num_fit]], samples[order[num_fit:]]


@dataclasses.dataclass(frozen=True)
class LinearScore:
    """A fitted linear log ratio of law 1 to law 2; large where law 1 is the likelier one.

    Attributes:
      unit: shape (d,), columns are divided by it first.
      centre: shape (d,), subtracted next.
      spread: shape (d,), divided by next, before the cut at +-8.
      weights: shape (d,).
    """

    unit: NDArray[np.float64]
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __call__(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the scores, shape (n,), of samples of shape (n, d)."""
        scores: NDArray[np.float64] = self._features(samples) @ self.weights
        return scores

    def _features(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            standard = (samples / self.unit - self.centre) / self.spread
        return np.clip(standard, -_LARGEST_FEATURE, _LARGEST_FEATURE)


def fit_linear_score(samples1: NDArray[np.float64], samples2: NDArray[np.float64]) -> LinearScore:
    """Returns a ridge logistic regression of "came from law 1" on robustly standardised columns.

    Args:
      samples1: shape (n1, d).
      samples2: shape (n2, d).
    """
    pooled = np.concatenate([samples1, samples2])
    unit = np.abs(pooled).max(axis=0)
    unit[unit == 0.0] = 1.0
    lower, centre, upper = np.quantile(pooled / unit, (0.25, 0.5, 0.75), axis=0)
    spread = upper - lower
    # Discrete columns may have no interquartile range, constant columns no range at all.
    spread = np.where(spread > 0.0, spread, (pooled / unit).std(axis=0))
    spread[spread == 0.0] = 1.0
    score = LinearScore(unit, centre, spread, np.zeros(unit.size))
    features = score._features(pooled)
    labels = np.concatenate([np.ones(len(samples1)), np.zeros(len(samples2))])
    # Both laws weigh the same, whatever their counts: the score does not depend on the class balance.
    sizes = np.where(labels == 1.0, 0.5 / len(samples1), 0.5 / len(samples2)) * labels.size
    design = np.column_stack([features, np.ones(labels.size)])
    ridge = np.diag(np.append(np.ones(unit.size), 1e-6))
    weights = np.zeros(design.shape[1])
    for _ in range(_NEWTON_STEPS):
        odds = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30.0, 30.0)))
        gradient = design.T @ (sizes * (labels - odds)) - ridge @ weights
        curvature = (design * (sizes * odds * (1.0 - odds))[:, np.newaxis]).T @ design + ridge
        weights = weights + np.linalg.solve(curvature, gradient)
    return dataclasses.replace(score, weights=weights[:-1])
