"""The factor that bets against a trade-off curve: "Q(E) <= F(P(E)) for every event E".

For nested events E_k = {score >= c_k}, levels a_k in (0, 1) and weights w_k >= 0, all fixed in
advance, a pair of samples (x from Q, y from P) contributes u(x) v(y) with

    u(x) = 1 + sum_k w_k (1{x in E_k} - F(a_k)),
    v(y) = 1 - sum_k w_k F'(a_k) (1{y in E_k} - a_k),

both kept nonnegative. Its mean is at most 1 whenever the claim holds: with p_k = P(E_k), the mean
of u is at most 1 + sum_k w_k (F(p_k) - F(a_k)) <= 1 + sum_k w_k F'(a_k) (p_k - a_k) = A, since F is
concave (any supergradient serves for F'), and the mean of v is 2 - A, so the product is at most A
(2 - A) = 1 - (A - 1)^2. Only the product is bounded: factors go in pairs, or in means over blocks
when the counts differ.

The best bet. Let p and q be the masses that the two laws are believed to have on the cells between
the thresholds. Among the pairs (p', q') with q'(E_k) = F(p'(E_k)), take the one nearest in KL(p ||
p') + KL(q || q'), a_k = p'(E_k) and w_k the increments of q / q'. Then u = q / q' and v = p / p',
and the mean log factor is that divergence: the information limit.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from dvrenyi_plugin.bounds.growth_factor import mean_log
from dvrenyi_plugin.privacy.trade_off import TradeOffCurve

Array = NDArray[np.float64]

# Changes of the set of thresholds at which the claim is met with equality.
_MAX_ROUNDS = 60
# A claim broken by less than this at a threshold counts as kept there: it costs rate, not validity.
_SLACK = 1e-9
# Newton steps; from a neighbouring null's solution, three or four are enough.
_MAX_STEPS = 60
# A step that gains less than this share of the rate ends the search: any levels are valid.
_GAIN = 1e-3
# Both halves of a factor stay at or above this, so that no single sample ends the game.
_LEAST_HALF = 1e-3
# Shares of the best bet that are tried: estimates from few samples are overconfident.
_SHARES = np.concatenate([np.linspace(0.1, 1.0, 10), [1.15, 1.3, 1.5]])
# Levels stay this far from 0 and 1.
_END = 1e-14
# Stands for an empty cell of Q'.
_LEAST_CELL = 1e-300


@dataclasses.dataclass(frozen=True)
class NearestNull:
    """The pair that keeps the claim and is hardest to tell from (Q, P) by the cells of the score.

    Attributes:
      thresholds: shape (m,), the k for which the event "score in cell k or above" is as likely as
        the claim allows.
      levels: shape (m,), a_k = P'(score in cell k or above) for these, decreasing.
      rate: KL(Q || Q') + KL(P || P') in nats a pair, over the cells.
    """

    thresholds: NDArray[np.intp]
    levels: Array
    rate: float


def keeps_claim(masses_q: Array, masses_p: Array, curve: TradeOffCurve) -> bool:
    """Returns whether laws with these masses on the cells, each of shape (k,), keep the claim at
    every threshold.
    """
    return bool(np.all(_tails(masses_q) <= curve.power_at(np.minimum(_tails(masses_p), 1.0))))


def nearest_null(
    masses_q: Array, masses_p: Array, curve: TradeOffCurve, start: NearestNull | None = None
) -> NearestNull:
    """Returns the nearest pair that keeps the claim at every threshold.

    A convex programme, solved by active sets: on given thresholds the claim holds with equality,
    and the cells between them are one. A threshold whose weight comes out negative leaves the set,
    one at which the claim is broken enters.

    Args:
      masses_q: shape (k,), positive masses of Q on the cells, in increasing order of the score;
        they sum to one.
      masses_p: the same for P.
      curve: the claim.
      start: the solution for a similar claim on the same cells.
    """
    every = np.arange(1, masses_q.size)
    tails_q, tails_p = _tails(masses_q), _tails(masses_p)
    active = every if start is None else start.thresholds
    levels = tails_p[active - 1] if start is None else start.levels
    rate = 0.0
    for _ in range(_MAX_ROUNDS):
        merged_q, merged_p = _merged(tails_q, active), _merged(tails_p, active)
        levels, rate = _on_the_curve(merged_q, merged_p, curve, levels)
        ratio_q = merged_q / np.maximum(_differences(curve.power_at(levels)), _LEAST_CELL)
        weights = np.diff(ratio_q)
        kept = weights > 0.0
        if not kept.all():
            active, levels = active[kept], levels[kept]
            continue
        # What the pair gives to every threshold: within a merged cell, in proportion to the
        # believed masses.
        cell = np.searchsorted(active, np.arange(masses_q.size), side="right")
        null_q = _tails(masses_q / ratio_q[cell])
        null_p = _tails(masses_p * (_differences(levels) / merged_p)[cell])
        excess = null_q - curve.power_at(null_p)
        excess[active - 1] = 0.0
        worst = int(excess.argmax()) if excess.size else 0
        if not excess.size or excess[worst] <= _SLACK:
            break
        place = int(np.searchsorted(active, worst + 1))
        active = np.insert(active, place, worst + 1)
        levels = np.insert(levels, place, null_p[worst])
    return NearestNull(active, levels, rate)


def variance_of_best_bets(
    masses_q: Array, masses_p: Array, curve: TradeOffCurve, null: NearestNull
) -> float:
    """Returns the variance of log u(x) + log v(y), x ~ Q and y ~ P, for u = dQ / dQ' and
    v = dP / dP' of the nearest pair (Q', P'). Its mean is the null's rate.

    Args:
      masses_q: shape (k,), as given to `nearest_null`.
      masses_p: the same.
      curve: the same.
      null: what it returned.
    """
    variance = 0.0
    for masses, tails in ((masses_q, curve.power_at(null.levels)), (masses_p, null.levels)):
        merged = _merged(_tails(masses), null.thresholds)
        logs = np.log(merged / np.maximum(_differences(tails), _LEAST_CELL))
        variance += float(merged @ logs**2 - (merged @ logs) ** 2)
    return max(0.0, variance)


def _merged(tails: Array, active: NDArray[np.intp]) -> Array:
    return _differences(tails[active - 1])


def _on_the_curve(
    masses_q: Array, masses_p: Array, curve: TradeOffCurve, levels: Array
) -> tuple[Array, float]:
    """Returns the levels of the nearest pair with Q'(E_k) = F(P'(E_k)) at every threshold, and its
    rate.

    In the levels the objective is a sum of -p log of differences of a (convex) and of -q log of
    differences of F(a), whose Hessian is tridiagonal and, while q / q' increases with the score,
    positive semidefinite.
    """
    entropy = float(masses_q @ np.log(masses_q) + masses_p @ np.log(masses_p))
    levels = np.clip(levels, _END, 1.0 - _END)
    value = _objective(masses_q, masses_p, curve, levels)
    while not np.isfinite(value) and levels.size and levels[0] > _END:
        # Where the curve is flat a cell has no mass of Q': go to where it is not.
        levels = levels / 2.0
        value = _objective(masses_q, masses_p, curve, levels)
    if not np.isfinite(value):
        return levels, 0.0
    for _ in range(_MAX_STEPS if levels.size else 0):
        step = _newton_step(masses_q, masses_p, curve, levels)
        size, trial, trial_value = 1.0, levels, np.inf
        while size > 1e-6:
            trial = levels - size * step
            trial_value = _objective(masses_q, masses_p, curve, trial)
            if trial_value < value:
                break
            size /= 2.0
        if not trial_value < value:
            break
        gain, levels, value = value - trial_value, trial, trial_value
        if gain <= _GAIN * (value + entropy):
            break
    return levels, max(0.0, value + entropy)


def log_factors(
    masses_q: Array,
    masses_p: Array,
    thresholds: NDArray[np.intp],
    levels: Array,
    power: Array,
    slope: Array,
    *,
    block_sizes: tuple[float, float] = (1.0, 1.0),
) -> tuple[Array, Array, Array]:
    """Returns log u and log v on the cells for several claims, and the mean log factor that is
    expected of a block.

    Args:
      masses_q: shape (k,), masses that Q is believed to have on the cells, in increasing order of
        the score.
      masses_p: the same for P.
      thresholds: shape (m,), the events that are bet on, see `NearestNull`.
      levels: shape (c, m), any a_k in (0, 1), decreasing: one row for each claim.
      power: shape (c, m), F(a_k) of each claim.
      slope: shape (c, m), a supergradient of F at a_k.
      block_sizes: samples of Q and of P in one block, whose halves are averaged.

    Returns:
      log u, shape (c, k), used at samples of Q; log v, shape (c, k), used at samples of P; the
      expected log factor of a block, shape (c,), possibly negative. The factors are valid whatever
      the masses, thresholds and levels are.
    """
    merged_q = _merged(_tails(masses_q), thresholds)
    ratio = merged_q / np.maximum(_differences(power), _LEAST_CELL)
    weights = np.maximum(np.diff(np.minimum(ratio, 1e12)), 0.0)
    cell = np.searchsorted(thresholds, np.arange(masses_q.size), side="right")
    rise_u = _from_zero(weights)[:, cell] - (weights * power).sum(axis=1, keepdims=True)
    weights = weights * slope
    rise_v = (weights * levels).sum(axis=1, keepdims=True) - _from_zero(weights)[:, cell]
    lowest = np.minimum(rise_u.min(axis=1), rise_v.min(axis=1))
    largest = (1.0 - _LEAST_HALF) / np.maximum(-lowest, 1e-12)
    shares = np.minimum(_SHARES, largest[:, np.newaxis])[:, :, np.newaxis]
    logs_u = np.log1p(shares * rise_u[:, np.newaxis])
    logs_v = np.log1p(shares * rise_v[:, np.newaxis])
    growth = mean_log(logs_u, masses_q, block_sizes[0]) + mean_log(logs_v, masses_p, block_sizes[1])
    row, best = np.arange(len(levels)), growth.argmax(axis=1)
    return logs_u[row, best], logs_v[row, best], growth[row, best]


def _from_zero(weights: Array) -> Array:
    sums = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def _tails(masses: Array) -> Array:
    """Returns the mass of cell k and above for k = 1, 2, ..."""
    return np.asarray(np.cumsum(masses[::-1])[::-1][1:])


def _differences(values: Array) -> Array:
    """Returns the masses of the cells from those above their lower edges."""
    edges = np.zeros((*values.shape[:-1], values.shape[-1] + 2))
    edges[..., 0] = 1.0
    edges[..., 1:-1] = values
    return edges[..., :-1] - edges[..., 1:]


def _objective(masses_q: Array, masses_p: Array, curve: TradeOffCurve, levels: Array) -> float:
    if not (levels.size == 0 or (levels[0] < 1.0 and levels[-1] > 0.0)):
        return np.inf
    null_p = _differences(levels)
    if not null_p.min() > 0.0:
        return np.inf
    null_q = _differences(curve.power_at(levels))
    if not null_q.min() > 0.0:
        return np.inf
    return float(-masses_p @ np.log(null_p) - masses_q @ np.log(null_q))


def _newton_step(masses_q: Array, masses_p: Array, curve: TradeOffCurve, levels: Array) -> Array:
    slope = curve.slope_at(levels)
    null_p, null_q = _differences(levels), _differences(curve.power_at(levels))
    ratio_p, ratio_q = masses_p / null_p, masses_q / null_q
    bend_p, bend_q = ratio_p / null_p, ratio_q / null_q
    rise_q = np.diff(ratio_q)
    gradient = -np.diff(ratio_p) - slope * rise_q
    # F'' as a difference, so that curves made of straight pieces have one, too.
    reach = 0.01 * levels * (1.0 - levels)
    bend = (curve.slope_at(levels + reach) - curve.slope_at(levels - reach)) / (2.0 * reach)
    diagonal = bend_p[1:] + bend_p[:-1] + slope**2 * (bend_q[1:] + bend_q[:-1])
    diagonal += np.maximum(0.0, -bend * rise_q)
    bands = np.zeros((2, levels.size))
    bands[1] = diagonal * (1.0 + 1e-10)
    bands[0, 1:] = -bend_p[1:-1] - slope[:-1] * slope[1:] * bend_q[1:-1]
    if levels.size > 1:
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.asarray(solveh_banded(bands, gradient, check_finite=False))
    return np.asarray(gradient / diagonal)
