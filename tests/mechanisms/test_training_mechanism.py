"""A user's own pipeline as a mechanism."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dvrenyi_plugin._internal.user_code import notes_of
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty, as_privacy_property
from dvrenyi_plugin.mechanisms.finite_observations import (
    LARGEST_OBSERVATION,
    NAN_OBSERVATION,
    finite_observations,
)
from dvrenyi_plugin.mechanisms.training import (
    TrainingMechanism,
    TrainingMechanismConfig,
    run_seed,
)

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


def test_f13_seeds_fit_every_librarys_generator() -> None:
    seeds: list[int] = []
    mechanism(
        train=lambda _, seed: seeds.append(seed), observe=lambda _: 0.0, discrete_outputs=True
    )(None, 50)
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    np.random.RandomState(max(seeds))
    assert max(seeds) > 2**30  # all bits are used


def test_seeds_of_two_worlds_are_all_different_and_look_random() -> None:
    seeds = [run_seed(0, world, index) for world in (0, 1, 255) for index in range(50_000)]
    # 150,000 random numbers below 2^32 would have 2.6 pairs that are equal.
    assert len(set(seeds)) == len(seeds)
    bits = (np.array(seeds)[:, np.newaxis] >> np.arange(32)) & 1
    # 4.5 standard errors: a false alarm in any of 32 bits has probability 2e-4.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / np.sqrt(len(seeds))
    assert np.abs(np.diff(bits, axis=0)).mean(axis=0).min() > 0.49
    assert run_seed(1, 0, 0) != run_seed(0, 0, 0) != run_seed(0, 256, 0)
    assert run_seed(0, 0, 0) != run_seed(0, 0, 2**24)


def test_f13_one_property_needs_no_list() -> None:
    assert mechanism(claimed_privacy=CLAIM).claimed_privacy == [CLAIM]


def test_f13_observations_may_be_tensors_with_a_gradient() -> None:
    def observe(result: dict[str, float]) -> torch.Tensor:
        return torch.tensor([result["model"]], requires_grad=True)

    assert mechanism(observe=observe)([1.0], 3).shape == (3, 1)


def test_e1_a_training_may_change_its_dataset() -> None:
    def centred(dataset: Any, seed: int) -> dict[str, float]:
        result = noisy_sum(dataset, seed)
        dataset -= dataset.mean()
        return result

    dataset = np.array([1.0, 3.0])
    changed = mechanism(train=centred)(dataset, 20)
    np.testing.assert_array_equal(changed, mechanism()(np.array([1.0, 3.0]), 20))


def test_f3_what_is_not_finite_is_mapped_and_the_raw_value_is_kept() -> None:
    values = [np.inf, -np.inf, np.nan, 1e300, 2.0]
    trained = mechanism(
        train=lambda _, seed: values[seed % 5], observe=lambda value: value, discrete_outputs=True
    )
    raw = trained.train_models(None, 0, range(50))
    seen = trained(None, 50)
    assert set(np.unique(seen)) == {-LARGEST_OBSERVATION, 2.0, 1e30, NAN_OBSERVATION}
    np.testing.assert_array_equal(seen, finite_observations(raw))
    assert np.isnan(raw).any() and np.isinf(raw).any()


def test_e9_runs_that_repeat_each_other_are_refused() -> None:
    def self_seeded(dataset: Any, seed: int) -> dict[str, float]:
        return noisy_sum(dataset, seed % 4)

    with pytest.raises(ValueError, match="a seed set inside the training"):
        mechanism(train=self_seeded)([1.0], 20)
    assert len(np.unique(mechanism(train=self_seeded, discrete_outputs=True)([1.0], 20))) == 4


def test_an_error_of_the_training_keeps_its_type_and_says_whose_it_is() -> None:
    def failing(dataset: Any, seed: int) -> Any:
        return {}["weights"]

    with pytest.raises(KeyError) as caught:
        mechanism(train=failing)([1.0], 2)
    assert notes_of(caught.value) == " (raised by train)"


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
        ({"discrete_outputs": 1}, "discrete_outputs must be True or False, got 1"),
    ],
)
def test_configs_name_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism(**changes)


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        (lambda _: None, "observe must give numbers, got None"),
        (lambda _: "good", "got 'good'"),
        (lambda _: [], "at least one number"),
    ],
)
def test_useless_observations_are_errors(observe: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism(observe=observe)([1.0], 2)


def test_observations_of_any_shape_are_vectors() -> None:
    logits = mechanism(observe=lambda model: np.full((1, 2, 3), model["model"]))
    assert logits([1.0], 3).shape == (3, 6)


def test_observations_of_changing_length_are_errors() -> None:
    lengths = iter([1, 2])
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        mechanism(observe=lambda _: [0.0] * next(lengths))([1.0], 2)


def test_claims_are_ours_by_default() -> None:
    assert mechanism().claimed_privacy == [PrivacyProperty(gaussian_dp=GaussianDp(1.0))]
