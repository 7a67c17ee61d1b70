"""The information limit: how much of D_alpha(Q || P) any e-value can certify from n pairs of
samples.

The most that the log of an e-value against "D_alpha <= epsilon" can grow for each pair (x from Q, y
from P) is

    rate = min KL(Q || Q') + KL(P || P')   over all pairs of laws with D_alpha(Q' || P') <= epsilon,

so once n rate falls below log(1 / failure probability), epsilon is out of reach on average,
whatever the method. The growth-optimal factor of `growth_factor`, made from the minimiser, earns
exactly the rate: the limit is attained.

With Phi = e^{(alpha - 1) epsilon}, a multiplier lambda > 0, c = lambda alpha Phi, and r = dQ'/dP',
the minimiser is

    q' = q / s1(r),   s1 = 1 - c + c r^{alpha - 1} / Phi,
    p' = p / s2(r),   s2 = 1 + (alpha - 1)/alpha c (1 - r^alpha / Phi),

where r solves log r + log s1(r) - log s2(r) = log q/p (see `tilted_ratio`), and c makes the masses
of q' sum to one. Those of p' and D_alpha(Q' || P') = epsilon follow, since q = q' s1 and p = p' s2
sum to one. c may exceed 1 (it does for small epsilons); s1 > 0 then keeps r above a positive
minimum.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dvrenyi_plugin._internal.validation import (
    check_epsilon,
    check_failure_probability,
    check_int,
    check_order,
)
from dvrenyi_plugin.bounds.grid_pairs import GridPair, check_pair, normalised
from dvrenyi_plugin.bounds.tilted_ratio import Halves, log_r_inf, log_r_sup, tilted_ratio

Array = NDArray[np.float64]

_TABLE_NODES = 601
# Stands for an infinite logit. Where the log ratio is this large, one of the masses is below
# e^-600.
_FAR = 600.0
_TINY = 1e-12
# Error of log q/p above which its r counts as not found.
_SOLVED = 1e-6
# The rate differs from that at 0 by some sqrt(epsilon), here below rounding.
_LEAST_EPSILON = 1e-40
# The rate is at most some exp(-epsilon): for more than this it is 0 in floats.
_LARGEST_EPSILON = 750.0
# The smallest log c looked at. Below it even the rate is no longer a float.
_LEAST_LOG_BET = -650.0


@dataclasses.dataclass(frozen=True)
class ClosestNull:
    """The null pair hardest to tell from (Q, P), and the optimal factor that comes with it.

    Attributes:
      alpha: order.
      epsilon: the null is D_alpha <= epsilon.
      rate: KL(Q || Q') + KL(P || P') in nats a pair, the mean log of the optimal factor.
      variance: of the log of the optimal factor of one pair, under (Q, P).
      bet: c = lambda alpha Phi; inf at epsilon below 1e-40, where the null is the one at 0; 0 when
        (Q, P) is itself in the null, or so close to it that the rate is below the smallest float.
      null: (Q', P').
      log_first: shape (k,), log of the factor's half for a sample of Q at each point, log q/q'.
      log_second: shape (k,), the same for P.
    """

    alpha: float
    epsilon: float
    rate: float
    variance: float
    bet: float
    null: GridPair
    log_first: Array
    log_second: Array


def closest_null(pair: GridPair, alpha: float, epsilon: float) -> ClosestNull:
    """Returns the pair of laws with D_alpha <= epsilon that is closest to the given one.

    Args:
      pair: the true laws.
      alpha: order > 1.
      epsilon: >= 0.
    """
    check_pair(pair)
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    if epsilon >= min(pair.renyi(alpha), _LARGEST_EPSILON):
        return _itself(pair, alpha, epsilon)
    if epsilon < _LEAST_EPSILON:
        middle = np.logaddexp(pair.log_q, pair.log_p) - math.log(2.0)
        return _closest(pair, alpha, epsilon, math.inf, middle, middle)
    with np.errstate(invalid="ignore"):
        log_ratio = pair.log_q - pair.log_p
    # Points that neither law reaches stay out of the minimiser.
    carried = ~np.isnan(log_ratio)

    def laws(log_bet: float) -> tuple[Array, Array, float]:
        bet = math.exp(log_bet)
        log_r, log_s1, log_s2 = _solve_ratio(alpha, epsilon, bet, log_ratio[carried])
        log_q, log_p = pair.log_q[carried], pair.log_p[carried]
        with np.errstate(invalid="ignore"):
            log_q_null, log_p_null = log_q - log_s1, log_p - log_s2
            unsolved = ~(np.abs(log_r + log_s1 - log_s2 - log_ratio[carried]) <= _SOLVED)
        # Where one law has no mass, or so little that s1 or s2 lies beyond the table, its share
        # follows from r = q'/p'.
        only_q, only_p = unsolved & (log_q > log_p), unsolved & (log_q < log_p)
        log_p_null[only_q] = log_q_null[only_q] - log_r[only_q]
        log_q_null[only_p] = log_p_null[only_p] + log_r[only_p]
        both = ~only_p
        excess = float(np.exp(log_q[both]) @ np.expm1(-log_s1[both]))
        return log_q_null, log_p_null, excess + float(np.exp(log_q_null[only_p]).sum())

    log_bet = _root_below(lambda value: laws(value)[2], _largest_log_bet(alpha, epsilon))
    if log_bet is None:
        return _itself(pair, alpha, epsilon)
    q_null, p_null, _ = laws(log_bet)
    log_q_null = np.full(pair.log_q.size, -np.inf)
    log_p_null = log_q_null.copy()
    log_q_null[carried], log_p_null[carried] = q_null, p_null
    return _closest(pair, alpha, epsilon, math.exp(log_bet), log_q_null, log_p_null)


@functools.lru_cache(maxsize=64)  # one audit after another asks for the same claim
def largest_rate(alpha: float, epsilon: float) -> float:
    """Returns the most that the log of an e-value against "D_alpha <= epsilon" can grow with one
    pair, whatever the laws are, in nats: the rate for two laws that have no point in common, up to
    0.1% above it.

    Such laws have a constant factor: its first half at the supremum of r, its second half at the
    infimum. Their best bet is read off a grid, which is good at every order and epsilon.

    Args:
      alpha: order > 1.
      epsilon: >= 0.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    most = 2.0 * math.log(2.0)
    if epsilon <= _TINY:
        return most
    beyond = math.log(1.0 + 4.0 * alpha / ((alpha - 1.0) * epsilon)) + 1.0
    best = 0.0
    # A grid of log bets up to 1, and one above.
    for log_bets in (np.linspace(-60.0, 0.0, 4001), np.linspace(0.0, beyond, 2001)[1:]):
        bets = np.exp(log_bets)
        if log_bets[0] > 0.0:
            bets = bets[log_r_inf(alpha, bets) < log_r_sup(alpha, epsilon, bets)]
            if bets.size == 0:
                continue
        ratio = tilted_ratio(alpha, epsilon, bets)
        with np.errstate(divide="ignore"):  # a bet that can lose everything is no good one
            at_sup, at_inf = ratio.halves(np.array(np.inf)), ratio.halves(np.array(-np.inf))
        best = max(best, float((at_sup.log_first + at_inf.log_second).max()))
    return min(most, 1.001 * best)


def certifiable_epsilon(
    pair: GridPair, alpha: float, num_pairs: int, failure_probability: float
) -> float:
    """Returns the largest epsilon with num_pairs x rate >= log(1 / failure_probability), 0.0 if
    none has.

    It is the limit for the typical run of the best method (log e-values fluctuate, so about half of
    its runs come further); a bound that is not anytime-valid may come a little further.

    Args:
      pair: the true laws, D_alpha finite.
      alpha: order > 1.
      num_pairs: samples of each law, >= 1.
      failure_probability: one-sided, in (0, 1).

    Raises:
      ValueError: an argument is out of range, or D_alpha is infinite.
    """
    num_pairs = check_int("num_pairs", num_pairs, at_least=1)
    needed = -math.log(check_failure_probability(failure_probability)) / num_pairs
    check_pair(pair)
    divergence = pair.renyi(alpha)
    if not math.isfinite(divergence):
        raise ValueError(f"pair must have a finite D_alpha at alpha {alpha}, got {divergence}")
    if divergence == 0.0 or closest_null(pair, alpha, 0.0).rate <= needed:
        return 0.0

    def spare(epsilon: float) -> float:
        return closest_null(pair, alpha, epsilon).rate - needed

    return float(brentq(spare, 0.0, divergence, xtol=1e-6 * divergence))


def certifiable_fraction(
    pair: GridPair, alpha: float, num_pairs: int, failure_probability: float
) -> float:
    """Returns `certifiable_epsilon` as a fraction of D_alpha, in [0, 1); 0.0 for equal laws."""
    check_pair(pair)
    divergence = pair.renyi(alpha)
    if divergence == 0.0:
        return 0.0
    return certifiable_epsilon(pair, alpha, num_pairs, failure_probability) / divergence


def _itself(pair: GridPair, alpha: float, epsilon: float) -> ClosestNull:
    zeros = np.zeros(pair.log_q.size)
    return ClosestNull(alpha, epsilon, 0.0, 0.0, 0.0, pair, zeros, zeros)


def _closest(
    pair: GridPair, alpha: float, epsilon: float, bet: float, log_q_null: Array, log_p_null: Array
) -> ClosestNull:
    # Rounding of the root only; the tests look at the masses before it.
    null = GridPair(normalised(log_q_null), normalised(log_p_null))
    with np.errstate(invalid="ignore"):
        log_first = np.where(pair.log_q > -np.inf, pair.log_q - null.log_q, 0.0)
        log_second = np.where(pair.log_p > -np.inf, pair.log_p - null.log_p, 0.0)
    mean_q, variance_q = _moments(pair.log_q, log_first)
    mean_p, variance_p = _moments(pair.log_p, log_second)
    return ClosestNull(
        alpha,
        epsilon,
        max(0.0, mean_q + mean_p),
        variance_q + variance_p,
        bet,
        null,
        log_first,
        log_second,
    )


def _root_below(excess: Callable[[float], float], top: float) -> float | None:
    """Returns where the excess mass, negative for small bets and positive just below `top`, is
    zero; None when that is below the least log bet."""
    step = 1.0
    high, low = top - 1e-6, top - 1e-6 - step
    while excess(low) > 0.0:
        if low == _LEAST_LOG_BET:
            return None
        step *= 2.0
        high, low = low, max(_LEAST_LOG_BET, low - step)
    return float(brentq(excess, low, high, xtol=1e-12))


def _largest_log_bet(alpha: float, epsilon: float) -> float:
    """Returns the log bet at which no r is left that keeps both halves positive."""

    def width(log_bet: float) -> float:
        bet = math.exp(log_bet)
        return float(log_r_sup(alpha, epsilon, bet) - log_r_inf(alpha, bet))

    if width(_TINY) <= 0.0:
        return 0.0
    # For large c the width is about 2 / ((alpha - 1) c) - epsilon / alpha.
    beyond = math.log(1.0 + 4.0 * alpha / ((alpha - 1.0) * epsilon)) + 1.0
    return float(brentq(width, _TINY, beyond, xtol=1e-12))


def _solve_ratio(alpha: float, epsilon: float, bet: float, log_ratio: Array) -> Halves:
    """Returns r and both halves at each log q/p, infinite ones included.

    Along z the log ratio is smooth: tabulate, interpolate, and polish by Newton's method.
    """
    ratio = tilted_ratio(alpha, epsilon, bet)
    finite = np.isfinite(log_ratio)
    target = log_ratio[finite]
    reach = float(np.abs(target).max(initial=0.0))
    log_r_top = epsilon + float(log_r_sup(alpha, epsilon, bet))
    log_second_at_zero = math.log1p(bet * (alpha - 1.0) / alpha)
    end = math.asinh(alpha * (reach + abs(log_r_top) + log_second_at_zero) + 60.0)
    nodes = np.sinh(np.linspace(-end, end, _TABLE_NODES))
    if bet > 1.0:
        nodes = np.unique(np.clip(nodes, -_FAR, _FAR))
    z = np.interp(target, ratio.halves(nodes).log_ratio, nodes)
    for _ in range(2):
        step = (ratio.halves(z).log_ratio - target) / ratio.slope(z)
        z = np.clip(z - step, nodes[0], nodes[-1])
    everywhere = np.where(log_ratio > 0.0, _FAR, -_FAR)
    everywhere[finite] = z
    return ratio.halves(everywhere)


def _moments(log_masses: Array, values: Array) -> tuple[float, float]:
    masses = np.exp(log_masses)
    mean = float(masses @ values)
    return mean, float(masses @ (values - mean) ** 2)
