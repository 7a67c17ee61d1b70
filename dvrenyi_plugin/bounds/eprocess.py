"""What every e-process here shares: pairs of samples that bet against a growing list of nulls,
batch by batch.

Pairs of samples multiply factors for a whole grid of nulls, each contained in the next. The log
ratio, the bets and everything else that a factor uses come from earlier samples only, so each
product is a nonnegative supermartingale under its null and reaches 1 / failure_probability with at
most that probability, at any time (Ville's inequality). No sample is set aside for fitting: each
one first certifies, then fits.

The lower bound is the largest null of the grid such that it and every smaller one are rejected
(fixed sequence). The largest rejected one wherever it lies would not do, since each null has a bet
of its own.
"""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import (
    check_epsilon,
    check_failure_probability,
    check_int,
    check_many,
    check_numbers,
    check_real,
    check_samples,
)
from dvrenyi_plugin.critics.fitters import LogRatioFitter, guarded_fit
from dvrenyi_plugin.critics.log_ratio import Array, LogRatio

# Pairs before the first bet when samples arrive one batch after another and nobody knows how many
# will come.
STREAM_WARM_UP = 30
# Past samples grow by this factor from one refit to the next: 1.2 earned little more at n = 500.
DEFAULT_REFIT_RATIO = 1.3
# A claim is tested a hair above itself, so that rejecting this null means a bound above the claim.
CLAIM_MARGIN = 1e-9
# Table entries (nulls x samples) held at once.
_MAX_TABLE = 4_000_000


class Bettor(Protocol):
    """Everything that is fixed between two refits."""

    @property
    def nulls(self) -> NDArray[np.intp]:
        """Shape (k,), indices of the nulls that are bet on."""

    @property
    def log_first(self) -> Array:
        """Shape (k, cells), log factors for a sample of Q in each cell."""

    @property
    def log_second(self) -> Array:
        """Shape (k, cells), log factors for a sample of P in each cell."""

    def cells(self, samples: Array) -> NDArray[np.intp]:
        """Returns the cell of each sample, shape (n,)."""


class EProcess(abc.ABC):
    """Bets against a list of nulls, each contained in the next; a kind of claim says which factor
    it bets with.

    Args:
      failure_probability: level of the lower bound, in (0, 1), one-sided, over all times at once.
      claims: nulls to test beside the grid, each >= 0; a claim is exceeded by `lower_bound` exactly
        when its own null, and every smaller one of the grid, is rejected.
      grid: shape (k,), increasing and positive, the parameters of the nulls.
      grid_name: of the argument that holds the grid, for messages.
      null_name: of the parameter, for messages.
      fit: returns an estimate of log dQ/dP from past samples, (n, d) -> (n,), and its name. The
        estimate must treat its rows one by one: a value that depends on the other rows would look
        ahead. Whenever one that is not this package's gives values, they are checked for it, see
        `RowByRow`.
      warm_up: pairs seen before the first bet, >= 2.
      refit_ratio: the estimate and the bets are refitted each time the pairs seen grow by this
        factor, > 1.

    Source: e-processes and Ville's inequality: Ramdas, Grünwald, Vovk and Shafer (2023).
    """

    def __init__(
        self,
        failure_probability: float,
        *,
        claims: Sequence[float],
        grid: Any,
        grid_name: str,
        null_name: str,
        fit: LogRatioFitter,
        warm_up: int,
        refit_ratio: float,
    ) -> None:
        self._failure_probability = check_failure_probability(failure_probability)
        self._fit = guarded_fit(fit)
        self._refit_ratio = check_real("refit_ratio", refit_ratio, above=1.0)
        self._warm_up = self._next_fit = check_int("warm_up", warm_up, at_least=2)
        exact = [
            max(min(claim * (1.0 + CLAIM_MARGIN), sys.float_info.max), CLAIM_MARGIN)
            for claim in check_epsilons("claims", claims)
        ]
        self._nulls = np.unique(np.concatenate([_check_grid(grid_name, grid), exact]))
        self._null_name = null_name
        self._log_threshold = math.log(1.0 / self._failure_probability)
        self._log_e = np.zeros(self._nulls.size)
        self._rejected = np.zeros(self._nulls.size, dtype=bool)
        self._past: tuple[_Samples, _Samples] = (_Samples(), _Samples())
        self._waiting: tuple[_Samples, _Samples] = (_Samples(), _Samples())
        self._observed = self._blocks_seen = 0
        self._bettor: Bettor | None = None
        self._family: str | None = None

    @abc.abstractmethod
    def _new_bettor(self, log_ratio: LogRatio, past_q: Array, past_p: Array) -> Bettor | None:
        """Returns the bets for the next samples, made from past ones; None to bet nothing."""

    @abc.abstractmethod
    def can_reject(self, null: float, num_pairs: float) -> bool:
        """Returns whether any samples at all could reject a null within so many pairs."""

    @abc.abstractmethod
    def point_estimate(self) -> float:
        """Returns the fitted log ratio's own estimate, without any confidence statement."""

    def update(self, samples_q: Any, samples_p: Any) -> None:
        """Bets on the next samples, shapes (n, d) and (m, d), then adds them to the past.

        Counts may differ, and either may be 0 (an array of shape (0, d)). Samples go in blocks of
        one sample of the rarer law and an even share of the other's; what finds no partner waits
        for the next call. How many samples of either law come next may depend on blocks that were
        bet on, not on samples that still wait.
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

    def add_history(self, samples_q: Any, samples_p: Any) -> None:
        """Adds samples to the past without betting on them: what an earlier step has already used.

        Args:
          samples_q: shape (n, d), n >= 1.
          samples_p: shape (m, d), m >= 1.

        Raises:
          ValueError: malformed samples, or `update` was called before: the past comes first.
        """
        if self._blocks_seen or any(map(len, self._waiting)):
            raise ValueError(
                f"add_history must come before update, got {self._blocks_seen} pairs before"
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
    def lower_bound(self) -> float:
        """The largest null rejected with every smaller one, 0.0 when there is none.

        Exceeds the truth at any time with probability at most the failure probability.
        """
        accepted = np.flatnonzero(~self._rejected)
        first = int(accepted[0]) if accepted.size else self._nulls.size
        return float(self._nulls[first - 1]) if first else 0.0

    def log_e_value(self, null: float) -> float:
        """Returns the log e-value against a null: that of the smallest null of the grid that
        contains it (a claim's own null for claims). It is frozen after the first rejection.

        Raises:
          ValueError: the null is negative, NaN, or beyond the grid.
        """
        null = check_real(self._null_name, null, at_least=0.0, at_most=float(self._nulls[-1]))
        return float(self._log_e[np.searchsorted(self._nulls, null)])

    @property
    def num_pairs(self) -> int:
        """Blocks of samples seen so far."""
        return self._blocks_seen

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

    def _check_seen(self) -> None:
        if self._blocks_seen < 1:
            raise ValueError("an estimate must have at least 1 pair of samples, got 0")

    def _refit(self) -> None:
        past_q, past_p = self._past[0].array, self._past[1].array
        for samples in self._past:
            samples.mark()
        log_ratio, self._family = self._fit(past_q, past_p)
        planned = min(self._blocks_seen * self._refit_ratio, float(sys.maxsize))
        self._next_fit = max(self._blocks_seen + 1, math.ceil(planned))
        self._bettor = self._new_bettor(log_ratio, past_q, past_p)

    def _bet(
        self,
        bettor: Bettor,
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


def check_epsilons(name: str, values: Any) -> tuple[float, ...]:
    """Returns claims, each a number >= 0."""
    return tuple(check_epsilon(value, name) for value in check_many(name, values, "numbers >= 0"))


def _check_grid(name: str, values: Any) -> Array:
    grid = check_numbers(name, values)
    if (
        grid.ndim != 1
        or grid.size == 0
        or not np.all(np.isfinite(grid))
        or grid[0] <= 0.0
        or np.any(np.diff(grid) <= 0.0)
    ):
        raise ValueError(
            f"{name} must be a finite, positive, increasing array of shape (k,), got {values!r}"
        )
    return grid


def _block_edges(count: int, blocks: int) -> NDArray[np.intp]:
    return (np.arange(blocks + 1) * count) // blocks


def _block_means(log_table: Array, cells: NDArray[np.intp], starts: NDArray[np.intp]) -> Array:
    """Returns the log of the mean factor of each block, shape (nulls, blocks)."""
    gathered = log_table[:, cells]
    if starts.size == cells.size:
        return gathered
    sizes = np.diff(np.append(starts, cells.size))
    means = np.add.reduceat(np.exp(gathered), starts, axis=1) / sizes
    return np.asarray(np.log(means))


def sample_size_warm_up(num_pairs: int) -> int:
    """Returns the pairs to see before the first bet when the number of pairs to come is known.

    About 2.2 sqrt(num_pairs) (50 of 500, 155 of 5,000): earlier bets are placed by estimates too
    rough to earn.
    """
    return max(10, round(2.2 * math.sqrt(check_int("num_pairs", num_pairs, at_least=0))))
