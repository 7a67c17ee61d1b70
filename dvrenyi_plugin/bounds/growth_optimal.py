"""The growth-optimal test factor for "D_alpha(Q || P) <= epsilon", and the bet that goes with it.

With Phi = e^{(alpha - 1) epsilon}, any function r >= 0 and lambda > 0 with lambda alpha Phi < 1 and
lambda (alpha - 1) (r^alpha - Phi) < 1 everywhere, one pair (x from Q, y from P) earns the factor

    (1 + lambda alpha (r(x)^{alpha - 1} - Phi)) (1 + lambda (alpha - 1) (Phi - r(y)^alpha)),

whose mean is at most 1 under every (P, Q) with D_alpha(Q || P) <= epsilon. Proof: with A = E_Q r^{alpha - 1} and
B = E_P r^alpha, Hoelder's inequality and the null give A <= Phi^{1/alpha} B^{1 - 1/alpha}, which is at most
Phi / alpha + (1 - 1/alpha) B by Young's inequality. So the first mean is at most 1 + lambda (alpha - 1) (B - Phi), the
second is 1 - lambda (alpha - 1) (B - Phi), and their product is at most 1. Only the product is bounded, so
factors are taken in pairs, or in means over blocks when the two counts differ.

The r that earns most is the density ratio of the null pair closest to the truth. Given l = log dQ/dP it solves
    r (1 - c + c r^{alpha - 1} / Phi) = e^l (1 + c (alpha - 1) / alpha - c (alpha - 1) / alpha r^alpha / Phi)
with c = lambda alpha Phi in (0, 1). The solution is an increasing function of l that is bounded by itself: no
clipping range has to be chosen. Here the equation is inverted instead of solved: l is explicit in r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

Array = NDArray[np.float64]

# r is parametrised by z = logit(r^alpha / sup r^alpha). l(z) is smooth, bends only for |z| of a few units, and
# increases with slope between 1 / alpha and about 1: linear interpolation between these nodes, dense in the
# middle and reaching +-60, is off by under 0.01.
_Z_NODES = 3.0 * np.sinh(np.linspace(-3.69, 3.69, 121))

# Candidate bets c, evenly spaced in logit(c); the best is refined by a parabola through its neighbours.
_BET_LOGITS = np.linspace(-7.0, 4.0, 11)


def log_factors(alpha: float, epsilon: Array, bet: Array, log_ratio: Array) -> tuple[Array, Array]:
    """Returns the logarithms of both halves of the factor.

    Args:
      alpha: order > 1.
      epsilon: shape (k,), the nulls.
      bet: shape (k,), c = lambda alpha Phi in (0, 1), one bet a null.
      log_ratio: shape (m,), values l at which the halves are tabulated.

    Returns:
      Two arrays of shape (k, m): log(1 + lambda alpha (r^{alpha - 1} - Phi)), used at samples of Q, and
      log(1 + lambda (alpha - 1) (Phi - r^alpha)), used at samples of P. Both belong to the same r(l), so
      the factor is valid for any choice of `log_ratio`.
    """
    eps, c = epsilon[:, np.newaxis], bet[:, np.newaxis]
    second_at_zero = np.log1p(c * (alpha - 1.0) / alpha)
    log_r_sup = (second_at_zero + np.log(alpha / (c * (alpha - 1.0))) + (alpha - 1.0) * eps) / alpha

    def first_half(log_r: Array) -> Array:
        # No overflow at any order: log r <= sup log r keeps the exponent below -log(c) + 1.
        return np.log1p(c * np.expm1((alpha - 1.0) * (log_r - eps)))

    log_r_nodes = log_r_sup + log_expit(_Z_NODES) / alpha
    log_ratio_nodes = log_r_nodes + first_half(log_r_nodes) - second_at_zero - log_expit(-_Z_NODES)
    z = np.empty((epsilon.size, log_ratio.size))
    for row, nodes in enumerate(log_ratio_nodes):
        z[row] = np.interp(log_ratio, nodes, _Z_NODES)
    return first_half(log_r_sup + log_expit(z) / alpha), second_at_zero + log_expit(-z)


def best_bets(
    alpha: float,
    epsilon: Array,
    log_ratio: Array,
    weights_q: Array,
    weights_p: Array,
    block_sizes: tuple[float, float] = (1.0, 1.0),
) -> tuple[Array, Array]:
    """Returns, for each null, the bet that earned most on past samples and what it earned a block.

    Args:
      alpha: order > 1.
      epsilon: shape (k,), the nulls.
      log_ratio: shape (m,), values of the estimated log dQ/dP.
      weights_q: shape (m,), share of the past Q-samples at each value; sums to 1.
      weights_p: the same for P.
      block_sizes: samples of Q and of P in one block.

    Returns:
      bets, shape (k,), in (0, 1); mean log factor, shape (k,), possibly negative.
    """
    count = _BET_LOGITS.size
    first, second = log_factors(
        alpha, np.repeat(epsilon, count), np.tile(expit(_BET_LOGITS), epsilon.size), log_ratio
    )
    growth = _mean_log(first, weights_q, block_sizes[0]) + _mean_log(
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
    bets = expit(_BET_LOGITS[best] + np.clip(shift, -1.0, 1.0) * step)
    return bets, growth.max(axis=1)


def interpolate_bets(epsilon: Array, coarse_epsilon: Array, coarse_bets: Array) -> Array:
    """Returns bets at a fine grid of nulls from those at a coarse one: any bet is valid, and the best one
    changes slowly with the null."""
    return np.asarray(expit(np.interp(np.log(epsilon), np.log(coarse_epsilon), logit(coarse_bets))))


def _mean_log(log_values: Array, weights: Array, block_size: float) -> Array:
    """Returns E log(mean of `block_size` draws): exact for 1, second-order delta method above."""
    if block_size <= 1.0:
        return np.asarray(log_values @ weights)
    values = np.exp(log_values)
    mean = values @ weights
    relative_variance = np.maximum(values**2 @ weights / mean**2 - 1.0, 0.0)
    return np.asarray(np.log(mean) - relative_variance / (2.0 * block_size))
