"""Neighbour generators: every pair is one of neighbours, and searches find worse pairs
than chance.
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvrenyi_plugin.generators.dataset_generators import (
    ADD_REMOVE,
    REPLACE_ONE,
    BoundedArrays,
    CanaryDatasetGenerator,
    ConstantDatasetGenerator,
    EvolutionarySearchDatasetGenerator,
    EvolutionConfig,
    RandomSearchDatasetGenerator,
    RemoveOneDatasetGenerator,
    ReplaceOneDatasetGenerator,
)

RECORDS = np.arange(6.0).reshape(3, 2)
LABELLED = (np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 1]))


def rows_only_in(first: Any, second: Any) -> int:
    counts = [collections.Counter(np.asarray(row).tobytes() for row in d) for d in (first, second)]
    return sum((counts[0] - counts[1]).values())


@pytest.mark.parametrize(
    "make",
    [
        lambda data: ConstantDatasetGenerator((data, data)),
        lambda data: CanaryDatasetGenerator(data, [([0.1, 0.2], 9)]),
        lambda data: RemoveOneDatasetGenerator(data),
        lambda data: ReplaceOneDatasetGenerator(data, [([0.1, 0.2], 9)]),
    ],
    ids=["constant", "canary", "remove one", "replace one"],
)
def test_e1_every_pair_is_a_copy_of_its_own(make: Any) -> None:
    data = tuple(part.copy() for part in LABELLED)
    generator, expected = make(data), make(data)(None)
    for dataset in (data, *generator(None)):
        dataset[0][:] = 7.0
        dataset[1][:] = 7
    for _ in range(len(data[1])):  # until the first pair comes again
        pair = generator(None)
        if np.array_equal(pair[1][0], expected[1][0]) and len(pair[0][1]) == len(expected[0][1]):
            break
    for dataset, wanted in zip(pair, expected, strict=True):
        for part, wanted_part in zip(dataset, wanted, strict=True):
            assert not np.array_equal(part, np.full_like(part, 7))
            assert part.dtype == wanted_part.dtype


class TestEnumerations:
    def test_canaries_in_turn(self) -> None:
        generator = CanaryDatasetGenerator(RECORDS, [[7.0, 7.0], [8.0, 8.0]])
        added = [generator(None)[1][-1, 0] for _ in range(3)]
        assert added == [7.0, 8.0, 7.0]
        without, with_canary = generator(0.0)
        np.testing.assert_array_equal(without, with_canary[:-1])

    def test_canary_of_labelled_data_keeps_dtypes(self) -> None:
        without, with_canary = CanaryDatasetGenerator(LABELLED, [([0.1, 0.2], 9)])(None)
        for part, whole in zip(without, LABELLED, strict=True):
            np.testing.assert_array_equal(part, whole)
        assert with_canary[0].dtype == np.float32
        assert with_canary[1].tolist() == [0, 1, 1, 9]

    def test_each_record_is_removed_once(self) -> None:
        generator = RemoveOneDatasetGenerator(RECORDS)
        for index in range(3):
            without, whole = generator(None)
            np.testing.assert_array_equal(whole, RECORDS)
            np.testing.assert_array_equal(without, np.delete(RECORDS, index, axis=0))
        features, labels = RemoveOneDatasetGenerator(LABELLED, [2])(None)[0]
        assert features.shape == (2, 2)
        assert labels.tolist() == [0, 1]

    def test_replacements_at_every_place_and_nothing_is_changed(self) -> None:
        before = RECORDS.copy()
        generator = ReplaceOneDatasetGenerator(RECORDS, [[9.0, 9.0]])
        for index in range(3):
            first, second = generator(None)
            assert rows_only_in(first, second) == rows_only_in(second, first) == 1
            np.testing.assert_array_equal(second[index], [9.0, 9.0])
        np.testing.assert_array_equal(RECORDS, before)

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: CanaryDatasetGenerator(RECORDS, []), "at least one record"),
            (lambda: CanaryDatasetGenerator(RECORDS, [[1.0]]), r"shape \(2,\), got shape \(1,\)"),
            (lambda: CanaryDatasetGenerator(LABELLED, [[1.0, 2.0]]), "tuple of 2"),
            (lambda: CanaryDatasetGenerator(LABELLED, [([1.0, 2.0], 0.5)]), "dtype int64"),
            (
                lambda: CanaryDatasetGenerator(np.zeros(3, np.uint8), [256]),
                "dtype uint8",
            ),
            (lambda: CanaryDatasetGenerator(np.zeros(3, np.float32), [1e300]), "dtype float32"),
            (lambda: CanaryDatasetGenerator(5, [1]), r"got shapes \(\)"),
            (
                lambda: CanaryDatasetGenerator((RECORDS, np.zeros(2)), [([1.0, 2.0], 0)]),
                "many rows",
            ),
            (lambda: RemoveOneDatasetGenerator((RECORDS, np.zeros(2))), "many rows"),
            (lambda: RemoveOneDatasetGenerator(()), "got shapes none"),
            (lambda: ReplaceOneDatasetGenerator(RECORDS, [[1.0]]), "shape"),
            (lambda: ReplaceOneDatasetGenerator(RECORDS, [[1.0, 1.0]], [3]), "indices"),
            (lambda: RemoveOneDatasetGenerator(np.zeros((0, 2))), "number of records"),
        ],
    )
    def test_bad_settings_are_refused(self, build: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            build()


SPACES = st.builds(
    BoundedArrays,
    num_records=st.integers(1, 6),
    dimension=st.none() | st.integers(1, 3),
    low=st.sampled_from([-2.0, 0.0]),
    high=st.sampled_from([1.0, 5.0]),
    neighbours=st.sampled_from([ADD_REMOVE, REPLACE_ONE]),
    integers=st.booleans(),
)


class TestSearches:
    @settings(max_examples=60, deadline=None)
    @given(SPACES, st.integers(0, 1000), st.sampled_from(["random", "evolution"]))
    def test_pairs_are_bounded_neighbours(self, space: BoundedArrays, seed: int, kind: str) -> None:
        generator: Any = RandomSearchDatasetGenerator(space, seed)
        if kind == "evolution":
            generator = EvolutionarySearchDatasetGenerator(
                space, EvolutionConfig(num_random=2, seed=seed)
            )
        feedback: float | None = None
        for trial in range(6):
            first, second = generator(feedback)
            feedback = (math.nan, 0.5, -math.inf, 2.0, math.inf, 0.0)[trial]
            for dataset in (first, second):
                assert dataset.ndim == (1 if space.dimension is None else 2)
                assert dataset.min() >= space.low
                assert dataset.max() <= space.high
                assert dataset.dtype == (np.int64 if space.integers else np.float64)
            assert len(first) == space.num_records
            if space.neighbours == ADD_REMOVE:
                assert len(second) == space.num_records + 1
                assert rows_only_in(first, second) == 0
            else:
                assert len(second) == space.num_records
                assert rows_only_in(first, second) <= 1

    @pytest.mark.parametrize(
        "kind", [RandomSearchDatasetGenerator, EvolutionarySearchDatasetGenerator]
    )
    @pytest.mark.parametrize(
        "space",
        [
            BoundedArrays(num_records=2, dimension=3, integers=True),
            BoundedArrays(num_records=1),
            BoundedArrays(num_records=1, neighbours=REPLACE_ONE),
            BoundedArrays(num_records=4, neighbours=REPLACE_ONE, integers=True, high=3),
        ],
    )
    def test_no_trial_is_spent_twice(self, space: BoundedArrays, kind: Any) -> None:
        generator, feedback, seen = kind(space), None, set()
        for _ in range(60):
            first, second = generator(feedback)
            assert first.shape != second.shape or not np.array_equal(first, second)
            seen.add(first.tobytes() + second.tobytes())
            feedback = float(second.sum())
        assert len(seen) == 60

    def test_a_space_that_is_used_up_gives_pairs_again(self) -> None:
        space = BoundedArrays(num_records=0, integers=True)
        for generator in (
            RandomSearchDatasetGenerator(space),
            EvolutionarySearchDatasetGenerator(space),
        ):
            found = [int(generator(0.0)[1][0]) for _ in range(6)]
            assert sorted(found[:2]) == [0, 1]
            assert set(found) == {0, 1}

    def test_same_seed_same_search(self) -> None:
        def proposals(seed: int) -> list[float]:
            space = BoundedArrays(num_records=3)
            generator = EvolutionarySearchDatasetGenerator(space, EvolutionConfig(seed=seed))
            return [float(generator(0.1 * i)[1].sum()) for i in range(12)]

        assert proposals(1) == proposals(1)
        assert proposals(1) != proposals(2)

    def test_evolution_finds_a_worse_pair_than_random_search(self) -> None:
        # The leak is largest at one interior point, where the corners of the box say nothing.
        target = np.linspace(0.2, 0.8, 5)

        def leak(pair: Any) -> float:
            return float(-np.sum((pair[1] - target) ** 2))

        space = BoundedArrays(num_records=4, corner_probability=0.1)
        gains = []
        for seed in range(20):
            best = []
            for generator in (
                EvolutionarySearchDatasetGenerator(space, EvolutionConfig(seed=seed)),
                RandomSearchDatasetGenerator(space, seed),
            ):
                feedback, values = None, []
                for _ in range(80):
                    feedback = leak(generator(feedback))
                    values.append(feedback)
                best.append(max(values))
            gains.append(best[0] - best[1])
        # Without an advantage 15 of 20 would have probability 0.02.
        assert sum(gain > 0.0 for gain in gains) >= 15

    def test_best_pair_is_kept(self) -> None:
        generator = EvolutionarySearchDatasetGenerator(BoundedArrays(num_records=2))
        assert generator.best is None
        pairs = [generator(None), generator(3.0), generator(1.0)]
        assert generator.best is not None
        estimate, pair = generator.best
        assert estimate == 3.0
        np.testing.assert_array_equal(pair[1], pairs[0][1])

    @pytest.mark.parametrize(
        "changes",
        [
            {"num_records": 0, "neighbours": REPLACE_ONE},
            {"num_records": -1},
            {"high": 0.0},
            {"high": 1.5, "integers": True},
            {"neighbours": "swap"},
            {"dimension": 0},
            {"corner_probability": 1.1},
            {"low": -1e308, "high": 1e308},
            {"high": 1e30, "integers": True},
        ],
    )
    def test_bad_spaces_are_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must be"):
            BoundedArrays(**({"num_records": 2} | changes))

    @pytest.mark.parametrize(
        "changes",
        [{"num_random": 0}, {"num_parents": 0}, {"mutation_probability": 0.0}, {"step": 0.0}],
    )
    def test_bad_evolution_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(changes))):
            EvolutionConfig(**changes)
