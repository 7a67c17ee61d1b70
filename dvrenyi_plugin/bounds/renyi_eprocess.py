"""The growth-optimal e-process: an anytime-valid lower bound on D_alpha(Q || P) from samples.

Pairs of samples multiply the factors of `growth_factor` for a whole grid of nulls "D_alpha <=
epsilon"; `eprocess` says why the largest one rejected with all smaller ones is a lower bound at any
time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import (
    check_int,
    check_order,
    check_orders,
    check_real,
    check_samples,
)
from dvrenyi_plugin.bounds.eprocess import (
    CLAIM_MARGIN,
    DEFAULT_REFIT_RATIO,
    STREAM_WARM_UP,
    EProcess,
    check_epsilons,
)
from dvrenyi_plugin.bounds.growth_factor import best_bets, interpolate_bets, log_factors
from dvrenyi_plugin.bounds.information_limit import largest_rate
from dvrenyi_plugin.critics.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.critics.fitters import LogRatioFitter, fit_log_ratio, guarded_fit
from dvrenyi_plugin.critics.log_ratio import Array, LogRatio, values_at_past

# Steps of 2%: at 50,000 pairs the sampling error of the bound is about as large.
DEFAULT_EPSILONS = np.geomspace(1e-3, 60.0, 557)
# Nulls at which bets are optimised; in between they are interpolated.
_COARSE_NULLS = 16


@dataclasses.dataclass(frozen=True)
class _Bettor:
    """Everything fixed between two refits.

    Attributes:
      log_ratio: the estimate that bets.
      low, high: range of its values on the past; later values are clipped into it.
      nulls: shape (k,), indices of the nulls that are bet on.
      log_first, log_second: shape (k, cells), log factors tabulated on equal cells of [low, high].
    """

    log_ratio: LogRatio
    low: float
    high: float
    nulls: NDArray[np.intp]
    log_first: Array
    log_second: Array

    def cells(self, samples: Array) -> NDArray[np.intp]:
        return _nearest_cell(self.log_ratio(samples), self.low, self.high, self.log_first.shape[1])


class GrowthOptimalEProcess(EProcess):
    """Bets against "D_alpha(Q || P) <= epsilon" for a grid of epsilons, batch by batch; see
    `EProcess`.

    Args:
      alpha: order > 1.
      failure_probability: level of the lower bound, in (0, 1), one-sided, over all times at once.
      claims: further epsilons to test, each >= 0.
      epsilons: shape (k,), increasing positive grid of nulls.
      fit: returns an estimate of log dQ/dP from past samples, and its name.
      warm_up: pairs seen before the first bet, >= 2.
      refit_ratio: the estimate and the bets are refitted each time the pairs seen grow by this
        factor, > 1.
      num_cells: values of the log ratio that are told apart, >= 2; by default more as more pairs
        are seen. The tilted ratio is a step function on them; validity does not depend on it.

    Source: the factor and its proof: `dvrenyi_plugin.bounds.growth_factor`.
    """

    def __init__(
        self,
        alpha: float,
        failure_probability: float,
        *,
        claims: Sequence[float] = (),
        epsilons: Array | None = None,
        fit: LogRatioFitter = fit_log_ratio,
        warm_up: int = STREAM_WARM_UP,
        refit_ratio: float = DEFAULT_REFIT_RATIO,
        num_cells: int | None = None,
    ) -> None:
        self._alpha = check_order(alpha)
        self._num_cells = (
            None if num_cells is None else check_int("num_cells", num_cells, at_least=2)
        )
        super().__init__(
            failure_probability,
            claims=claims,
            grid=DEFAULT_EPSILONS if epsilons is None else epsilons,
            grid_name="epsilons",
            null_name="epsilon",
            fit=fit,
            warm_up=warm_up,
            refit_ratio=refit_ratio,
        )

    @property
    def alpha(self) -> float:
        """The order of the divergence."""
        return self._alpha

    def can_reject(self, epsilon: float, num_pairs: float) -> bool:
        """Returns whether any samples at all could reject "D_alpha <= epsilon" within so many pairs
        from the start.

        Those of `add_history` count too. Where the answer is no, the lower bound stays below
        epsilon whatever the laws are.
        """
        epsilon = check_real("epsilon", epsilon, at_least=0.0)
        bets = check_real("num_pairs", num_pairs, at_least=0.0) - max(self._warm_up, self._observed)
        return bets * largest_rate(self._alpha, epsilon) >= self._log_threshold

    def point_estimate(self) -> float:
        """Returns the Donsker-Varadhan value of the fitted log ratio on the samples it was fitted
        to, cut at 0: a point estimate of D_alpha, without any confidence statement."""
        log_ratio = self.fitted_log_ratio()
        past = self._past[0].array, self._past[1].array
        return max(
            0.0,
            donsker_varadhan_value(*values_at_past(log_ratio, *past), self._alpha),
        )

    def _new_bettor(self, log_ratio: LogRatio, past_q: Array, past_p: Array) -> _Bettor | None:
        values_q, values_p = values_at_past(log_ratio, past_q, past_p)
        low = float(min(values_q.min(), values_p.min()))
        high = float(max(values_q.max(), values_p.max()))
        if high <= low:  # no difference seen: nothing to bet on
            return None
        cells = self._num_cells or _default_num_cells(self._blocks_seen)
        nodes = np.linspace(low, high, cells)
        weights_q = np.bincount(_nearest_cell(values_q, low, high, cells), minlength=cells)
        weights_p = np.bincount(_nearest_cell(values_p, low, high, cells), minlength=cells)
        # A null far above the estimated divergence earns nothing; the factor 2 leaves room for a
        # poor estimate.
        largest = 2.0 * max(0.0, donsker_varadhan_value(values_q, values_p, self._alpha)) + 0.05
        open_nulls = np.flatnonzero(~self._rejected & (self._nulls <= largest))
        if open_nulls.size == 0:
            return None
        epsilons = self._nulls[open_nulls]
        coarse = epsilons
        if epsilons.size > _COARSE_NULLS:
            coarse = np.geomspace(epsilons[0], epsilons[-1], _COARSE_NULLS)
        rarer = self._blocks_seen
        bets, growth = best_bets(
            self._alpha,
            coarse,
            nodes,
            weights_q / len(values_q),
            weights_p / len(values_p),
            (len(past_q) / rarer, len(past_p) / rarer),
        )
        earns = np.interp(np.log(epsilons), np.log(coarse), growth) > 0.0
        if not earns.any():
            return None
        first, second = log_factors(
            self._alpha,
            epsilons[earns],
            interpolate_bets(self._alpha, epsilons[earns], coarse, bets),
            nodes,
        )
        return _Bettor(log_ratio, low, high, open_nulls[earns], first, second)


def _nearest_cell(values: Array, low: float, high: float, cells: int) -> NDArray[np.intp]:
    share = (np.clip(values, low, high) - low) / (high - low)
    return np.rint(share * (cells - 1)).astype(np.intp)


def _default_num_cells(pairs: int) -> int:
    """The loss of growth is quadratic in the cell width, and what a pair earns near the bound falls
    like 1 / pairs; beyond 512 cells (some 16,000 pairs) nothing more was gained at 50,000 pairs."""
    return int(min(512.0, max(64.0, 4.0 * math.sqrt(pairs))))


def most_promising_order(
    alphas: Sequence[float],
    epsilons: Sequence[float],
    samples_q: Any,
    samples_p: Any,
    fit: LogRatioFitter = fit_log_ratio,
) -> int:
    """Returns the index of the order at which these samples expect an e-process to grow fastest.

    Args:
      alphas: shape (k,), orders > 1.
      epsilons: shape (k,), what the claim allows at each order, >= 0.
      samples_q: shape (n, d), n >= 1; must not be bet on afterwards.
      samples_p: shape (m, d), m >= 1; must not be bet on afterwards.
      fit: estimator of log dQ/dP.
    """
    q = check_samples("samples_q", samples_q, min_samples=1)
    p = check_samples("samples_p", samples_p, min_samples=1)
    if q.shape[1] != p.shape[1]:
        raise ValueError(
            "samples_q and samples_p must have the same number of columns, got shapes"
            f" {q.shape} and {p.shape}"
        )
    alphas, epsilons = check_orders(alphas, "alphas"), check_epsilons("epsilons", epsilons)
    if len(alphas) != len(epsilons) or not alphas:
        raise ValueError(
            f"alphas and epsilons must have one length >= 1, got {len(alphas)} and {len(epsilons)}"
        )
    log_ratio = guarded_fit(fit)(q, p)[0]
    values_q, values_p = values_at_past(log_ratio, q, p)
    nodes, counts = np.unique(np.concatenate([values_q, values_p]), return_inverse=True)
    split = len(values_q)
    weights_q = np.bincount(counts[:split], minlength=nodes.size) / split
    weights_p = np.bincount(counts[split:], minlength=nodes.size) / len(values_p)
    growth = [
        best_bets(
            alpha,
            np.array([max(epsilon, CLAIM_MARGIN)]),
            nodes,
            weights_q,
            weights_p,
        )[1][0]
        for alpha, epsilon in zip(alphas, epsilons, strict=True)
    ]
    return int(np.argmax(growth))
