"""Neighbouring datasets to test: fixed pairs, canaries, and searches for a worse pair.

Every generator is called as `generator(divergence)` with the last trial's estimate (None before the
first) and returns a pair of neighbours, so it works in this package's runner and in
DP-Auditorium's. Generators are deterministic given their settings and the feedback, and never
change what they were given. Every pair is a copy of its own: what a mechanism does to it reaches no
later one.

"Worse" is the estimate, a noisy number: a search looks for a pair worth testing, and the runner's
bound on fresh samples decides.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    OneOf,
    Positive,
    Real,
    Seed,
    Switch,
)
from dvrenyi_plugin._internal.user_code import own_copy
from dvrenyi_plugin._internal.validation import (
    check_int,
    check_real,
    check_seed,
)
from dvrenyi_plugin.generators.records import (
    append_record,
    check_indices,
    check_records,
    map_arrays,
    num_records,
    replace_record,
)
from dvrenyi_plugin.interfaces import NeighboringDatasets

Array = NDArray[Any]
ADD_REMOVE, REPLACE_ONE = "add_remove", "replace_one"
# Beyond it floats are not every whole number.
_LARGEST_INT = 2**53
# In a space with few pairs the new ones may be used up.
_TRIES_FOR_A_NEW_PAIR = 100


class ConstantDatasetGenerator:
    """Proposes one pair, always: the worst case that the user knows.

    Args:
      dataset_pair: two neighbours. That they are neighbours is the user's word.
    """

    def __init__(self, dataset_pair: NeighboringDatasets[Any]) -> None:
        self._pair = own_copy(dataset_pair)

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Any]:
        """Returns the pair, whatever the last estimate was."""
        pair: NeighboringDatasets[Any] = own_copy(self._pair)
        return pair


class CanaryDatasetGenerator:
    """Proposes (D, D + canary), one canary after another, and again from the first.

    Args:
      dataset: D: records of shape (n, ...), or (features, labels).
      canaries: at least one: each a record's shape, or (features, label).

    Raises:
      ValueError: no canaries, or one without a record's shape.
    """

    def __init__(self, dataset: Any, canaries: Sequence[Any]) -> None:
        self._dataset = own_copy(dataset)
        num_records(dataset)
        self._neighbours = [
            append_record(dataset, canary) for canary in check_records("canaries", canaries)
        ]
        self._order = itertools.cycle(range(len(self._neighbours)))

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Any]:
        """Returns (D, D + next canary)."""
        return own_copy(self._dataset), own_copy(self._neighbours[next(self._order)])


class RemoveOneDatasetGenerator:
    """Proposes (D without record i, D), one record after another, and again from the first.

    Args:
      dataset: D: records of shape (n, ...), or (features, labels), n >= 1.
      indices: which records, in which order; None for all.
    """

    def __init__(self, dataset: Any, indices: Sequence[int] | None = None) -> None:
        self._dataset = own_copy(dataset)
        self._order = itertools.cycle(check_indices(dataset, indices))

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Any]:
        """Returns (D without the next record, D)."""
        index = next(self._order)
        smaller = map_arrays(lambda array: np.delete(array, index, axis=0), self._dataset)
        return smaller, own_copy(self._dataset)


class ReplaceOneDatasetGenerator:
    """Proposes (D, D with record i replaced), over all indices and replacements, and again from the
    first.

    Args:
      dataset: D: records of shape (n, ...), or (features, labels), n >= 1.
      replacements: at least one: each a record's shape, or (features, label).
      indices: which records are replaced; None for all.

    Raises:
      ValueError: no replacements, or one without a record's shape.
    """

    def __init__(
        self, dataset: Any, replacements: Sequence[Any], indices: Sequence[int] | None = None
    ) -> None:
        self._dataset = own_copy(dataset)
        replacements = own_copy(check_records("replacements", replacements))
        for replacement in replacements:
            append_record(
                dataset, replacement
            )  # refuses a wrong shape now and not in the middle of a test
        pairs = list(itertools.product(replacements, check_indices(dataset, indices)))
        self._order: Iterator[tuple[Any, int]] = itertools.cycle(pairs)

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Any]:
        """Returns (D, D with the next replacement)."""
        replacement, index = next(self._order)
        return own_copy(self._dataset), replace_record(self._dataset, index, replacement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedArrays(CheckedSettings):
    """Datasets that a search looks through: arrays of numbers in [low, high].

    Attributes:
      num_records: records of the smaller dataset, >= 0; for "replace_one", of both, >= 1.
      dimension: columns of a record, >= 1; None for datasets of shape (n,).
      low: smallest entry.
      high: largest entry, > low.
      neighbours: "add_remove" (the second dataset has one record more) or "replace_one" (one record
        differs).
      integers: True for whole numbers only (categories, labels); low and high must be whole too.
      corner_probability: part of random entries that are `low` or `high` themselves, in [0, 1]:
        leaks are often largest at the extremes.
    """

    num_records: int
    dimension: Count | None = None
    low: float = 0.0
    high: float = 1.0
    neighbours: Annotated[str, OneOf((ADD_REMOVE, REPLACE_ONE))] = ADD_REMOVE
    integers: Switch = False
    corner_probability: Annotated[float, Real(at_least=0.0, at_most=1.0)] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("num_records", self.num_records, at_least=int(self.neighbours == REPLACE_ONE))
        check_real("high", self.high, above=check_real("low", self.low))
        check_real("high - low", float(self.high) - float(self.low), above=0.0)
        if self.integers and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(
                f"low and high must be whole numbers when integers is True, got {self.low!r} and"
                f" {self.high!r}"
            )
        if self.integers:
            for name in ("low", "high"):
                check_real(name, getattr(self, name), at_least=-_LARGEST_INT, at_most=_LARGEST_INT)

    @property
    def num_genes(self) -> int:
        """Records that describe a pair: the common ones and those in which it differs."""
        return self.num_records + 1

    def random_genes(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Returns random records, shape (count, max(1, dimension))."""
        shape = (count, self.dimension or 1)
        if self.integers:
            values = rng.integers(int(self.low), int(self.high), shape, endpoint=True).astype(float)
        else:
            values = rng.uniform(self.low, self.high, shape)
        corners = np.where(rng.random(shape) < 0.5, self.low, self.high)
        return np.where(rng.random(shape) < self.corner_probability, corners, values)

    def moved(
        self, genes: NDArray[np.float64], step: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Returns records moved by about `step` times the range, kept inside it."""
        moved = genes + step * (self.high - self.low) * rng.standard_normal(genes.shape)
        moved = np.clip(moved, self.low, self.high)
        return np.rint(moved) if self.integers else moved

    def differ(self, genes: NDArray[np.float64]) -> bool:
        """Returns whether the neighbours that these records describe are two datasets and not one
        twice.
        """
        return self.neighbours == ADD_REMOVE or not np.array_equal(genes[-1], genes[-2])

    def pair(self, genes: NDArray[np.float64]) -> NeighboringDatasets[Array]:
        """Returns the neighbours that these records describe: the last ones are those in which they
        differ.
        """
        records = genes.astype(np.int64) if self.integers else genes.copy()
        if self.dimension is None:
            records = records[:, 0]
        if self.neighbours == ADD_REMOVE:
            return records[:-1].copy(), records
        return records[:-1].copy(), np.concatenate([records[:-2], records[-1:]])


class _NewPairs:
    """Avoids pairs that were proposed before, and those of one dataset twice: every trial has its
    price.
    """

    def __init__(self, space: BoundedArrays) -> None:
        self._space = space
        self._seen: set[bytes] = set()

    def first_new(self, draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Returns the first draw that is new; the last one of many when none is."""
        for _ in range(_TRIES_FOR_A_NEW_PAIR):
            genes = draw()
            digest = hashlib.sha256((genes + 0.0).tobytes()).digest()
            if digest not in self._seen and self._space.differ(genes):
                break
        self._seen.add(digest)
        return genes


class RandomSearchDatasetGenerator:
    """Proposes random pairs, without a look at the estimates: the search to beat.

    Args:
      space: the datasets to draw from.
      seed: of the draws, >= 0.
    """

    def __init__(self, space: BoundedArrays, seed: int = 0) -> None:
        self._space = space
        self._rng = np.random.default_rng(check_seed(seed))
        self._new_pairs = _NewPairs(space)

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Array]:
        """Returns the next random pair; what the last one gave is not used."""
        space, rng = self._space, self._rng
        return space.pair(
            self._new_pairs.first_new(lambda: space.random_genes(rng, space.num_genes))
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolutionConfig(CheckedSettings):
    """How an evolutionary search spends its trials.

    Attributes:
      num_random: random pairs before anything is inherited, >= 1.
      num_parents: best pairs so far that are kept as parents, >= 1.
      mutation_probability: that a record of a child is changed at all, in (0, 1].
      step: standard deviation of a change, as a part of the range, > 0.
      fresh_probability: that a changed record is drawn anew, in [0, 1]: ways out of a local
        optimum.
      seed: of every choice, >= 0.
    """

    num_random: Count = 5
    num_parents: Count = 3
    mutation_probability: Annotated[float, Real(above=0.0, at_most=1.0)] = 0.3
    step: Positive = 0.2
    fresh_probability: Annotated[float, Real(at_least=0.0, at_most=1.0)] = 0.3
    seed: Seed = 0


class EvolutionarySearchDatasetGenerator:
    """Proposes children of the pairs with the largest estimates so far: records of two parents,
    some changed.

    Args:
      space: the datasets to search.
      config: see `EvolutionConfig`.
    """

    def __init__(self, space: BoundedArrays, config: EvolutionConfig | None = None) -> None:
        self._space = space
        self._config = config or EvolutionConfig()
        self._rng = np.random.default_rng(self._config.seed)
        self._new_pairs = _NewPairs(space)
        self._parents: list[tuple[float, NDArray[np.float64]]] = []
        self._proposed: NDArray[np.float64] | None = None
        self._num_proposed = 0

    @property
    def best(self) -> tuple[float, NeighboringDatasets[Array]] | None:
        """The largest estimate so far and its pair; None before the first estimate."""
        if not self._parents:
            return None
        estimate, genes = self._parents[0]
        return estimate, self._space.pair(genes)

    def __call__(self, divergence: float | None = None) -> NeighboringDatasets[Array]:
        """Returns the next pair.

        Args:
          divergence: the estimate for the last pair that was returned. None and NaN say nothing
            about it.
        """
        if self._proposed is not None and divergence is not None and not math.isnan(divergence):
            # The newest of equals first: among pairs that all gave 0 the search goes on walking.
            self._parents.insert(0, (float(divergence), self._proposed))
            self._parents.sort(key=lambda parent: -parent[0])
            del self._parents[self._config.num_parents :]
        if self._num_proposed < self._config.num_random or not self._parents:
            genes = self._new_pairs.first_new(
                lambda: self._space.random_genes(self._rng, self._space.num_genes)
            )
        else:
            genes = self._new_pairs.first_new(self._child)
        self._num_proposed += 1
        self._proposed = genes
        return self._space.pair(genes)

    def _child(self) -> NDArray[np.float64]:
        rng, config = self._rng, self._config
        mother, father = (self._parents[int(rng.integers(len(self._parents)))][1] for _ in range(2))
        count = len(mother)
        genes = np.where(rng.random((count, 1)) < 0.5, mother, father)
        changed = rng.random(count) < config.mutation_probability
        changed[int(rng.integers(count))] = True
        anew = rng.random(count) < config.fresh_probability
        moved = self._space.moved(genes, config.step, rng)
        fresh = self._space.random_genes(rng, count)
        replaced = np.where(anew[:, np.newaxis], fresh, moved)
        return np.where(changed[:, np.newaxis], replaced, genes)


__all__ = [
    "BoundedArrays",
    "CanaryDatasetGenerator",
    "ConstantDatasetGenerator",
    "EvolutionConfig",
    "EvolutionarySearchDatasetGenerator",
    "RandomSearchDatasetGenerator",
    "RemoveOneDatasetGenerator",
    "ReplaceOneDatasetGenerator",
]
