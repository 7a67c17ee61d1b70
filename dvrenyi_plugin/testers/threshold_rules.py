"""0/1 rules on a scalar score: the score, the candidate thresholds and their integer counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.critics.logistic_fit import fit_logistic
from dvrenyi_plugin.critics.standardiser import Standardiser

ScoreFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# Standardised columns are cut here.
_LARGEST_FEATURE = 8.0


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


@dataclasses.dataclass(frozen=True)
class LinearScore:
    """A fitted linear log ratio of law 1 to law 2; large where law 1 is the likelier one.

    Attributes:
      standardise: of the columns; one record must not decide the direction, so they are cut at 8.
      weights: shape (d,).
    """

    standardise: Standardiser
    weights: NDArray[np.float64]

    def __call__(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the scores, shape (n,), of samples of shape (n, d)."""
        scores: NDArray[np.float64] = self.standardise(samples) @ self.weights
        return scores


def fit_linear_score(samples1: NDArray[np.float64], samples2: NDArray[np.float64]) -> LinearScore:
    """Returns a ridge logistic regression of "came from law 1" on robustly standardised columns.

    Args:
      samples1: shape (n1, d).
      samples2: shape (n2, d).
    """
    pooled = np.concatenate([samples1, samples2])
    # The penalty is stated for columns with an interquartile range of 1.
    standardise = Standardiser.of_quartiles(pooled, _LARGEST_FEATURE, normal_range=1.0)
    design = np.column_stack([standardise(pooled), np.ones(len(pooled))])
    from1 = np.arange(len(pooled)) < len(samples1)
    # Both laws weigh the same, whatever their counts: the score does not depend on their balance.
    weights1 = np.where(from1, 0.5 * len(pooled) / len(samples1), 0.0)
    weights2 = np.where(from1, 0.0, 0.5 * len(pooled) / len(samples2))
    penalty = np.append(np.ones(pooled.shape[1]), 1e-6)
    fitted = fit_logistic(
        design, weights1, weights2, penalty, np.zeros(design.shape[1]), tolerance=0.0
    )
    return LinearScore(standardise, fitted.coefficients[:-1])
