"""Users' trainings, observations and testers in the audits: what they do to their arguments changes
nothing.
"""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dvrenyi_plugin._internal.user_code import notes_of
from dvrenyi_plugin.audits.directions import bound_both_directions
from dvrenyi_plugin.audits.dp_sgd.audit import audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig, ModelTrainingConfig
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.models import Observations, train_both_worlds
from dvrenyi_plugin.execution.observation_store import open_store
from dvrenyi_plugin.interfaces import GaussianDp, RenyiDp, as_privacy_property
from dvrenyi_plugin.mechanisms.training import TrainingMechanism, TrainingMechanismConfig
from dvrenyi_plugin.testers.base import BoundResult
from dvrenyi_plugin.testers.dv_renyi_tester import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
)
from dvrenyi_plugin.testers.sequential_renyi_tester import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
)

CLAIM = as_privacy_property(GaussianDp(1.0))
RENYI_CLAIM = as_privacy_property(RenyiDp(2.0, 1.0))
# The canary moves the sum by 2: mu = 2, D_2 = 4 where the claim allows 1.
PAIR = (
    (np.array([[0.25], [-0.75], [1.0]]), np.zeros(3, np.int64)),
    (np.array([[0.25], [-0.75], [1.0], [2.0]]), np.zeros(4, np.int64)),
)
EVERYWHERE = [
    ModelTrainingConfig(num_workers=workers, models_per_task=per_task, backend=backend)
    for backend, workers in (("serial", 1), ("threading", 2), ("loky", 2))
    for per_task in (1, 10)
]


def noisy_sum(dataset, seed):
    return float(dataset[0].sum()) + float(np.random.default_rng(seed).standard_normal())


def centring(dataset, seed):
    result = noisy_sum(dataset, seed)
    features, labels = dataset
    features -= features.mean(axis=0)
    labels += 1
    return result


def dropping_records(dataset, seed):
    result = noisy_sum(dataset, seed)
    dataset[0].resize((0, 1), refcheck=False)
    return result


def torch_in_place(dataset, seed):
    features = torch.from_numpy(dataset[0])  # shares its memory
    result = float(features.sum()) + float(np.random.default_rng(seed).standard_normal())
    features.mul_(0.0)
    return torch.tensor([result], dtype=torch.float64, requires_grad=True)


def numpys_global_generator(dataset, seed):
    np.random.seed(seed)
    return float(dataset[0].sum()) + float(np.random.standard_normal())


def self_seeded(dataset, seed):
    return noisy_sum(dataset, seed % 4)


def identity(result):
    return result


def diverging(result):
    """One model in twenty or so has no finite loss."""
    if result % 1.0 < 0.02:
        return math.inf
    return math.nan if result % 1.0 > 0.98 else result


def mechanism(train=noisy_sum, **changes):
    settings = {"train": train, "observe": identity, "claimed_privacy": [CLAIM], **changes}
    return TrainingMechanism(TrainingMechanismConfig(**settings))


def dv_tester():
    return DvRenyiPropertyTester(DvRenyiPropertyTesterConfig(privacy_property=CLAIM))


def sequential_tester():
    return SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(privacy_property=RENYI_CLAIM)
    )


@pytest.mark.parametrize("train", [centring, dropping_records, torch_in_place])
@pytest.mark.parametrize("config", EVERYWHERE, ids=lambda c: f"{c.backend}-{c.models_per_task}")
def test_e1_what_a_training_does_to_its_dataset_changes_no_model(train, config) -> None:
    pure = train_both_worlds(mechanism(), PAIR, range(24), ModelTrainingConfig())
    before = [part.copy() for world in PAIR for part in world]
    found = train_both_worlds(mechanism(train), PAIR, range(24), config)
    np.testing.assert_array_equal(found.without, pure.without)
    np.testing.assert_array_equal(found.with_canary, pure.with_canary)
    for part, was in zip((part for world in PAIR for part in world), before, strict=True):
        np.testing.assert_array_equal(part, was)


def test_e1_the_audit_of_a_training_that_centres_its_data_refutes() -> None:
    tester = sequential_tester()
    bounds = []
    for train in (noisy_sum, centring):
        found = train_both_worlds(
            mechanism(train), PAIR, range(300), ModelTrainingConfig(models_per_task=10)
        )
        directions = bound_both_directions(tester, (found.with_canary, found.without), 0.05)
        bounds.append(max(direction.bound.lower_bound for direction in directions))
    assert bounds[0] == bounds[1]
    assert 1.0 < bounds[0] < 4.0


class BufferTrainer:
    """Fills one array at every call, and changes the numbers it is given."""

    def __init__(self) -> None:
        self._buffer = np.zeros((2, 1))

    def train_models(self, dataset, world, indices):
        self._buffer[:, 0] = [noisy_sum(dataset, 1000 * world + index) for index in indices]
        dataset[0][:] = 0.0
        indices.clear()
        return self._buffer


@pytest.mark.parametrize("backend", ["serial", "loky"])
def test_e1_a_trainer_that_reuses_its_array_gives_every_model_its_own(backend) -> None:
    config = ModelTrainingConfig(models_per_task=2, backend=backend)
    found = train_both_worlds(BufferTrainer(), PAIR, range(10), config)
    expected = [[noisy_sum(PAIR[0], index)] for index in range(10)]
    np.testing.assert_array_equal(found.without, expected)


class SpoilingTester:
    """Notes what it is given, and spoils it."""

    privacy_property = CLAIM

    def __init__(self) -> None:
        self.seen = []

    def audit(self, samples1, samples2, failure_probability):
        self.seen.append((samples1.copy(), samples2.copy()))
        samples1[:] = samples2[:] = 0.0
        return BoundResult(
            lower_bound=0.0,
            point_estimate=0.0,
            claimed_limit=1.0,
            refuted=False,
            failure_probability=failure_probability,
            method="none",
            alpha=2.0,
            num_fit=(0, 0),
            num_certify=(0, 0),
            seed=0,
        )


def test_e1_a_tester_that_spoils_its_samples_does_not_reach_the_other_direction() -> None:
    tester = SpoilingTester()
    observations = Observations(np.arange(4.0)[:, np.newaxis], np.ones((4, 1)))
    bound_both_directions(tester, (observations.with_canary, observations.without), 0.05)
    np.testing.assert_array_equal(tester.seen[1][0], np.arange(4.0)[:, np.newaxis])
    np.testing.assert_array_equal(observations.without, np.arange(4.0)[:, np.newaxis])


@pytest.mark.parametrize("backend", ["serial", "loky"])
def test_an_error_of_the_training_says_whose_it_is(backend) -> None:
    config = ModelTrainingConfig(num_workers=2, backend=backend)
    with pytest.raises(IndexError) as caught:
        train_both_worlds(mechanism(lambda _, seed: [][seed]), PAIR, range(4), config)
    assert notes_of(caught.value) == " (raised by train)"


def test_f13_numpys_global_generator_can_be_seeded() -> None:
    found = train_both_worlds(
        mechanism(numpys_global_generator), PAIR, range(20), ModelTrainingConfig()
    )
    assert len(np.unique(found.without)) == 20


def test_e9_both_audits_stop_at_models_that_repeat_each_other() -> None:
    message = "the canary whose observation another one has too.*seed set inside the training"
    config = DpSgdAuditConfig(num_models=200)
    with pytest.raises(ValueError, match=message):
        audit_dp_sgd(mechanism(self_seeded), dv_tester(), PAIR, config)
    for batch in (2, 200):
        with pytest.raises(ValueError, match=message):
            audit_dp_sgd(
                mechanism(self_seeded),
                sequential_tester(),
                PAIR,
                config,
                SequentialAuditConfig(batch_models=batch),
            )


def test_e9_the_audit_stops_long_before_the_last_model() -> None:
    trained = []

    def counting(dataset, seed):
        trained.append(seed)
        return self_seeded(dataset, seed)

    with pytest.raises(ValueError, match="must be independent"):
        train_both_worlds(mechanism(counting), PAIR, range(1000), ModelTrainingConfig())
    assert len(trained) <= 60


def test_e9_a_store_is_looked_at_too_and_a_declaration_goes_on_with_it(tmp_path) -> None:
    plain, declared = mechanism(self_seeded), mechanism(self_seeded, discrete_outputs=True)
    config = ModelTrainingConfig()
    with open_store(None, tmp_path, plain, PAIR) as store:
        for start in range(0, 40, 2):  # parts too small to tell
            train_both_worlds(plain, PAIR, range(start, start + 2), config, store=store)
        with pytest.raises(ValueError, match="must be independent"):
            train_both_worlds(plain, PAIR, range(40), config, store=store)
    with open_store(None, tmp_path, declared, PAIR) as store:
        assert store.count() == 80
        found = train_both_worlds(declared, PAIR, range(40), config, store=store)
    assert len(np.unique(found.without)) == 4


@pytest.mark.parametrize("tester", [dv_tester, sequential_tester], ids=["dv", "sequential"])
def test_f3_models_without_a_finite_loss_are_counted_and_stored(tester, tmp_path) -> None:
    diverged = mechanism(observe=diverging)
    config = DpSgdAuditConfig(num_models=200)
    with open_store(None, tmp_path, diverged, PAIR) as store:
        first = audit_dp_sgd(diverged, tester(), PAIR, config, store=store)
    with open_store(None, tmp_path, diverged, PAIR) as store:
        again = audit_dp_sgd(diverged, tester(), PAIR, config, store=store)
        raw = np.array([store.rows(0, range(200))[i][0] for i in range(200)])
    assert again.report.lower_bound == first.report.lower_bound
    assert np.isinf(raw).any() and np.isnan(raw).any()
    assert first.report.document()["losses"]["without_canary"].count == np.isfinite(raw).sum()
    assert abs(first.report.document()["losses"]["without_canary"].mean) < 2.0
    (note,) = first.report.notes
    assert (
        f"of 400 models gave an observation that is no number, infinite or beyond 1e+30"
        f" ({(~np.isfinite(raw)).sum()} without" in note
    )
    plain = audit_dp_sgd(mechanism(), tester(), PAIR, config).report
    # Where in the random order the non-finite losses fall decides how much they cost.
    assert first.report.lower_bound > 0.5 * plain.lower_bound > 0.25


def test_f3_the_sequential_audit_goes_on_too() -> None:
    result = audit_dp_sgd(
        mechanism(observe=diverging),
        sequential_tester(),
        PAIR,
        DpSgdAuditConfig(num_models=200),
        SequentialAuditConfig(),
    )
    assert result.report.refuted
    assert "no number, infinite or beyond 1e+30" in result.report.notes[-1]


def test_f3_an_audit_in_which_every_model_diverges_certifies_nothing() -> None:
    result = audit_dp_sgd(
        mechanism(observe=lambda _: math.nan, discrete_outputs=True),
        sequential_tester(),
        PAIR,
        DpSgdAuditConfig(num_models=20),
    )
    assert result.report.lower_bound == 0.0
    assert result.report.notes[0].startswith("40 of 40 models")
    assert result.report.to_markdown() and result.report.to_json() and result.report.summary()


@pytest.mark.parametrize("tester", [dv_tester, sequential_tester], ids=["dv", "sequential"])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("spread", [1.0, 1e-6])
def test_f3_one_mapped_value_leaves_the_bound_where_it_was(tester, columns, spread) -> None:
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        first = spread * rng.standard_normal((300, columns))
        second = spread * rng.standard_normal((300, columns))
        first[:, 0] += 2.0 * spread
        whole = tester().audit(first, second, 0.05).lower_bound
        for value in (1e30, -1e30, 2e30) if seed == 0 else (1e30,):
            bounds = []
            for farthest in (value, 30.0 * spread * np.sign(value)):
                first[5, 0] = second[7, -1] = farthest
                bounds.append(tester().audit(first, second, 0.05).lower_bound)
            assert bounds[0] == pytest.approx(bounds[1], rel=0.05)
            shares.append(bounds[0] / whole)
    # As an outlier of 30 standard deviations, and that costs what one pair in 300 may cost: more
    # where it comes early.
    assert np.mean(shares) > 0.7


def test_a_mechanism_without_an_attribute_is_asked_nothing_more() -> None:
    trainer = SimpleNamespace(train_models=mechanism().train_models)
    found = train_both_worlds(trainer, PAIR, range(4), ModelTrainingConfig(backend="serial"))
    assert dataclasses.astuple(found)[0].shape == (4, 1)
