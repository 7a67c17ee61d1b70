"""The finished trials of a test, on disk: a file that is whole after every write."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import Any

from dvrenyi_plugin._internal.files import write_atomically
from dvrenyi_plugin._internal.sealed_json import seal, unseal

_VERSION = 3


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
        self,
        path: str | None,
        identity: Mapping[str, Any],
        trials: list[SavedTrial],
        text: str | None = None,
    ) -> None:
        self._path = path
        self._identity = dict(identity)
        self._trials = trials
        self._text = text

    @classmethod
    def open(cls, path: str | None, identity: Mapping[str, Any]) -> RunnerState:
        """Returns the state in the file, or an empty one where there is no file, which is then
        made.

        Args:
          path: None for a state that is not kept.
          identity: plain values that decide whether it is the same test.

        Raises:
          ValueError: the file holds no state, or that of another test.
          OSError: it cannot be read or made.
        """
        if path is None:
            return cls(path, identity, [])
        if not os.path.lexists(path):
            state = cls(path, identity, [])
            state._write()
            return state
        try:
            text = (_read(path) or b"").decode("utf-8")
            content = unseal(text)
            version, saved_identity = content["version"], dict(content["test"])
            if version != _VERSION:
                raise ValueError(f"version must be {_VERSION}, got {version!r}")
            trials = [
                SavedTrial(
                    _pair_of(_number, trial["lower_bounds"]),
                    _pair_of(_verdict, trial["refuted"]),
                    trial["datasets_digest"],
                )
                for trial in content["trials"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"state_path must hold a saved test, got {path!r}: {error}") from None
        # Without a trial there is nothing to lose.
        for name, value in identity.items() if trials else ():
            if saved_identity.get(name) != value:
                raise ValueError(
                    f"state_path {path!r} belongs to another test: its {name} is"
                    f" {saved_identity.get(name)!r}, this test's is {value!r}"
                )
        return cls(path, identity, trials, text)

    @property
    def trials(self) -> tuple[SavedTrial, ...]:
        """Finished trials, in order."""
        return tuple(self._trials)

    def append(self, trial: SavedTrial) -> None:
        """Adds a trial and replaces the file in one step.

        Raises:
          ValueError: somebody else has written to the file since.
          OSError: the file cannot be written.
        """
        self._trials.append(trial)
        if self._path is None:
            return
        if self._text is not None and _read(self._path) not in (None, self._text.encode()):
            raise ValueError(
                f"state_path {os.fspath(self._path)!r} was changed by somebody else while this test"
                f" ran; it is left as"
                " it is: one test, one file, one process"
            )
        self._write()

    def _write(self) -> None:
        assert self._path is not None
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
        text = json.dumps(seal(content), indent=1) + "\n"
        try:
            write_atomically(self._path, text)
        except OSError as error:
            raise OSError(
                f"state_path {os.fspath(self._path)!r} cannot be written: {error.strerror}"
            ) from error
        self._text = text


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _finite_or_text(value: float) -> float | str:
    # JSON has no infinities; float() reads them back.
    return value if math.isfinite(value) else str(value)


def _number(value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise ValueError("a lower bound is NaN")
    return number


def _verdict(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"a verdict must be true or false, got {value!r}")
    return value


def _pair_of(kind: Any, values: Any) -> tuple[Any, Any]:
    first, second = values
    return kind(first), kind(second)
