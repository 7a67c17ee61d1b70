"""Where tasks run: every task exactly once, on every backend, also when workers die."""

import dataclasses
import os
import pathlib
import signal
import sys
import time

import numpy as np
import pytest

from dvrenyi_plugin.execution import backends
from dvrenyi_plugin.execution.backends import (
    WorkersDiedError,
    check_backend,
    close_clusters,
    run_tasks,
)

# Workers import this module to find its functions: what takes seconds to load is imported in the
# tests.

TASKS = [(number, str(number)) for number in range(9)]


def multiply(shared, number, text):
    if shared == "fail" and number == 4:
        raise ValueError(f"no {text}")
    return (shared, number * 2, text, os.getpid())


def kill_once(marker):
    """Kills this process, unless it or another one was killed before it."""
    try:
        pathlib.Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(marker, number, text):
    if number == 5:
        kill_once(marker)
    return number


def die(shared, number, text):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("backend", "num_workers", "other_processes"),
    [
        ("serial", 2, False),
        ("loky", 1, False),
        ("threading", 1, False),
        ("threading", 2, False),
        ("loky", 2, True),
    ],
)
def test_every_task_runs_once_with_what_it_was_given(backend, num_workers, other_processes):
    results = list(run_tasks(multiply, "s", TASKS, backend=backend, num_workers=num_workers))
    assert sorted((i, *result[:3]) for i, result in results) == [
        (i, "s", 2 * i, str(i)) for i in range(9)
    ]
    assert all((result[3] != os.getpid()) is other_processes for _, result in results)


@pytest.mark.parametrize("backend", ["serial", "threading", "loky"])
def test_a_task_that_fails_stops_the_run_with_its_own_error(backend):
    with pytest.raises(ValueError, match="no 4"):
        list(run_tasks(multiply, "fail", TASKS, backend=backend, num_workers=2))


def test_tasks_of_a_killed_process_are_given_to_another(tmp_path):
    marker = str(tmp_path / "killed")
    results = list(run_tasks(die_once, marker, TASKS, num_workers=2))
    assert os.path.exists(marker)
    assert sorted(results) == [(i, i) for i in range(9)]


def test_processes_that_always_die_are_given_up(monkeypatch):
    monkeypatch.setattr(backends, "_MAX_DEATHS", 1)
    with pytest.raises(WorkersDiedError, match="processes on this machine died 2 times"):
        list(run_tasks(die, None, TASKS, num_workers=2))


def test_no_tasks_give_no_results():
    for backend in ("serial", "threading", "loky"):
        assert list(run_tasks(multiply, "s", [], backend=backend, num_workers=2)) == []


@pytest.mark.parametrize(
    ("backend", "num_workers", "scheduler", "message"),
    [
        ("mpi", 1, None, "backend must be one of loky, threading, serial, dask, ray, got 'mpi'"),
        ("loky", 0, None, "num_workers must be an integer >= 1, got 0"),
        ("loky", 1, "tcp://host:1", "scheduler must be given with backend dask or ray only"),
    ],
)
def test_requests_are_checked(backend, num_workers, scheduler, message):
    with pytest.raises(ValueError, match=message):
        check_backend(backend, num_workers, scheduler)


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_one_sentence_that_names_the_extra(monkeypatch, backend, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "\.\[distributed\]"') as error:
        list(run_tasks(multiply, "s", TASKS, backend=backend))
    assert "\n" not in str(error.value)


# --- models
# ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class MortalTrainer:
    """Observations seeded by world and index; kills the worker that trains model 7 with the canary,
    once.
    """

    marker: str

    def train_models(self, dataset, world, indices):
        if self.marker and world == 1 and 7 in indices:
            kill_once(self.marker)
        time.sleep(0.02)
        return np.stack([np.random.default_rng([world, index]).random(2) for index in indices])


def make_pair():
    from dvrenyi_plugin.data.neighbours import add_canary

    rng = np.random.default_rng(0)
    records = rng.random((6, 1, 2, 2)).astype(np.float32), rng.integers(0, 3, 6)
    return add_canary(records, np.ones((1, 2, 2), np.float32), 1)


def assert_same(first, second):
    assert first.without.tobytes() == second.without.tobytes()
    assert first.with_canary.tobytes() == second.with_canary.tobytes()


def train_with_a_killed_worker(tmp_path, backend, scheduler=None):
    """Trains on a cluster, where a worker is killed, and checks that every model is there exactly
    once.
    """
    from dvrenyi_plugin.audits.dp_sgd.settings import ModelTrainingConfig
    from dvrenyi_plugin.audits.training.models import train_both_worlds
    from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
    from dvrenyi_plugin.execution.observation_store import ObservationStore

    pair, marker = make_pair(), tmp_path / "killed"
    trainer = MortalTrainer(str(marker))
    added = []

    class CountingStore(ObservationStore):
        def add(self, world, numbers, observations):
            added.extend((world, number) for number in numbers)
            super().add(world, numbers, observations)

    config = ModelTrainingConfig(
        num_workers=2, models_per_task=2, backend=backend, scheduler=scheduler
    )
    path = tmp_path / "models.sqlite"
    with CountingStore(path, ExperimentFingerprint.of(trainer, pair)) as store:
        observations = train_both_worlds(trainer, pair, range(20), config, store=store)
        assert store.count() == 40
    assert marker.exists()
    assert sorted(added) == [(world, number) for world in (0, 1) for number in range(20)]
    assert_same(
        observations, train_both_worlds(MortalTrainer(""), pair, range(20), ModelTrainingConfig())
    )


def test_models_trained_by_dask_workers_one_of_which_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs dask[distributed]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        train_with_a_killed_worker(tmp_path, "dask", cluster.scheduler_address)
        with pytest.raises(ValueError, match="no 4"):
            run = run_tasks(
                multiply, "fail", TASKS, backend="dask", scheduler=cluster.scheduler_address
            )
            list(run)
        close_clusters()


def test_models_trained_by_ray_workers_one_of_which_is_killed(tmp_path):
    pytest.importorskip("ray", reason="needs ray")
    try:
        train_with_a_killed_worker(tmp_path, "ray")
        with pytest.raises(ValueError, match="no 4"):
            list(run_tasks(multiply, "fail", TASKS, backend="ray"))
    finally:
        close_clusters()


def test_dp_sgd_gives_the_same_bits_on_threads_processes_and_alone():
    from dvrenyi_plugin.audits.dp_sgd.settings import ModelTrainingConfig
    from dvrenyi_plugin.audits.training.models import train_both_worlds
    from dvrenyi_plugin.mechanisms import EnsembleDpSgdMechanism, EnsembleDpSgdMechanismConfig

    pair = make_pair()
    mechanism = EnsembleDpSgdMechanism(
        EnsembleDpSgdMechanismConfig(
            model="logistic",
            initial_weights={"1.weight": np.zeros((3, 4)), "1.bias": np.zeros(3)},
            canary=(np.ones((1, 2, 2)), 1),
            num_classes=3,
            num_steps=5,
            noise_multiplier=2.0,
            learning_rate=0.1,
        )
    )
    alone = train_both_worlds(mechanism, pair, range(12), ModelTrainingConfig())
    for backend in ("threading", "loky"):
        config = ModelTrainingConfig(backend=backend, num_workers=2, models_per_task=2)
        assert_same(train_both_worlds(mechanism, pair, range(12), config), alone)
