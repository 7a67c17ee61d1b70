"""The finished trials of a test, on disk: a file that is whole after every write."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class SavedTrial:
    """What is kept of a trial.

    Attributes:
      lower_bounds: of both directions.
      refuted: by each of them.
      datasets_digest: fingerprint of the pair; None if it has none.
    """

    lower_bounds: tuple[float, float]
    refuted: tuple[bool, bool]
    datasets_digest: str | None


class RunnerState:
    """Finished trials and the test they belong to."""

    def __init__(
        self, path: str | None, identity: Mapping[str, Any], trials: list[SavedTrial]
    ) -> None:
        self._path = path
        self._identity = dict(identity)
        self._trials = trials

    @classmethod
    def open(cls, path: str | None, identity: Mapping[str, Any]) -> RunnerState:
        """Returns the state in the file, or an empty one where there is no file.

        Args:
          path: None for a state that is not kept.
          identity: plain values that decide whether it is the same test.

        Raises:
          ValueError: the file holds no state, or that of another test.
        """
        if path is None or not os.path.exists(path):
            return cls(path, identity, [])
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            version, saved_identity = content["version"], content["test"]
            trials = [
                SavedTrial(
                    _pair_of(_number, trial["lower_bounds"]),
                    _pair_of(bool, trial["refuted"]),
                    trial["datasets_digest"],
                )
                for trial in content["trials"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"state_path must hold a saved test, got {path!r}: {error}") from None
        if version != _VERSION:
            raise ValueError(
                f"state_path must have version {_VERSION}, got {version!r} in {path!r}"
            )
        for name, value in identity.items():
            if saved_identity.get(name) != value:
                raise ValueError(
                    f"state_path {path!r} belongs to another test: its {name} is"
                    f" {saved_identity.get(name)!r}, this test's is {value!r}"
                )
        return cls(path, identity, trials)

    @property
    def trials(self) -> tuple[SavedTrial, ...]:
        """Finished trials, in order."""
        return tuple(self._trials)

    def append(self, trial: SavedTrial) -> None:
        """Adds a trial and replaces the file in one step.

        Raises:
          OSError: the file cannot be written.
        """
        self._trials.append(trial)
        if self._path is None:
            return
        content = {
            "version": _VERSION,
            "test": self._identity,
            "trials": [
                {
                    "lower_bounds": [_finite_or_text(bound) for bound in saved.lower_bounds],
                    "refuted": list(saved.refuted),
                    "datasets_digest": saved.datasets_digest,
                }
                for saved in self._trials
            ],
        }
        write_atomically(self._path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_atomically(path: str, text: str) -> None:
    """Writes a file beside its place and moves it there: readers see the old text or the new one.

    Raises:
      OSError: it cannot be written.
    """
    directory = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=".dvrenyi-", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # mkstemp makes private files; a result is an ordinary one.
        os.chmod(temporary, _ordinary_mode())
        os.replace(temporary, path)
    except BaseException:
        os.remove(temporary)
        raise


def _ordinary_mode() -> int:
    # There is no way to read the mask but to set it.
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


def _finite_or_text(value: float) -> float | str:
    # JSON has no infinities; float() reads them back.
    return value if math.isfinite(value) else str(value)


def _number(value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise ValueError("a lower bound is NaN")
    return number


def _pair_of(kind: Any, values: Any) -> tuple[Any, Any]:
    first, second = values
    return kind(first), kind(second)
