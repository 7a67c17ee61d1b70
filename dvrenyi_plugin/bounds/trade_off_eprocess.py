"""The trade-off e-process: an anytime-valid lower bound in a family of trade-off curves, from
samples.

Pairs of samples multiply the factors of `trade_off_factor` for every curve of a family that is
ordered by leakage; `eprocess` says why the largest parameter rejected with all smaller ones is a
lower bound at any time. What is bounded is the least member of the family that the two laws keep:
"not mu-Gaussian DP for any mu below the bound". No D_alpha is bounded by it, since a mechanism may
break a curve at a single event.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from dvrenyi_plugin._internal.validation import check_int, check_real
from dvrenyi_plugin.bounds.eprocess import DEFAULT_REFIT_RATIO, EProcess
from dvrenyi_plugin.bounds.trade_off_factor import (
    NearestNull,
    keeps_claim,
    log_factors,
    nearest_null,
)
from dvrenyi_plugin.critics.fitters import LogRatioFitter, fit_log_ratio
from dvrenyi_plugin.critics.log_ratio import Array, LogRatio, values_at_past
from dvrenyi_plugin.privacy.trade_off import TradeOffCurve
from dvrenyi_plugin.privacy.trade_off_families import TradeOffFamily, check_family

# Pairs before the first bet when nobody knows how many will come: half the promised noise (mu 2 for
# a claim of 1) was refuted after a mean of 44.0 pairs with 14, 45.6 with 16 and 44.5 with 12 (200
# seeds), and in one run of ten after more than 71, 74 and 82.
TRADE_OFF_WARM_UP = 14
# Nulls at which the best bet is solved for; in between its levels are interpolated.
_COARSE_NULLS = 6
# Added to every believed mass, so that none is zero.
_LEAST_MASS = 1e-6
# Bets that are expected to earn less a block, in nats, are not placed.
_LEAST_GROWTH = 1e-6
# Levels at which the most that any pair of samples can earn is looked for.
_LEVELS = expit(np.linspace(-40.0, 40.0, 4001))


@dataclasses.dataclass(frozen=True)
class _Believed:
    """What an estimated log ratio says of the two laws, on cells of its values.

    Attributes:
      log_ratio: the estimate.
      edges: shape (k - 1,), increasing, where its values change cells.
      masses_q, masses_p: shape (k,), positive masses of the two laws on the cells.
    """

    log_ratio: LogRatio
    edges: Array
    masses_q: Array
    masses_p: Array

    def cells(self, samples: Array) -> NDArray[np.intp]:
        return np.searchsorted(self.edges, self.log_ratio(samples), side="right")


@dataclasses.dataclass(frozen=True)
class _Bettor:
    """Everything fixed between two refits; see `dvrenyi_plugin.bounds.eprocess.Bettor`."""

    believed: _Believed
    nulls: NDArray[np.intp]
    log_first: Array
    log_second: Array

    def cells(self, samples: Array) -> NDArray[np.intp]:
        return self.believed.cells(samples)


class TradeOffEProcess(EProcess):
    """Bets against "Q(E) <= F_t(P(E)) for every event E" for a grid of t, batch by batch; see
    `EProcess`.

    A symmetric curve says the same of (P, Q), so for such a family one process covers both orders
    of the laws.

    Args:
      family: the curves F_t.
      failure_probability: level of the lower bound on t, in (0, 1), one-sided, over all times at
        once.
      claims: further parameters to test beside the family's grid, each >= 0.
      fit: returns an estimate of log dQ/dP from past samples, and its name.
      warm_up: pairs seen before the first bet, >= 2.
      refit_ratio: the estimate and the bets are refitted each time the pairs seen grow by this
        factor, > 1.
      num_cells: cells of the estimate's values that are told apart, >= 2; by default more as more
        pairs are seen. Validity does not depend on it.

    Source: the factor and its proof: `dvrenyi_plugin.bounds.trade_off_factor`.
    """

    def __init__(
        self,
        family: TradeOffFamily,
        failure_probability: float,
        *,
        claims: Sequence[float] = (),
        fit: LogRatioFitter = fit_log_ratio,
        warm_up: int = TRADE_OFF_WARM_UP,
        refit_ratio: float = DEFAULT_REFIT_RATIO,
        num_cells: int | None = None,
    ) -> None:
        self._curves = check_family(family)
        self._num_cells = (
            None if num_cells is None else check_int("num_cells", num_cells, at_least=2)
        )
        super().__init__(
            failure_probability,
            claims=claims,
            grid=family.grid,
            grid_name="family.grid",
            null_name=family.parameter,
            fit=fit,
            warm_up=warm_up,
            refit_ratio=refit_ratio,
        )

    @property
    def family(self) -> TradeOffFamily:
        """The curves whose parameter is bounded."""
        return self._curves

    def can_reject(self, value: float, num_pairs: float) -> bool:
        """Returns whether any samples at all could reject the curve of this parameter within so
        many pairs from the start.

        Those of `add_history` count too. Where the answer is no, the lower bound stays below the
        parameter whatever the laws
        are: u(x) v(y) is at most 1 / (F(a) (1 - a)) for every a, since two laws on the points x and
        y with P(x) = a and Q(x) = F(a) keep the claim, and the mean of the factor under them is at
        most 1.
        """
        value = check_real(self._curves.parameter, value, at_least=0.0)
        bets = check_real("num_pairs", num_pairs, at_least=0.0) - max(self._warm_up, self._observed)
        power = self._curves.curve(value).power_at(_LEVELS)
        return bets * -math.log(float((power * (1.0 - _LEVELS)).max())) >= self._log_threshold

    def point_estimate(self) -> float:
        """Returns the least parameter of the grid whose curve the fitted log ratio's laws keep, 0.0
        for equal laws, the largest of the grid when none does: no confidence statement goes with
        it.
        """
        self._check_seen()
        past_q, past_p = self._past[0].array, self._past[1].array
        believed = self._believe(self._fit(past_q, past_p)[0], past_q, past_p)
        if believed is None:
            return 0.0
        broken = self._count_broken(believed, np.arange(self._nulls.size))
        return float(self._nulls[min(broken, self._nulls.size - 1)]) if broken else 0.0

    def _new_bettor(self, log_ratio: LogRatio, past_q: Array, past_p: Array) -> _Bettor | None:
        believed = self._believe(log_ratio, past_q, past_p)
        if believed is None:
            return None
        open_nulls = np.flatnonzero(~self._rejected)
        # The believed laws keep all larger ones, so that nothing can be earned there.
        broken = open_nulls[: self._count_broken(believed, open_nulls)]
        if broken.size == 0:
            return None
        rarer = self._blocks_seen
        sizes = (len(past_q) / rarer, len(past_p) / rarer)
        parts = self._bets_on(believed, broken, sizes)
        first, second, growth = (np.concatenate(part) for part in zip(*parts, strict=True))
        earns = growth > _LEAST_GROWTH
        if not earns.any():
            return None
        return _Bettor(believed, broken[earns], first[earns], second[earns])

    def _believe(self, log_ratio: LogRatio, past_q: Array, past_p: Array) -> _Believed | None:
        """Returns the masses that the estimate gives to cells with equal shares of the past; None
        when it sees no difference.

        The past says where its values lie, the estimate how the mass at each is shared: counts
        alone would be noisier.
        """
        values_q, values_p = values_at_past(log_ratio, past_q, past_p)
        counts = len(values_q), len(values_p)
        values = np.concatenate([values_q, values_p])
        weights = np.repeat([0.5 / counts[0], 0.5 / counts[1]], counts)
        cells = self._num_cells or _default_num_cells(self._blocks_seen)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order])
        places = np.searchsorted(below, np.arange(1, cells) / cells)
        starts = np.unique(values[order][np.minimum(places, values.size - 1)])
        starts = starts[starts > values.min()]
        # Between two samples the cut is in the middle: laws that are far apart leave a gap, and the
        # next sample may lie a little in it.
        distinct = np.unique(values)
        edges = 0.5 * (distinct[np.searchsorted(distinct, starts) - 1] + starts)
        if edges.size == 0:
            return None
        cell = np.searchsorted(edges, values, side="right")
        masses_q, masses_p = (
            np.bincount(cell, weights=weights * share, minlength=edges.size + 1) + _LEAST_MASS
            for share in (expit(values), expit(-values))
        )
        return _Believed(log_ratio, edges, masses_q / masses_q.sum(), masses_p / masses_p.sum())

    def _count_broken(self, believed: _Believed, nulls: NDArray[np.intp]) -> int:
        """Returns how many of the nulls, the smallest ones, the believed laws break."""
        broken, kept = 0, nulls.size
        while broken < kept:
            middle = (broken + kept) // 2
            curve = self._curve(nulls[middle])
            if keeps_claim(believed.masses_q, believed.masses_p, curve):
                kept = middle
            else:
                broken = middle + 1
        return broken

    def _bets_on(
        self, believed: _Believed, nulls: NDArray[np.intp], block_sizes: tuple[float, float]
    ) -> list[tuple[Array, Array, Array]]:
        """Returns log u, log v and the expected growth for the nulls, in consecutive parts."""
        values = self._nulls[nulls]
        coarse = np.searchsorted(values, np.linspace(values[0], values[-1], _COARSE_NULLS))
        coarse = np.unique(np.append(0, np.minimum(coarse, values.size - 1)))
        solved: list[NearestNull] = []
        for index in coarse:
            solved.append(
                nearest_null(
                    believed.masses_q,
                    believed.masses_p,
                    self._curve(nulls[index]),
                    solved[-1] if solved else None,
                )
            )
        parts = []
        for left, best in enumerate(solved):
            last = left + 1 == len(solved)
            stop = values.size if last else int(coarse[left + 1])
            part = values[coarse[left] : stop]
            levels = np.repeat(best.levels[np.newaxis], part.size, axis=0)
            if not last and np.array_equal(best.thresholds, solved[left + 1].thresholds):
                share = (part - values[coarse[left]]) / (values[stop] - values[coarse[left]])
                steps = logit(solved[left + 1].levels) - logit(best.levels)
                levels = expit(logit(best.levels) + share[:, np.newaxis] * steps)
            parts.append(
                log_factors(
                    believed.masses_q,
                    believed.masses_p,
                    best.thresholds,
                    levels,
                    *self._curves.power_and_slope_at(part, levels),
                    block_sizes=block_sizes,
                )
            )
        return parts

    def _curve(self, null: np.intp) -> TradeOffCurve:
        return self._curves.curve(float(self._nulls[null]))


def _default_num_cells(pairs: int) -> int:
    """24 up to 500 pairs, 48 at 5,000, 96 from 50,000: with 24 the bound came to 0.966 of its limit
    at 5,000.
    """
    return int(min(96.0, max(24.0, 24.0 * (pairs / 500.0) ** 0.3)))
