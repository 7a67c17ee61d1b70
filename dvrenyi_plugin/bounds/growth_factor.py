"""The growth-optimal test factor for "D_alpha(Q || P) <= epsilon", and the bet that goes with it.

With Phi = e^{(alpha - 1) epsilon}, any function r >= 0 and lambda > 0 for which both of its halves
are nonnegative everywhere, one pair (x from Q, y from P) earns the factor

    (1 + lambda alpha (r(x)^{alpha - 1} - Phi)) (1 + lambda (alpha - 1) (Phi - r(y)^alpha)),

whose mean is at most 1 under every (P, Q) with D_alpha(Q || P) <= epsilon. Proof: with A = E_Q
r^{alpha - 1} and B = E_P r^alpha, Hoelder's inequality and the null give A <= Phi^{1/alpha} B^{1 -
1/alpha}, which is at most Phi / alpha + (1 - 1/alpha) B by Young's inequality. So the first mean is
at most 1 + lambda (alpha - 1) (B - Phi), the second is 1 - lambda (alpha - 1) (B - Phi) >= 0, and
their product is at most 1. Only the product is bounded, so factors are taken in pairs, or in means
over blocks when the two counts differ.

The r that earns most is the density ratio of the null pair closest to the truth. Given l = log
dQ/dP it solves
    r (1 + c (r^{alpha - 1} / Phi - 1)) = e^l (1 + c (alpha - 1) / alpha (1 - r^alpha / Phi))
with c = lambda alpha Phi. The solution is an increasing function of l that is bounded by itself: no
clipping range has to be chosen. Here the equation is inverted instead of solved: l is explicit in
r. For c > 1 the solution has a positive infimum, which keeps the first half positive. Orders near 1
need such bets: with c <= 1 the order 1.01 certified nothing of N(1, 1) against N(0, 1) from 500
pairs, where 0.67 of the divergence is possible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from dvrenyi_plugin.bounds.tilted_ratio import tilted_ratio

Array = NDArray[np.float64]

# Values of z, see `tilted_ratio`: linear interpolation of the log ratio between these nodes, dense
# in the middle and reaching +-60, is off by under 0.01.
_Z_NODES = 3.0 * np.sinh(np.linspace(-3.69, 3.69, 121))

# Candidate bets, evenly spaced in logit(c / largest c); the best is refined by a parabola through
# its neighbours.
_BET_LOGITS = np.linspace(-8.0, 4.0, 12)
# Largest c (alpha - 1): see `largest_bets`.
_LARGEST_SCALED_BET = 0.25


def largest_bets(alpha: float, epsilon: Array) -> Array:
    """Returns, for each null, the supremum of the bets that are tried.

    It is 1, or 0.25 / (alpha - 1) at orders below 1.25.

    Near order 1 the best bets grow like 1 / (alpha - 1). Still larger ones are best for nulls far
    below the divergence, but with a log ratio learned from 500 pairs they certified less: the cap
    keeps early, overconfident fits in check. A bet below alpha / ((alpha - 1) epsilon) always
    leaves some r with both halves positive.
    """
    largest = np.minimum(_LARGEST_SCALED_BET, alpha / epsilon) / (alpha - 1.0)
    return np.asarray(np.maximum(1.0, largest))


def log_factors(alpha: float, epsilon: Array, bet: Array, log_ratio: Array) -> tuple[Array, Array]:
    """Returns the logarithms of both halves of the factor.

    Args:
      alpha: order > 1.
      epsilon: shape (k,), the nulls.
      bet: shape (k,), c = lambda alpha Phi in (0, `largest_bets`), one bet for each null.
      log_ratio: shape (m,), values l at which the halves are tabulated.

    Returns:
      Two arrays of shape (k, m): log(1 + lambda alpha (r^{alpha - 1} - Phi)), used at samples of Q,
      and log(1 + lambda (alpha - 1) (Phi - r^alpha)), used at samples of P. Both belong to the same
      r(l), so the factor is valid for any choice of `log_ratio`.
    """
    first, second = np.empty((2, epsilon.size, log_ratio.size))
    for rows in (bet <= 1.0, bet > 1.0):
        if not rows.any():
            continue
        ratio = tilted_ratio(alpha, epsilon[rows, np.newaxis], bet[rows, np.newaxis])
        tables = ratio.halves(_Z_NODES).log_ratio
        z = np.stack([np.interp(log_ratio, nodes, _Z_NODES) for nodes in tables])
        _, first[rows], second[rows] = ratio.halves(z)
    return first, second


def best_bets(
    alpha: float,
    epsilon: Array,
    log_ratio: Array,
    weights_q: Array,
    weights_p: Array,
    block_sizes: tuple[float, float] = (1.0, 1.0),
) -> tuple[Array, Array]:
    """Returns, for each null, the bet that earned most on past samples and what it earned per
    block.

    Args:
      alpha: order > 1.
      epsilon: shape (k,), the nulls.
      log_ratio: shape (m,), values of the estimated log dQ/dP.
      weights_q: shape (m,), share of the past Q-samples at each value; sums to 1.
      weights_p: the same for P.
      block_sizes: samples of Q and of P in one block.

    Returns:
      bets, shape (k,), in (0, `largest_bets`); mean log factor, shape (k,), possibly negative.
    """
    count, largest = _BET_LOGITS.size, largest_bets(alpha, epsilon)
    candidates = largest[:, np.newaxis] * expit(_BET_LOGITS)
    first, second = log_factors(alpha, np.repeat(epsilon, count), candidates.reshape(-1), log_ratio)
    growth = mean_log(first, weights_q, block_sizes[0]) + mean_log(
        second, weights_p, block_sizes[1]
    )
    growth = growth.reshape(epsilon.size, count)
    best = np.clip(growth.argmax(axis=1), 1, count - 2)
    row = np.arange(epsilon.size)
    left, middle, right = growth[row, best - 1], growth[row, best], growth[row, best + 1]
    curvature = left - 2.0 * middle + right
    peaked = curvature < 0.0
    shift = np.where(peaked, 0.5 * (left - right) / np.where(peaked, curvature, -1.0), 0.0)
    step = _BET_LOGITS[1] - _BET_LOGITS[0]
    bets = largest * expit(_BET_LOGITS[best] + np.clip(shift, -1.0, 1.0) * step)
    return bets, growth.max(axis=1)


def interpolate_bets(
    alpha: float, epsilon: Array, coarse_epsilon: Array, coarse_bets: Array
) -> Array:
    """Returns bets at a fine grid of nulls from those at a coarse one.

    Any bet is valid, and the best one changes slowly with the null.
    """
    shares = logit(coarse_bets / largest_bets(alpha, coarse_epsilon))
    share = np.interp(np.log(epsilon), np.log(coarse_epsilon), shares)
    return np.asarray(largest_bets(alpha, epsilon) * expit(share))


def mean_log(log_values: Array, weights: Array, block_size: float) -> Array:
    """Returns E log(mean of `block_size` draws): exact for 1, second-order delta method above.

    Args:
      log_values: shape (..., m), the logarithms of what is drawn.
      weights: shape (m,), the probability of each value.
      block_size: draws, >= 1.
    """
    if block_size <= 1.0:
        return np.asarray(log_values @ weights)
    values = np.exp(log_values)
    mean = values @ weights
    relative_variance = np.maximum(values**2 @ weights / mean**2 - 1.0, 0.0)
    return np.asarray(np.log(mean) - relative_variance / (2.0 * block_size))
