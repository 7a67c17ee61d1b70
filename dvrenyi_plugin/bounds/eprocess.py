"""The growth-optimal e-process: an anytime-valid lower bound on D_alpha(Q || P) from samples.

Pairs of samples multiply the factors of `growth_optimal` for a whole grid of nulls "D_alpha <= epsilon". The log
ratio, the bets and everything else that a factor uses come from earlier samples only, so each product is a
nonnegative supermartingale under its null and reaches 1 / failure_probability with at most that probability,
at any time (Ville's inequality). No sample is set aside for fitting: each one first certifies, then fits.

The lower bound is the largest epsilon of the grid such that it and every smaller one are rejected (fixed
sequence). The largest rejected one wherever it lies would not do, since each null has a bet of its own.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._validation import (
    check_epsilon,
    check_failure_probability,
    check_int,
    check_numbers,
    check_order,
    check_orders,
    check_real,
    check_samples,
)
from dvrenyi_plugin.bounds.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.bounds.growth_optimal import best_bets, interpolate_bets, log_factors
from dvrenyi_plugin.bounds.guarded_fit import LogRatioFitter as LogRatioFitter
from dvrenyi_plugin.bounds.guarded_fit import guarded_fit
from dvrenyi_plugin.bounds.limit import largest_rate
from dvrenyi_plugin.bounds.log_ratio import Array, LogRatio, fit_log_ratio

# Pairs before the first bet when samples arrive one batch after another and nobody knows how many will come.
STREAM_WARM_UP = 30
# Steps of 2%: at 50,000 pairs the sampling error of the bound is about as large.
DEFAULT_EPSILONS = np.geomspace(1e-3, 60.0, 557)
# A claim is tested a hair above itself, so that rejecting this null means a bound above the claim.
_CLAIM_MARGIN = 1e-9
# Nulls at which bets are optimised; in between they are interpolated.
_COARSE_NULLS = 16
# Table entries (nulls x samples) held at once.
_MAX_TABLE = 4_000_000


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


class GrowthOptimalEProcess:
    """Bets against "D_alpha(Q || P) <= epsilon" for a grid of epsilons, batch by batch.

    Args:
      alpha: order > 1.
      failure_probability: level of the lower bound, in (0, 1), one-sided, over all times at once.
      claims: further epsilons to test, each >= 0; a claim is exceeded by `lower_bound` exactly when its own
        null, and every smaller one of the grid, is rejected.
      epsilons: shape (k,), increasing positive grid of nulls.
      fit: returns an estimate of log dQ/dP from past samples, (n, d) -> (n,), and its name. The estimate must treat
        its rows one by one: a value that depends on the other rows would look ahead. Whenever one that is not this
        package's gives values, they are checked for it, see `RowByRow`.
      warm_up: pairs seen before the first bet, >= 2.
      refit_ratio: the estimate and the bets are refitted each time the pairs seen grow by this factor, > 1.
      num_cells: values of the log ratio that are told apart, >= 2; by default more as more pairs are seen.
        The tilted ratio is a step function on them; validity does not depend on it.

    Source: e-processes and Ville's inequality: Ramdas, Grünwald, Vovk and Shafer (2023); the factor and its proof:
    `dvrenyi_plugin.bounds.growth_optimal`.
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
        refit_ratio: float = 1.45,
        num_cells: int | None = None,
    ) -> None:
        self._alpha = check_order(alpha)
        self._failure_probability = check_failure_probability(failure_probability)
        self._fit = guarded_fit(fit)
        self._refit_ratio = check_real("refit_ratio", refit_ratio, above=1.0)
        self._num_cells = (
            None if num_cells is None else check_int("num_cells", num_cells, at_least=2)
        )
        self._warm_up = self._next_fit = check_int("warm_up", warm_up, at_least=2)
        grid = _check_grid(DEFAULT_EPSILONS if epsilons is None else epsilons)
        exact = [
            max(min(claim * (1.0 + _CLAIM_MARGIN), sys.float_info.max), _CLAIM_MARGIN)
            for claim in _check_epsilons("claims", claims)
        ]
        self._epsilons = np.unique(np.concatenate([grid, exact]))
        self._log_threshold = math.log(1.0 / self._failure_probability)
        self._log_e = np.zeros(self._epsilons.size)
        self._rejected = np.zeros(self._epsilons.size, dtype=bool)
        self._past: tuple[_Samples, _Samples] = (_Samples(), _Samples())
        self._waiting: tuple[_Samples, _Samples] = (_Samples(), _Samples())
        self._observed = self._blocks_seen = 0
        self._bettor: _Bettor | None = None
        self._family: str | None = None

    def update(self, samples_q: Any, samples_p: Any) -> None:
        """Bets on the next samples, shapes (n, d) and (m, d), then adds them to the past.

        Counts may differ, and either may be 0 (an array of shape (0, d)). Samples go in blocks of one sample of the rarer
        law and an even share of the other's; what finds no partner waits for the next call. How many samples of either law
        come next may depend on blocks that were bet on, not on samples that still wait.
        """
        batches = [
            check_samples(name, s, min_samples=0)
            for name, s in (("samples_q", samples_q), ("samples_p", samples_p))
        ]
        earlier = [s.dimension for s in (*self._past, *self._waiting)]
        seen = {b.shape[1] for b in batches} | {d for d in earlier if d is not None}
        if len(seen) > 1:
            raise ValueError(
                "samples_q and samples_p must keep one number of columns, got shapes"
                f" {batches[0].shape} and {batches[1].shape} after samples with {sorted(seen)}"
            )
        for waiting, batch in zip(self._waiting, batches, strict=True):
            waiting.append(batch)
        blocks = min(len(self._waiting[0]), len(self._waiting[1]))
        if blocks == 0:
            return
        q, p = self._waiting[0].take_all(), self._waiting[1].take_all()
        edges_q, edges_p = _block_edges(len(q), blocks), _block_edges(len(p), blocks)
        start = 0
        while start < blocks:
            if self._blocks_seen >= self._next_fit:
                self._refit()
            stop = min(blocks, start + max(1, self._next_fit - self._blocks_seen))
            part_q = q[edges_q[start] : edges_q[stop]]
            part_p = p[edges_p[start] : edges_p[stop]]
            if self._bettor is not None:
                self._bet(
                    self._bettor,
                    part_q,
                    part_p,
                    edges_q[start:stop] - edges_q[start],
                    edges_p[start:stop] - edges_p[start],
                )
            self._past[0].append(part_q)
            self._past[1].append(part_p)
            self._blocks_seen += stop - start
            start = stop

    def observe(self, samples_q: Any, samples_p: Any) -> None:
        """Adds samples to the past without betting on them: what an earlier step has already used.

        Args:
          samples_q: shape (n, d), n >= 1.
          samples_p: shape (m, d), m >= 1.

        Raises:
          ValueError: malformed samples, or `update` was called before: the past comes first.
        """
        if self._blocks_seen or any(map(len, self._waiting)):
            raise ValueError(
                f"observe must come before update, got {self._blocks_seen} pairs before"
            )
        q = check_samples("samples_q", samples_q, min_samples=1)
        p = check_samples("samples_p", samples_p, min_samples=1)
        dimension = self._past[0].dimension or q.shape[1]
        if not q.shape[1] == p.shape[1] == dimension:
            raise ValueError(
                "samples_q and samples_p must keep one number of columns, got shapes"
                f" {q.shape} and {p.shape}"
            )
        self._past[0].append(q)
        self._past[1].append(p)
        self._observed = self._blocks_seen = min(map(len, self._past))

    @property
    def alpha(self) -> float:
        """The order of the divergence."""
        return self._alpha

    @property
    def lower_bound(self) -> float:
        """Largest epsilon rejected with every smaller one: a lower bound on D_alpha, 0.0 when there is none.

        Exceeds D_alpha at any time with probability at most the failure probability.
        """
        accepted = np.flatnonzero(~self._rejected)
        first = int(accepted[0]) if accepted.size else self._epsilons.size
        return float(self._epsilons[first - 1]) if first else 0.0

    def log_e_value(self, epsilon: float) -> float:
        """Returns the log e-value against "D_alpha <= epsilon": that of the smallest null of the grid that
        contains it (a claim's own null for claims). It stays as it was once it rejected.

        Raises:
          ValueError: epsilon is negative, NaN, or beyond the grid.
        """
        epsilon = check_real("epsilon", epsilon, at_least=0.0, at_most=float(self._epsilons[-1]))
        return float(self._log_e[np.searchsorted(self._epsilons, epsilon)])

    @property
    def num_pairs(self) -> int:
        """Blocks of samples seen so far."""
        return self._blocks_seen

    def can_reject(self, epsilon: float, num_pairs: float) -> bool:
        """Returns whether any samples at all could reject "D_alpha <= epsilon" within so many pairs from the start.

        Those of `observe` count too. Where the answer is no, the lower bound stays below epsilon whatever the laws are.
        """
        bets = num_pairs - max(self._warm_up, self._observed)
        return bets * largest_rate(self._alpha, epsilon) >= self._log_threshold

    @property
    def num_certifying(self) -> tuple[int, int]:
        """Samples of Q and of P that came after the first fit, and so could be bet on."""
        return self._past[0].after_mark, self._past[1].after_mark

    @property
    def num_samples(self) -> tuple[int, int]:
        """Samples of Q and of P seen so far, without those that wait for a partner."""
        return len(self._past[0]), len(self._past[1])

    @property
    def log_ratio_family(self) -> str | None:
        """Name of the estimator that bets now; None before the first fit."""
        return self._family

    def fitted_log_ratio(self) -> LogRatio:
        """Returns an estimate of log dQ/dP from all samples seen, (n, d) -> (n,)."""
        self._check_seen()
        return self._fit(self._past[0].array, self._past[1].array)[0]

    def point_estimate(self) -> float:
        """Returns the Donsker-Varadhan value of the fitted log ratio on the samples it was fitted to, cut at
        0: a point estimate of D_alpha, without any confidence statement."""
        log_ratio = self.fitted_log_ratio()
        return max(
            0.0,
            donsker_varadhan_value(
                log_ratio(self._past[0].array), log_ratio(self._past[1].array), self._alpha
            ),
        )

    def _check_seen(self) -> None:
        if self._blocks_seen < 1:
            raise ValueError("an estimate must have at least 1 pair of samples, got 0")

    def _refit(self) -> None:
        past_q, past_p = self._past[0].array, self._past[1].array
        for samples in self._past:
            samples.mark()
        log_ratio, self._family = self._fit(past_q, past_p)
        values_q, values_p = log_ratio(past_q), log_ratio(past_p)
        low = float(min(values_q.min(), values_p.min()))
        high = float(max(values_q.max(), values_p.max()))
        self._next_fit = max(
            self._blocks_seen + 1, math.ceil(self._blocks_seen * self._refit_ratio)
        )
        self._bettor = None
        if high <= low:  # no difference seen: nothing to bet on
            return
        cells = self._num_cells or _default_num_cells(self._blocks_seen)
        nodes = np.linspace(low, high, cells)
        weights_q = np.bincount(_nearest_cell(values_q, low, high, cells), minlength=cells)
        weights_p = np.bincount(_nearest_cell(values_p, low, high, cells), minlength=cells)
        # A null far above the estimated divergence earns nothing; the factor 2 leaves room for a poor estimate.
        largest = 2.0 * max(0.0, donsker_varadhan_value(values_q, values_p, self._alpha)) + 0.05
        open_nulls = np.flatnonzero(~self._rejected & (self._epsilons <= largest))
        if open_nulls.size == 0:
            return
        epsilons = self._epsilons[open_nulls]
        coarse = epsilons
        if epsilons.size > _COARSE_NULLS:
            coarse = np.geomspace(epsilons[0], epsilons[-1], _COARSE_NULLS)
        rarer = self._blocks_seen
        bets, growth = best_bets(
            self._alpha,
            coarse,
            nodes,
            weights_q / len(past_q),
            weights_p / len(past_p),
            (len(past_q) / rarer, len(past_p) / rarer),
        )
        earns = np.interp(np.log(epsilons), np.log(coarse), growth) > 0.0
        if not earns.any():
            return
        first, second = log_factors(
            self._alpha,
            epsilons[earns],
            interpolate_bets(self._alpha, epsilons[earns], coarse, bets),
            nodes,
        )
        self._bettor = _Bettor(log_ratio, low, high, open_nulls[earns], first, second)

    def _bet(
        self,
        bettor: _Bettor,
        part_q: Array,
        part_p: Array,
        starts_q: NDArray[np.intp],
        starts_p: NDArray[np.intp],
    ) -> None:
        cells_q, cells_p = bettor.cells(part_q), bettor.cells(part_p)
        rows = max(1, _MAX_TABLE // max(len(cells_q), len(cells_p)))
        for top in range(0, bettor.nulls.size, rows):
            chunk = slice(top, top + rows)
            nulls = bettor.nulls[chunk]
            gains = _block_means(bettor.log_first[chunk], cells_q, starts_q)
            gains += _block_means(bettor.log_second[chunk], cells_p, starts_p)
            running = self._log_e[nulls, np.newaxis] + np.cumsum(gains, axis=1)
            reached = running >= self._log_threshold
            crossed = reached.any(axis=1) & ~self._rejected[nulls]
            last = np.where(crossed, reached.argmax(axis=1), running.shape[1] - 1)
            values = running[np.arange(nulls.size), last]
            # Stopping at the first crossing keeps the e-value valid: a later loss cannot undo it.
            self._log_e[nulls] = np.where(self._rejected[nulls], self._log_e[nulls], values)
            self._rejected[nulls] |= crossed


class _Samples:
    """Samples in order of arrival, with a mark at the first fit."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._marked: int | None = None

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def dimension(self) -> int | None:
        return self._parts[0].shape[1] if self._parts else None

    @property
    def array(self) -> Array:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    @property
    def after_mark(self) -> int:
        return 0 if self._marked is None else len(self) - self._marked

    def append(self, samples: Array) -> None:
        if len(samples):
            self._parts.append(samples)

    def take_all(self) -> Array:
        taken = self.array
        self._parts = []
        return taken

    def mark(self) -> None:
        if self._marked is None:
            self._marked = len(self)


def _check_epsilons(name: str, values: Any) -> tuple[float, ...]:
    if isinstance(values, (str, bytes, dict)) or not np.iterable(values):
        raise ValueError(f"{name} must be a sequence of numbers >= 0, got {values!r}")
    return tuple(check_epsilon(value, name) for value in values)


def _check_grid(epsilons: Any) -> Array:
    grid = check_numbers("epsilons", epsilons)
    if (
        grid.ndim != 1
        or grid.size == 0
        or not np.all(np.isfinite(grid))
        or grid[0] <= 0.0
        or np.any(np.diff(grid) <= 0.0)
    ):
        raise ValueError(
            f"epsilons must be a finite, positive, increasing array of shape (k,), got {epsilons!r}"
        )
    return grid


def _block_edges(count: int, blocks: int) -> NDArray[np.intp]:
    return (np.arange(blocks + 1) * count) // blocks


def _nearest_cell(values: Array, low: float, high: float, cells: int) -> NDArray[np.intp]:
    share = (np.clip(values, low, high) - low) / (high - low)
    return np.rint(share * (cells - 1)).astype(np.intp)


def _block_means(log_table: Array, cells: NDArray[np.intp], starts: NDArray[np.intp]) -> Array:
    """Returns the log of the mean factor of each block, shape (nulls, blocks)."""
    gathered = log_table[:, cells]
    if starts.size == cells.size:
        return gathered
    sizes = np.diff(np.append(starts, cells.size))
    means = np.add.reduceat(np.exp(gathered), starts, axis=1) / sizes
    return np.asarray(np.log(means))


def _default_num_cells(pairs: int) -> int:
    """The loss of growth is quadratic in the cell width, and what a pair earns near the bound falls like
    1 / pairs; beyond 512 cells (some 16,000 pairs) nothing more was gained at 50,000 pairs."""
    return int(min(512.0, max(64.0, 4.0 * math.sqrt(pairs))))


def sample_size_warm_up(num_pairs: int) -> int:
    """Returns the pairs to see before the first bet when the number of pairs to come is known.

    About 2.2 sqrt(num_pairs) (50 of 500, 155 of 5,000): earlier bets are placed by estimates too rough to earn.
    """
    return max(10, round(2.2 * math.sqrt(check_int("num_pairs", num_pairs, at_least=0))))


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
    alphas, epsilons = check_orders(alphas, "alphas"), _check_epsilons("epsilons", epsilons)
    if len(alphas) != len(epsilons) or not alphas:
        raise ValueError(
            f"alphas and epsilons must have one length >= 1, got {len(alphas)} and {len(epsilons)}"
        )
    log_ratio = guarded_fit(fit)(q, p)[0]
    values_q, values_p = log_ratio(q), log_ratio(p)
    nodes, counts = np.unique(np.concatenate([values_q, values_p]), return_inverse=True)
    weights_q = np.bincount(counts[: len(q)], minlength=nodes.size) / len(q)
    weights_p = np.bincount(counts[len(q) :], minlength=nodes.size) / len(p)
    growth = [
        best_bets(
            alpha,
            np.array([max(epsilon, _CLAIM_MARGIN)]),
            nodes,
            weights_q,
            weights_p,
        )[1][0]
        for alpha, epsilon in zip(alphas, epsilons, strict=True)
    ]
    return int(np.argmax(growth))
