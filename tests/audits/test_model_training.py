"""Training numbered models on both worlds: order, grouping, workers, and trainers that
misbehave.
"""

import dataclasses

import numpy as np
import pytest
import torch

from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin.audits.dp_sgd.settings import ModelTrainingConfig
from dvrenyi_plugin.audits.training.models import train_both_worlds
from dvrenyi_plugin.data.neighbours import add_canary


@dataclasses.dataclass(frozen=True)
class NormalTrainer:
    """Observations N(number of records, 1), seeded by world and index; picklable."""

    columns: int = 1

    def train_models(self, dataset, world, indices):
        return np.stack(
            [
                len(dataset[1])
                + np.random.default_rng([world, index]).standard_normal(self.columns)
                for index in indices
            ]
        )


@dataclasses.dataclass(frozen=True)
class BrokenTrainer:
    result: object

    def train_models(self, dataset, world, indices):
        return self.result


@pytest.fixture
def pair():
    records = np.zeros((3, 1, 2, 2), np.float32), np.zeros(3, np.int64)
    return add_canary(records, np.ones((1, 2, 2), np.float32), 1)


def test_rows_are_in_the_order_of_their_models_and_worlds_are_apart(pair):
    trainer = NormalTrainer(columns=2)
    observations = train_both_worlds(trainer, pair, range(23), ModelTrainingConfig())
    np.testing.assert_array_equal(observations.without, trainer.train_models(pair[0], 0, range(23)))
    np.testing.assert_array_equal(
        observations.with_canary, trainer.train_models(pair[1], 1, range(23))
    )
    # Worlds share no noise: a shared stream would correlate them perfectly.
    assert abs(np.corrcoef(observations.without[:, 0], observations.with_canary[:, 0])[0, 1]) < 0.6


def test_results_do_not_depend_on_workers_or_tasks(pair):
    expected = train_both_worlds(NormalTrainer(), pair, range(11), ModelTrainingConfig())
    for workers, per_task in ((1, 1), (1, 100), (2, 3)):
        config = ModelTrainingConfig(num_workers=workers, models_per_task=per_task)
        found = train_both_worlds(NormalTrainer(), pair, range(11), config)
        assert found.without.tobytes() == expected.without.tobytes()
        assert found.with_canary.tobytes() == expected.with_canary.tobytes()


def test_parts_trained_in_several_calls_are_those_of_one_call(pair):
    config = ModelTrainingConfig(models_per_task=4)
    whole = train_both_worlds(NormalTrainer(), pair, range(17), config)
    parts = [
        train_both_worlds(NormalTrainer(), pair, indices, config)
        for indices in (range(0, 5), range(5, 6), range(6, 17))
    ]
    for world in ("without", "with_canary"):
        joined = np.concatenate([getattr(part, world) for part in parts])
        assert joined.tobytes() == getattr(whole, world).tobytes()


def test_models_are_grouped_the_same_way_whatever_range_is_asked_for(pair):
    groups = []

    class Recorder(NormalTrainer):
        def train_models(self, dataset, world, indices):
            groups.append((world, indices))
            return super().train_models(dataset, world, indices)

    train_both_worlds(Recorder(), pair, range(3, 9), ModelTrainingConfig(models_per_task=4))
    assert groups == [(world, numbers) for numbers in ([3], [4, 5, 6, 7], [8]) for world in (0, 1)]


def test_an_audit_may_see_fewer_columns_than_a_store_keeps(pair):
    whole = train_both_worlds(NormalTrainer(3), pair, range(4), ModelTrainingConfig())
    part = train_both_worlds(
        NormalTrainer(3), pair, range(4), ModelTrainingConfig(num_observed_columns=2)
    )
    np.testing.assert_array_equal(part.without, whole.without[:, :2])
    np.testing.assert_array_equal(part.with_canary, whole.with_canary[:, :2])


@pytest.mark.parametrize("indices", [range(0), range(5, 5), range(0, 10, 2), range(-1, 3)])
def test_numbers_of_models_are_checked(pair, indices):
    with pytest.raises(ValueError, match="indices must be a range of integers >= 0"):
        train_both_worlds(NormalTrainer(), pair, indices, ModelTrainingConfig())


@pytest.mark.parametrize(
    "settings",
    [{"num_workers": 0}, {"models_per_task": 0}, {"num_observed_columns": 0}, {"backend": "mpi"}],
)
def test_settings_are_checked(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be .*, got {settings[name]!r}"):
        ModelTrainingConfig(**settings)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(10), r"shape \(10, k\), got shape \(10,\)"),
        (np.zeros((9, 1)), r"got shape \(9, 1\)"),
        (np.zeros((10, 0)), r"got shape \(10, 0\)"),
        (np.array([[0.0]] * 10), "must be independent, got 10 of 10"),
        (None, "got None"),
    ],
)
def test_a_trainer_that_returns_something_else_is_noticed(pair, result, message):
    with pytest.raises(ValueError, match=message):
        train_both_worlds(BrokenTrainer(result), pair, range(10), ModelTrainingConfig())


def test_worlds_that_are_no_neighbours_are_never_trained(pair):
    with pytest.raises(ValueError, match="exactly one record more"):
        train_both_worlds(BrokenTrainer(None), (pair[0], pair[0]), range(10), ModelTrainingConfig())


def test_an_error_in_a_worker_reaches_the_caller(pair):
    config = ModelTrainingConfig(num_workers=2, models_per_task=5)
    with pytest.raises(ValueError, match="got shape"):
        train_both_worlds(BrokenTrainer(np.zeros(5)), pair, range(10), config)


def test_one_torch_thread_until_the_last_block_ends():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = single_thread(), single_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
