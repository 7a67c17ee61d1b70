"""What every mechanism keeps: DP-Auditorium's interface, and independent draws from one seed."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from dp_sgd_engines import ENGINES, NUM_PARAMETERS
from dp_sgd_engines import dataset as labelled
from dp_sgd_engines import mechanism as dp_sgd

from dvrenyi_plugin.interfaces import GaussianDp, as_privacy_property, read_claim
from dvrenyi_plugin.mechanisms import (
    BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig,
    BrokenShkMechanism,
    BrokenShkMechanismConfig,
    CircularMeanLoss,
    ExponentialMechanism,
    ExponentialMechanismConfig,
    GaussianMechanism,
    GaussianMechanismConfig,
    LangevinMechanism,
    LangevinMechanismConfig,
    LaplaceMechanism,
    LaplaceMechanismConfig,
    NoisyMaxMechanism,
    NoisyMaxMechanismConfig,
    RandomizedResponseMechanism,
    RandomizedResponseMechanismConfig,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
    TrainingMechanism,
    TrainingMechanismConfig,
)

RECORDS = np.array([[0.3, -0.4], [1.0, 0.2], [0.0, 2.0]])
ANGLES = np.array([[0.2], [0.3], [-2.0]])
LOSS = {"loss": CircularMeanLoss(num_records=4), "inverse_temperature": 3.0}
FLOW = {**LOSS, "run_time": 0.5, "cells": 32}


def noisy_sum(dataset: Any, seed: int) -> float:
    dataset *= 2.0  # a training may change its copy
    return float(dataset.sum() + np.random.default_rng(seed).standard_normal())


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism as a function of its seed, a dataset for it, and what an output looks like."""

    build: Callable[[int], Any]
    dataset: Any
    num_columns: int


def case(mechanism: Any, config: Any, dataset: Any, num_columns: int, **values: Any) -> Case:
    return Case(lambda seed: mechanism(config(**values, seed=seed)), dataset, num_columns)


CASES = {
    "gaussian": case(GaussianMechanism, GaussianMechanismConfig, RECORDS, 2),
    "laplace": case(LaplaceMechanism, LaplaceMechanismConfig, RECORDS, 2),
    "randomized response": case(
        RandomizedResponseMechanism, RandomizedResponseMechanismConfig, np.array([0, 1, 1]), 3
    ),
    "noisy max": case(NoisyMaxMechanism, NoisyMaxMechanismConfig, np.eye(3), 1, num_candidates=3),
    "exponential": case(
        ExponentialMechanism, ExponentialMechanismConfig, ANGLES, 1, **LOSS, cells=32
    ),
    "shk": case(ShkExponentialMechanism, ShkExponentialMechanismConfig, ANGLES, 1, **FLOW),
    "langevin": case(LangevinMechanism, LangevinMechanismConfig, ANGLES, 1, **FLOW),
    "broken shk": case(BrokenShkMechanism, BrokenShkMechanismConfig, ANGLES, 1, **FLOW),
    "birth-death": case(
        *(BirthDeathLangevinMechanism, BirthDeathLangevinMechanismConfig, ANGLES, 1),
        **LOSS,
        run_time=0.5,
        num_particles=5,
        step_size=0.1,
    ),
    "training": case(
        *(TrainingMechanism, TrainingMechanismConfig, RECORDS, 1),
        train=noisy_sum,
        observe=lambda trained: trained,
        claimed_privacy=[as_privacy_property(GaussianDp(1.0))],
    ),
}


def engine_case(engine: Any) -> Any:
    """Returns the parameter of an engine, skipped where the engine is not installed."""
    name, marks = (engine, ()) if isinstance(engine, str) else (engine.values[0], engine.marks)
    built = Case(lambda seed: dp_sgd(name, num_steps=2, seed=seed), labelled(7), NUM_PARAMETERS)
    return pytest.param(built, id=name, marks=marks)


every_mechanism = pytest.mark.parametrize(
    "case", [*(pytest.param(c, id=name) for name, c in CASES.items()), *map(engine_case, ENGINES)]
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def parts(dataset: Any) -> tuple[np.ndarray, ...]:
    return dataset if isinstance(dataset, tuple) else (dataset,)


@every_mechanism
def test_outputs_are_finite_float64_rows(case: Case) -> None:
    for num_samples in (1, np.int64(3)):
        outputs = case.build(0)(case.dataset, num_samples)
        assert outputs.shape == (num_samples, case.num_columns) and outputs.dtype == np.float64
        assert np.isfinite(outputs).all()


@every_mechanism
def test_calls_are_fresh_and_a_new_object_repeats_them(case: Case) -> None:
    mechanism, again = case.build(5), case.build(5)
    first, second = mechanism(case.dataset, 40), mechanism(case.dataset, 40)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(again(case.dataset, 40), first)
    # To another process a mechanism goes with what it has drawn.
    travelled = cloudpickle.loads(cloudpickle.dumps(again))
    np.testing.assert_array_equal(travelled(case.dataset, 40), second)
    assert not np.array_equal(case.build(6)(case.dataset, 40), first)


@every_mechanism
def test_global_random_states_decide_nothing(case: Case) -> None:
    expected = case.build(0)(case.dataset, 10)
    np.random.seed(3)
    torch.manual_seed(3)
    np.testing.assert_array_equal(case.build(0)(case.dataset, 10), expected)


@every_mechanism
def test_rows_are_independent(case: Case) -> None:
    """Correlation of neighbouring rows over 150 pairs: beyond 4.5 standard errors with probability
    1e-5, of any of at most 28 columns 2e-4. No two rows of numbers with a density are equal.
    """
    outputs = case.build(1)(case.dataset, 300)
    for column in outputs.T:
        correlation = np.corrcoef(column[0::2], column[1::2])[0, 1]
        assert abs(correlation) < 4.5 / math.sqrt(150)
    if not np.array_equal(outputs, np.rint(outputs)):
        assert len(np.unique(outputs, axis=0)) == 300


@every_mechanism
def test_a_dataset_is_left_as_it_was_and_may_be_read_only(case: Case) -> None:
    dataset = copy.deepcopy(case.dataset)
    for part in parts(dataset):
        part.setflags(write=False)
    mechanism = case.build(0)
    mechanism(dataset, 2)
    mechanism(dataset, 2)
    for part, wanted in zip(parts(dataset), parts(case.dataset), strict=True):
        np.testing.assert_array_equal(part, wanted)


@every_mechanism
def test_claims_are_known_before_any_draw_and_do_not_change(case: Case) -> None:
    mechanism = case.build(0)
    claims = mechanism.claimed_privacy
    assert isinstance(claims, list) and claims
    for claim in map(read_claim, claims):
        values = dataclasses.asdict(claim).values()
        assert all(math.isfinite(value) and value >= 0.0 for value in values)
    mechanism(case.dataset, 2)
    claims.append(None)
    assert mechanism.claimed_privacy == claims[:-1]


@every_mechanism
@pytest.mark.parametrize("num_samples", [0, -1, 2.0, True, None, "3"])
def test_bad_numbers_of_samples_are_refused_and_use_nothing_up(
    case: Case, num_samples: Any
) -> None:
    mechanism = case.build(0)
    with pytest.raises(ValueError, match="num_samples"):
        mechanism(case.dataset, num_samples)
    np.testing.assert_array_equal(mechanism(case.dataset, 2), case.build(0)(case.dataset, 2))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_seeds_are_whole_numbers_from_zero(case: Case) -> None:
    for seed in (-1, 1.5, None):
        with pytest.raises(ValueError, match="seed"):
            case.build(seed)  # type: ignore[arg-type]
