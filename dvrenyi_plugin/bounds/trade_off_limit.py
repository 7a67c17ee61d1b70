"""The information limit of a claim about all events: how much of a family's parameter n pairs of
samples can certify.

The most that the log of an e-value against a trade-off curve can grow for each pair is the least
KL(Q || Q') + KL(P || P')
over all pairs of laws that keep the claim: the rate of `trade_off_factor.nearest_null` on fine
cells of the log ratio. Once n times the rate falls below log(1 / failure probability) the claim is
out of reach on average, whatever the method.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dvrenyi_plugin._internal.validation import check_failure_probability, check_int
from dvrenyi_plugin.bounds.grid_pairs import GridPair
from dvrenyi_plugin.bounds.trade_off_factor import (
    keeps_claim,
    nearest_null,
    variance_of_best_bets,
)
from dvrenyi_plugin.privacy.trade_off import TradeOffCurve, check_curve
from dvrenyi_plugin.privacy.trade_off_families import TradeOffFamily, check_family

Array = NDArray[np.float64]

# Cells of the log ratio; with 100 the rate of N(1, 1) against a claim of mu = 0.5 was 0.04% lower.
_NUM_CELLS = 200
# Stands for a mass of 0.
_LEAST_MASS = 1e-15


def trade_off_growth(pair: GridPair, curve: TradeOffCurve) -> tuple[float, float]:
    """Returns mean and variance of the log factor of one pair of samples, in nats, for the bets
    that are best against the curve; zero for laws that keep it. No log e-value grows faster on
    average.

    Args:
      pair: the true laws.
      curve: the claim.
    """
    check_curve("curve", curve)
    masses_q, masses_p = _cells(pair)
    if keeps_claim(masses_q, masses_p, curve):
        return 0.0, 0.0
    null = nearest_null(masses_q, masses_p, curve)
    return null.rate, variance_of_best_bets(masses_q, masses_p, curve, null)


def certifiable_parameter(
    pair: GridPair, family: TradeOffFamily, num_pairs: int, failure_probability: float
) -> float:
    """Returns the largest parameter with num_pairs x rate >= log(1 / failure_probability), between
    the ends of the family's grid; 0.0 if none has. It is the limit for the typical run of the best
    method.

    Args:
      pair: the true laws.
      family: the curves.
      num_pairs: samples of each law, >= 1.
      failure_probability: one-sided, in (0, 1).
    """
    num_pairs = check_int("num_pairs", num_pairs, at_least=1)
    needed = -math.log(check_failure_probability(failure_probability)) / num_pairs
    cells, family = _cells(pair), check_family(family)

    def spare(value: float) -> float:
        return _rate(*cells, family.curve(value)) - needed

    low, high = float(family.grid[0]), float(family.grid[-1])
    if spare(low) <= 0.0:
        return 0.0
    return high if spare(high) > 0.0 else float(brentq(spare, low, high, xtol=1e-6, rtol=1e-6))


def _rate(masses_q: Array, masses_p: Array, curve: TradeOffCurve) -> float:
    if keeps_claim(masses_q, masses_p, curve):
        return 0.0
    return nearest_null(masses_q, masses_p, curve).rate


def _cells(pair: GridPair) -> tuple[Array, Array]:
    """Returns masses of Q and P on cells of the log ratio, in increasing order of it, none of them
    0.
    """
    if not isinstance(pair, GridPair):
        raise ValueError(f"pair must be a GridPair, got {pair!r}")
    carried = np.maximum(pair.log_q, pair.log_p) > -np.inf
    log_q, log_p = pair.log_q[carried], pair.log_p[carried]
    order = np.argsort(log_q - log_p, kind="stable")
    q, p = np.exp(log_q[order]), np.exp(log_p[order])
    middle = np.cumsum(0.5 * (q + p)) - 0.25 * (q + p)
    cell = np.unique((middle * _NUM_CELLS).astype(np.intp), return_inverse=True)[1]
    masses_q, masses_p = (np.bincount(cell, weights=mass) + _LEAST_MASS for mass in (q, p))
    return masses_q / masses_q.sum(), masses_p / masses_p.sum()
