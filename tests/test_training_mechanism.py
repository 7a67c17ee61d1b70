"""A user's own pipeline as a mechanism."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty, as_privacy_property
from dvrenyi_plugin.mechanisms.training_mechanism import TrainingMechanism, TrainingMechanismConfig

CLAIM = as_privacy_property(GaussianDp(1.0))


def noisy_sum(dataset: Any, seed: int) -> dict[str, float]:
    return {"model": float(np.sum(dataset) + np.random.default_rng(seed).standard_normal())}


def mechanism(**changes: Any) -> TrainingMechanism:
    settings = {
        "train": noisy_sum,
        "observe": lambda result: result["model"],
        "claimed_privacy": [CLAIM],
        **changes,
    }
    return TrainingMechanism(TrainingMechanismConfig(**settings))


def test_runs_have_distinct_seeds_that_depend_on_seed_world_and_index_alone() -> None:
    together = mechanism().train_models([1.0], 0, range(5))
    assert together.shape == (5, 1) and together.dtype == np.float64
    assert len(np.unique(together)) == 5
    np.testing.assert_array_equal(mechanism().train_models([1.0], 0, [3, 1]), together[[3, 1]])
    assert not np.any(mechanism().train_models([1.0], 1, range(5)) == together)
    assert not np.any(mechanism(seed=1).train_models([1.0], 0, range(5)) == together)


def test_calls_are_worlds() -> None:
    trained = mechanism()
    first, second = trained([1.0], 4), trained([1.0], 4)
    np.testing.assert_array_equal(first, mechanism().train_models([1.0], 0, range(4)))
    np.testing.assert_array_equal(second, mechanism().train_models([1.0], 1, range(4)))


def test_samples_follow_the_pipelines_law() -> None:
    # Mean of 400 standard normals around 3: within 3.3 standard errors with probability 0.999.
    assert abs(mechanism()([1.0, 2.0], 400).mean() - 3.0) < 3.3 / 20.0


def test_seeds_fit_the_libraries_generators() -> None:
    seeds: list[int] = []
    mechanism(train=lambda _, seed: seeds.append(seed), observe=lambda _: 0.0)(None, 50)
    assert all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**60  # all bits are used


def test_vector_observations_and_foreign_claims_pass_unchanged() -> None:
    foreign = SimpleNamespace(
        pure_dp=SimpleNamespace(epsilon=1.0), renyi_dp=None, approximate_dp=None
    )
    trained = mechanism(observe=lambda result: [result["model"], 1], claimed_privacy=[foreign])
    assert trained([1.0], 3).shape == (3, 2)
    assert trained.claimed_privacy == [foreign]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": 3}, "train must be a function"),
        ({"observe": None}, "observe must be a function"),
        ({"claimed_privacy": []}, "at least one"),
        ({"claimed_privacy": ["private"]}, "exactly one"),
        ({"seed": -1}, "seed"),
    ],
)
def test_configs_name_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism(**changes)


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        (lambda _: float("nan"), "run 0 of world 0"),
        (lambda _: "good", "got 'good'"),
        (lambda _: [[1.0]], "vector"),
        (lambda _: [], "vector"),
    ],
)
def test_useless_observations_are_errors(observe: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism(observe=observe)([1.0], 2)


def test_observations_of_changing_length_are_errors() -> None:
    lengths = iter([1, 2])
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        mechanism(observe=lambda _: [0.0] * next(lengths))([1.0], 2)


def test_claims_are_ours_by_default() -> None:
    assert mechanism().claimed_privacy == [PrivacyProperty(gaussian_dp=GaussianDp(1.0))]
