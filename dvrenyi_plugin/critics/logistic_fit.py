"""The one logistic regression: ridge penalty, weighted samples, Newton's method with halved
steps."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

_MAX_STEPS = 40
_LEAST_STEP = 1e-3


@dataclasses.dataclass(frozen=True)
class LogisticFit:
    """Coefficients of the log odds of "from Q", and how many of them the data decided.

    Attributes:
      coefficients: shape (k,).
      num_effective: effective number of parameters, at most k.
    """

    coefficients: Array
    num_effective: float


def fit_logistic(
    design: Array,
    weights_q: Array,
    weights_p: Array,
    penalty: Array,
    start: Array,
    tolerance: float = 1e-7,
) -> LogisticFit:
    """Returns the ridge logistic fit.

    Args:
      design: shape (n, k), features of the samples, a column of ones among them for an intercept.
      weights_q: shape (n,), samples of Q at each row, >= 0.
      weights_p: shape (n,), samples of P at each row, >= 0.
      penalty: shape (k,), on squared coefficients, > 0.
      start: shape (k,), coefficients to begin with.
      tolerance: a step that gains less than this share of the loss is the last.
    """
    total = weights_q + weights_p
    coefficients = start

    def loss(candidate: Array) -> float:
        log_odds = design @ candidate
        return float(
            total @ np.logaddexp(0.0, log_odds)
            - weights_q @ log_odds
            + 0.5 * penalty @ candidate**2
        )

    current = loss(coefficients)
    fisher = np.zeros((penalty.size, penalty.size))
    for _ in range(_MAX_STEPS):
        probability = expit(design @ coefficients)
        gradient = design.T @ (total * probability - weights_q) + penalty * coefficients
        fisher = (design * (total * probability * (1.0 - probability))[:, np.newaxis]).T @ design
        step = np.linalg.solve(fisher + np.diag(penalty), gradient)
        size = 1.0
        while (trial := loss(coefficients - size * step)) > current and size > _LEAST_STEP:
            size /= 2.0
        if trial > current:
            break
        coefficients = coefficients - size * step
        converged = current - trial <= tolerance * max(1.0, current)
        current = trial
        if converged:
            break
    effective = float(np.trace(np.linalg.solve(fisher + np.diag(penalty), fisher)))
    return LogisticFit(coefficients, effective)
