"""A file that keeps every trained model's observation, so that an interrupted audit goes on where
it was.

One SQLite file holds the models of one experiment. Each group of models is committed as it
finishes: what a killed process leaves behind is whole, and several processes may write to the same
file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.files import (
    create_once,
    errors_that_name_argument,
    refuse_link,
    scratch_folder,
)
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint

# In the file's header: whose file it is ("DvRo"), and which of its layouts.
APPLICATION_ID = 0x4476526F
SCHEMA_VERSION = 1

_SQLITE_HEADER = b"SQLite format 3\x00"
_SECONDS_TO_WAIT_FOR_A_WRITER = 60.0
_SCHEMA = f"""
CREATE TABLE experiment (fingerprint TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE models (
  world INTEGER NOT NULL,
  number INTEGER NOT NULL,
  seed TEXT,
  loss REAL,
  logits BLOB,
  observation BLOB NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (world, number)
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


class ObservationStoreError(ValueError):
    """The file cannot be used for this experiment. It has been left as it was."""


class ObservationStore:
    """The stored models of one experiment.

    Not to be shared by threads; processes open one each.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        experiment: ExperimentFingerprint,
        *,
        resume: bool = True,
        seed: int | None = None,
        observe: str | None = None,
    ) -> None:
        """Opens the file. If there is none, it is made when models are first asked for or added.

        Args:
          path: of the SQLite file; missing folders are made.
          experiment: whose models these are.
          resume: use what is stored. If not, every model is trained again and compared with its
            row.
          seed: root seed of the models' streams, written beside them.
          observe: what an observation is, as in `DpSgdConfig.observe`; decides what is written to
            the columns `loss` and `logits`.

        Raises:
          ObservationStoreError: the file holds another experiment, has another layout, is damaged,
            or is no observation store. It is never changed then.
          OSError: it cannot be read or written.
        """
        self.path = os.path.abspath(os.fspath(path))
        self._experiment = experiment
        self._resume = resume
        self._seed = None if seed is None else str(seed)
        self._observe = observe
        self._connection: sqlite3.Connection | None = None
        if os.path.lexists(self.path):
            self._open()

    def __enter__(self) -> ObservationStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. Everything added is in it already."""
        if self._connection is not None:
            self._connection.close()

    @property
    def fingerprint(self) -> str:
        """Digest of the experiment whose models these are."""
        return self._experiment.digest

    def count(self) -> int:
        """Returns the number of stored models, both worlds together."""
        if self._connection is None:
            return 0
        with self._errors():
            return int(self._connection.execute("SELECT count(*) FROM models").fetchone()[0])

    def rows(self, world: int, numbers: range) -> dict[int, NDArray[np.float64]]:
        """Returns the stored observations of these models, shape (k,) each, by number.

        Empty when the store was opened without resuming.

        Args:
          world: of the models.
          numbers: a range without gaps.

        Raises:
          ObservationStoreError: a row is damaged.
        """
        connection = self._open()
        if not self._resume or not numbers:
            return {}
        with self._errors():
            stored = connection.execute(
                "SELECT number, seed, loss, logits, observation, digest FROM models"
                " WHERE world = ? AND number BETWEEN ? AND ?",
                (world, numbers[0], numbers[-1]),
            ).fetchall()
        rows = {}
        for number, *columns, digest in stored:
            if self._digest(world, number, *columns) != digest:
                raise ObservationStoreError(
                    f"store {self.path!r} is damaged: model {number} of world {world} does not have"
                    f" the"
                    " checksum it was stored with"
                )
            rows[number] = np.frombuffer(columns[-1], dtype="<f8").astype(np.float64)
        return rows

    def add(self, world: int, numbers: Sequence[int], observations: NDArray[np.float64]) -> None:
        """Commits these models, all or none. A model that is there already is compared and left.

        Args:
          world: of the models.
          numbers: of the models.
          observations: shape (len(numbers), k), a row each.

        Raises:
          ObservationStoreError: a model is there with another result: training is not reproducible.
          OSError: the file cannot be written.
        """
        rows = []
        for number, observation in zip(numbers, observations, strict=True):
            loss, logits = self._loss_and_logits(observation)
            columns = (self._seed, loss, logits, _blob(observation))
            rows.append((world, number, *columns, self._digest(world, number, *columns)))
        connection = self._open()
        with self._errors(), _transaction(connection):
            for row in rows:
                stored = connection.execute(
                    "SELECT observation FROM models WHERE world = ? AND number = ?", row[:2]
                ).fetchone()
                if stored is None:
                    connection.execute("INSERT INTO models VALUES (?,?,?,?,?,?,?)", row)
                elif stored[0] != row[5]:
                    raise ObservationStoreError(
                        f"store {self.path!r} holds another result for model {row[1]} of world"
                        f" {world} than"
                        " was just trained: the mechanism is not reproducible, or this machine"
                        " rounds"
                        " differently"
                    )

    def _open(self) -> sqlite3.Connection:
        """Returns the connection; opens, makes and checks the file at the first call."""
        if self._connection is not None:
            return self._connection
        if not os.path.lexists(self.path):
            _create(self.path, self._experiment)
        _check_header(self.path)
        with self._errors():
            connection = _connect(self.path)
        try:
            with self._errors():
                self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise ObservationStoreError(
                f"store {self.path!r} must be an observation store, got another program's SQLite"
                f" file"
            )
        if version != SCHEMA_VERSION:
            age = "an older" if version < SCHEMA_VERSION else "a newer"
            raise ObservationStoreError(
                f"store {self.path!r} was written by {age} version of this program (layout"
                f" {version}; this one"
                f" reads layout {SCHEMA_VERSION}): name another file"
            )
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise ObservationStoreError(
                f"store {self.path!r} is damaged: {' '.join(problem.split())}"
            )
        stored = connection.execute("SELECT fingerprint, description FROM experiment").fetchall()
        if len(stored) != 1 or ExperimentFingerprint(stored[0][1]).digest != stored[0][0]:
            raise ObservationStoreError(
                f"store {self.path!r} is damaged: it does not say which experiment it belongs to"
            )
        if stored[0][0] != self._experiment.digest:
            differences = self._experiment.differences(ExperimentFingerprint(stored[0][1]))
            more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
            raise ObservationStoreError(
                f"store {self.path!r} holds another experiment, which differs in"
                f" {', '.join(differences[:4])}{more}: name another file"
            )

    def _loss_and_logits(
        self, observation: NDArray[np.float64]
    ) -> tuple[float | None, bytes | None]:
        """Returns the canary's loss and logits, as far as the observation has them."""
        # SQLite knows no NaN: it would store NULL, and the row's checksum would be another.
        loss = None if np.isnan(observation[0]) else float(observation[0])
        match self._observe:
            case "loss":
                return loss, None
            case "logits":
                return None, _blob(observation)
            case "loss_and_logits":
                return loss, _blob(observation[1:])
        return None, None

    def _digest(self, world: int, number: int, *columns: Any) -> bytes:
        content = repr((self._experiment.digest, world, number, *columns)).encode()
        return hashlib.sha256(content).digest()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, which name the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"store {self.path!r} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise ObservationStoreError(f"store {self.path!r} is damaged: {error}") from error


def open_store(
    path: str | os.PathLike[str] | None,
    folder: str | os.PathLike[str],
    mechanism: Any,
    pair: Any,
    *,
    resume: bool = True,
) -> ObservationStore:
    """Returns the store of training with this mechanism on this pair, at a path of its own if none
    is given.

    Args:
      path: of the file. None: a file in `folder` that is named after the experiment, so that each
        experiment finds its own models there.
      folder: see `path`.
      mechanism: see `ExperimentFingerprint.of`.
      pair: (D, D + canary).
      resume: see `ObservationStore`.

    Raises:
      ValueError: the mechanism has settings of unknown content, or the file cannot be used.
      OSError: it cannot be read or written.
    """
    experiment = ExperimentFingerprint.of(mechanism, pair)
    named, given = ("output_dir", folder) if path is None else ("store", path)
    if path is None:
        path = os.path.join(folder, f"observations-{experiment.digest[:12]}.sqlite")
        refuse_link("output_dir", path)
    config = getattr(mechanism, "config", None)
    with errors_that_name_argument(named, given):
        return ObservationStore(
            path,
            experiment,
            resume=resume,
            seed=getattr(config, "seed", None),
            observe=getattr(config, "observe", None),
        )


def _blob(values: NDArray[np.float64]) -> bytes:
    return values.astype("<f8").tobytes()


def _create(path: str, experiment: ExperimentFingerprint) -> None:
    """Makes an empty store, whole from the moment it has its name, unless another process is
    faster.
    """
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with scratch_folder(folder) as scratch:
            draft = os.path.join(scratch, "store")
            with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.executescript(_SCHEMA)
                connection.execute(
                    "INSERT INTO experiment VALUES (?, ?)",
                    (experiment.digest, experiment.description),
                )
            create_once(draft, path)
    except sqlite3.Error as error:
        raise OSError(f"store {path!r} cannot be made: {error}") from error
    except OSError as error:
        raise OSError(f"store {path!r} cannot be made: {error.strerror}") from error


def _check_header(path: str) -> None:
    # SQLite would take an empty file for a new database and fill it.
    try:
        with open(path, "rb") as file:
            header = file.read(len(_SQLITE_HEADER))
    except OSError as error:
        raise OSError(f"store {path!r} cannot be read: {error.strerror}") from error
    if header != _SQLITE_HEADER:
        raise ObservationStoreError(
            f"store {path!r} must be an observation store, got a file that is not SQLite's or is"
            f" cut short"
        )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # The right to write is taken before reading: otherwise two processes could both find a row
    # missing.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _connect(path: str) -> sqlite3.Connection:
    # Read and write, but never create.
    return sqlite3.connect(
        f"{pathlib.Path(path).as_uri()}?mode=rw",
        uri=True,
        timeout=_SECONDS_TO_WAIT_FOR_A_WRITER,
        isolation_level=None,
    )
