"""The observation store: bit for bit, one row a model, whole after a kill, and never
overwritten.
"""

import dataclasses
import importlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer_examples import PAIR, NormalTrainer, make_pair

from dvrenyi_plugin.audits.dp_sgd.settings import ModelTrainingConfig
from dvrenyi_plugin.audits.training.models import train_both_worlds
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
from dvrenyi_plugin.execution.observation_store import (
    APPLICATION_ID,
    ObservationStore,
    ObservationStoreError,
)
from dvrenyi_plugin.mechanisms import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)

SERIAL = ModelTrainingConfig(models_per_task=3)


EXPERIMENT = ExperimentFingerprint.of(NormalTrainer(), PAIR)


def train(store, num_models, trainer=None):
    return train_both_worlds(
        trainer or NormalTrainer(), PAIR, range(num_models), SERIAL, store=store
    )


def same(first, second):
    return (
        first.without.tobytes() == second.without.tobytes()
        and first.with_canary.tobytes() == second.with_canary.tobytes()
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "models.sqlite"


@pytest.fixture
def full(path):
    """A store with five models a world."""
    with ObservationStore(path, EXPERIMENT) as store:
        train(store, 5)
    return path


@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    world=st.integers(0, 1),
    number=st.integers(0, 2**40),
)
def test_rows_come_back_bit_for_bit(tmp_path_factory, values, world, number):
    row = np.array([values])
    path = tmp_path_factory.mktemp("store") / "models.sqlite"
    with ObservationStore(path, EXPERIMENT) as store:
        store.add(world, [number], row)
    with ObservationStore(path, EXPERIMENT) as store:
        rows = store.rows(world, range(number, number + 1))
        assert list(rows) == [number]
        assert rows[number].tobytes() == row.tobytes()
        assert store.rows(1 - world, range(number, number + 1)) == {}


def test_what_is_stored_is_not_trained_again(full):
    trainer = NormalTrainer()
    with ObservationStore(full, EXPERIMENT) as store:
        observations = train(store, 8, trainer)
        assert store.count() == 16
    assert sorted(trainer.trained) == [(world, number) for world in (0, 1) for number in (5, 6, 7)]
    assert same(observations, train(None, 8))


def test_without_resuming_all_is_trained_again_and_compared(full):
    trainer = NormalTrainer()
    with ObservationStore(full, EXPERIMENT, resume=False) as store:
        observations = train(store, 5, trainer)
        assert store.count() == 10
    assert len(trainer.trained) == 10
    assert same(observations, train(None, 5))


def test_another_result_for_a_stored_model_is_an_error_and_changes_nothing(full):
    before = full.read_bytes()
    with ObservationStore(full, EXPERIMENT, resume=False) as store:
        with pytest.raises(ObservationStoreError, match="another result for model 4 of world 0"):
            store.add(0, [6, 4], np.zeros((2, 2)))
        assert store.count() == 10
    assert full.read_bytes() == before


@pytest.mark.parametrize(
    ("observe", "loss", "logits"),
    [
        ("loss", 1.5, None),
        ("logits", None, [1.5, -2.0, 3.0]),
        ("loss_and_logits", 1.5, [-2.0, 3.0]),
        ("weights", None, None),
    ],
)
def test_loss_logits_and_seed_are_columns_that_any_sqlite_program_reads(
    path, observe, loss, logits
):
    with ObservationStore(path, EXPERIMENT, seed=2**70, observe=observe) as store:
        store.add(1, [7], np.array([[1.5, -2.0, 3.0]]))
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT world, number, seed, loss, logits FROM models").fetchone()
    connection.close()
    assert row[:4] == (1, 7, str(2**70), loss)
    assert (row[4] is None) if logits is None else np.frombuffer(row[4]).tolist() == logits


# --- processes that die or meet
# -------------------------------------------------------------------------------

TRAINER_MODULE = """
    import dataclasses, os, signal
    import numpy as np

    @dataclasses.dataclass(frozen=True)
    class Trainer:
        def train_models(self, dataset, world, indices):
            if os.environ.get("KILL_AT") in {f"{world} {index}" for index in indices}:
                os.kill(os.getpid(), signal.SIGKILL)
            return np.stack([np.random.default_rng([world, index]).random(3) for index in indices])
"""
KILLED_PAIR = tuple((np.zeros((n, 2), np.float32), np.zeros(n, np.int64)) for n in (3, 4))
SCRIPT = """
    import os, signal, sys
    sys.path.insert(0, {folder!r})
    import numpy as np
    from killed_trainer import Trainer
    from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
    from dvrenyi_plugin.audits.training.models import train_both_worlds
    from dvrenyi_plugin.audits.dp_sgd.settings import ModelTrainingConfig
    from dvrenyi_plugin.execution.observation_store import ObservationStore

    PAIR = tuple((np.zeros((n, 2), np.float32), np.zeros(n, np.int64)) for n in (3, 4))

    class KilledBeforeCommit:
        def __init__(self, connection):
            self.connection, self.commits = connection, 0
        def execute(self, statement, *values):
            if statement == "COMMIT":
                self.commits += 1
                if self.commits == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
            return self.connection.execute(statement, *values)

    store = ObservationStore({path!r}, ExperimentFingerprint.of(Trainer(), PAIR))
    if os.environ.get("KILL_BEFORE_COMMIT"):
        store.rows(0, range(1))  # Makes the file.
        # Changes reach the file before they are committed.
        store._connection.execute("PRAGMA cache_size = 1")
        store._connection = KilledBeforeCommit(store._connection)
    config = ModelTrainingConfig(models_per_task=3)
    train_both_worlds(Trainer(), PAIR, range(20), config, store=store)
"""


@pytest.fixture
def trainer_process(tmp_path, path, monkeypatch):
    """Returns (start, trainer): a function that starts a training process, and the
    trainer it uses.
    """
    (tmp_path / "killed_trainer.py").write_text(textwrap.dedent(TRAINER_MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "killed_trainer", raising=False)
    trainer = importlib.import_module("killed_trainer").Trainer()
    code = textwrap.dedent(SCRIPT).format(folder=str(tmp_path), path=str(path))

    def start(**environment):
        return subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **environment}, stderr=subprocess.PIPE
        )

    yield start, trainer
    sys.modules.pop("killed_trainer", None)


@pytest.mark.parametrize(
    ("environment", "stored"), [({"KILL_AT": "1 10"}, 21), ({"KILL_BEFORE_COMMIT": "1"}, 6)]
)
def test_a_killed_audit_goes_on_and_ends_with_the_same_rows(
    path, trainer_process, environment, stored
):
    start, trainer = trainer_process
    process = start(**environment)
    _, error = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, error.decode()
    with ObservationStore(path, ExperimentFingerprint.of(trainer, KILLED_PAIR)) as store:
        assert store.count() == stored
        resumed = train_both_worlds(trainer, KILLED_PAIR, range(20), SERIAL, store=store)
        assert store.count() == 40
    assert same(resumed, train_both_worlds(trainer, KILLED_PAIR, range(20), SERIAL))
    assert os.listdir(path.parent) == [path.name]


def test_two_processes_at_once_leave_every_model_exactly_once(path, trainer_process):
    start, trainer = trainer_process
    processes = [start(), start()]
    for process in processes:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
    with ObservationStore(path, ExperimentFingerprint.of(trainer, KILLED_PAIR)) as store:
        assert store.count() == 40
        stored = [store.rows(world, range(20)) for world in (0, 1)]
    expected = train_both_worlds(trainer, KILLED_PAIR, range(20), SERIAL)
    for rows, world in zip(stored, (expected.without, expected.with_canary), strict=True):
        assert np.stack([rows[number] for number in range(20)]).tobytes() == world.tobytes()


def test_nothing_is_made_before_models_are_asked_for(path):
    with ObservationStore(path, EXPERIMENT) as store:
        assert store.count() == 0
        assert not path.parent.exists()
        assert store.rows(0, range(3)) == {}
        assert path.exists()


def test_two_writers_in_turn_see_each_other(path):
    # Both found nothing when they began: the second one to finish a model meets it in the file.
    rows = NormalTrainer().train_models(PAIR[0], 0, range(4))
    with ObservationStore(path, EXPERIMENT) as one, ObservationStore(path, EXPERIMENT) as two:
        one.add(0, [0, 1], rows[:2])
        two.add(0, [1, 2], rows[1:3])
        one.add(0, [2, 3], rows[2:])
        assert one.count() == two.count() == 4


def test_resumed_dp_sgd_is_that_of_one_run(path):
    rng = np.random.default_rng(0)
    records = rng.random((6, 1, 2, 2)).astype(np.float32), rng.integers(0, 3, 6)
    pair = add_canary(records, np.ones((1, 2, 2), np.float32), 1)
    config = EnsembleDpSgdMechanismConfig(
        model="logistic",
        initial_weights={"1.weight": np.zeros((3, 4)), "1.bias": np.zeros(3)},
        canary=(np.ones((1, 2, 2)), 1),
        num_classes=3,
        num_steps=4,
        noise_multiplier=2.0,
        learning_rate=0.1,
    )

    def experiment(changed):
        mechanism = EnsembleDpSgdMechanism(changed)
        return mechanism, ExperimentFingerprint.of(mechanism, pair)

    mechanism, fingerprint = experiment(config)
    whole = train_both_worlds(mechanism, pair, range(11), ModelTrainingConfig())
    for num_models in (4, 11):
        with ObservationStore(path, fingerprint) as store:
            resumed = train_both_worlds(
                mechanism, pair, range(num_models), ModelTrainingConfig(), store=store
            )
    assert same(resumed, whole)
    _, other = experiment(dataclasses.replace(config, num_steps=5, seed=1))
    with pytest.raises(
        ObservationStoreError, match=r"differs in settings\.num_steps, settings\.seed: name another"
    ):
        ObservationStore(path, other)


# --- files that cannot be used
# --------------------------------------------------------------------------------


def execute(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def overwrite(path, content):
    path.unlink()
    path.write_bytes(content)


BAD_FILES = {
    "empty": (lambda path: overwrite(path, b""), "not SQLite's or is cut short"),
    "text": (lambda path: overwrite(path, b"loss,world\n" * 100), "not SQLite's"),
    "header alone": (lambda path: overwrite(path, path.read_bytes()[:100]), "damaged"),
    "half": (
        lambda path: overwrite(path, path.read_bytes()[: path.stat().st_size // 2]),
        "damaged",
    ),
    "last page lost": (lambda path: overwrite(path, path.read_bytes()[:-4096]), "damaged"),
    "zeros in a page": (
        lambda path: overwrite(
            path, path.read_bytes()[:4096] + bytes(4096) + path.read_bytes()[8192:]
        ),
        "damaged",
    ),
    "another program's": (
        lambda path: execute(path, "PRAGMA application_id = 1"),
        "another program's SQLite file",
    ),
    "older": (
        lambda path: execute(path, "PRAGMA user_version = 0"),
        "written by an older version of this program .layout 0; this one reads layout 1",
    ),
    "newer": (
        lambda path: execute(path, "PRAGMA user_version = 2"),
        "written by a newer version of this program .layout 2",
    ),
    "no experiment": (
        lambda path: execute(path, "DELETE FROM experiment"),
        "damaged: it does not say",
    ),
    "edited experiment": (
        lambda path: execute(path, "UPDATE experiment SET description = '{}'"),
        "damaged: it does not say",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_was(full, kind):
    spoil, message = BAD_FILES[kind]
    spoil(full)
    before = full.read_bytes()
    for resume in (True, False):
        with pytest.raises(ObservationStoreError, match=message) as error:
            ObservationStore(full, EXPERIMENT, resume=resume)
        assert str(full) in str(error.value)
        assert "\n" not in str(error.value)
    assert full.read_bytes() == before
    assert os.listdir(full.parent) == [full.name]


def test_the_store_of_another_experiment_is_refused_by_name_of_what_differs(full):
    before = full.read_bytes()
    other = ExperimentFingerprint.of(NormalTrainer(shift=2.0), make_pair(4))
    with pytest.raises(
        ObservationStoreError, match=r"differs in settings\.shift, datasets: name another file"
    ):
        ObservationStore(full, other)
    assert full.read_bytes() == before


def test_a_changed_row_is_noticed(full):
    execute(full, "UPDATE models SET observation = zeroblob(16) WHERE world = 1 AND number = 3")
    with (
        ObservationStore(full, EXPERIMENT) as store,
        pytest.raises(ObservationStoreError, match="damaged: model 3 of world 1"),
    ):
        train(store, 5)


def test_paths_that_cannot_be_written_are_errors_of_the_system(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "below", "/proc/nowhere/models.sqlite"):
        with pytest.raises(OSError, match=r"store .* cannot be"):
            ObservationStore(path, EXPERIMENT).rows(0, range(1))
    assert os.listdir(tmp_path) == ["file"]


def test_a_store_says_whose_it_is(full):
    header = full.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == 1


# --- what decides a result
# ------------------------------------------------------------------------------------


def test_f3_what_is_not_finite_is_stored_as_it_is(tmp_path):
    observations = np.array([[np.nan, 1.0], [np.inf, np.nan], [-np.inf, 2.0]])
    for observe in ("loss", "logits", "loss_and_logits", None):
        path = tmp_path / f"{observe}.sqlite"
        with ObservationStore(path, ExperimentFingerprint("{}"), observe=observe) as store:
            store.add(0, [0, 1, 2], observations)
            store.add(0, [0, 1, 2], observations)
            rows = store.rows(0, range(3))
        np.testing.assert_array_equal(np.stack([rows[i] for i in range(3)]), observations)
