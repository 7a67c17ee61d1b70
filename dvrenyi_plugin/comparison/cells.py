"""One cell of the comparison: one tester on one mechanism, honest or broken, at one sample size,
several times.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.sealed_arrays import read_arrays, write_arrays
from dvrenyi_plugin._internal.user_code import call_user_code, notes_of, user_array
from dvrenyi_plugin._internal.validation import check_samples
from dvrenyi_plugin.audits.directions import estimate_both_directions
from dvrenyi_plugin.audits.sample_checks import RepeatedSampleGuard
from dvrenyi_plugin.comparison.registry import (
    RENYI,
    AuditSubject,
    NotApplicableError,
    find_mechanism,
    find_tester,
    load_modules,
    make_tester_task,
)
from dvrenyi_plugin.comparison.settings import BROKEN
from dvrenyi_plugin.interfaces import ApproximateDp, RenyiDp
from dvrenyi_plugin.reports.plain_json import jsonable, plain_fields

OK, ERROR, TIMEOUT, DIED, NOT_APPLICABLE = "ok", "error", "timeout", "died", "not applicable"
_PILOT_SAMPLES = 200
Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, order=True)
class CellKey:
    """Which cell.

    Attributes:
      mechanism: registered name.
      variant: `HONEST` or `BROKEN`.
      num_samples: samples of each law.
      tester: registered name.
      repeats: audits wanted.
    """

    mechanism: str
    variant: str
    num_samples: int
    tester: str
    repeats: int


@dataclasses.dataclass(frozen=True)
class CellResult:
    """What became of a cell.

    Attributes:
      key: which cell.
      status: `OK`, or why there is no result: `ERROR`, `TIMEOUT`, `DIED` (the worker process
        ended), `NOT_APPLICABLE`.
      message: of the error, else empty.
      claim: what the claim allows, on the tester's scale.
      truth: true value on that scale; None if not known.
      bounds: shape (repeats, 2): both directions' bounds, each at half of the failure probability;
        may be NaN.
      refuted: whether either direction refuted the claim, one a repeat.
      seconds: time of each repeat, both directions.
      source: fingerprint of the user's files that registered mechanism and tester; empty for this
        package's.
    """

    key: CellKey
    status: str
    message: str = ""
    claim: float | None = None
    truth: float | None = None
    bounds: tuple[tuple[float, float], ...] = ()
    refuted: tuple[bool, ...] = ()
    seconds: tuple[float, ...] = ()
    source: str = ""

    @property
    def num_invalid(self) -> int:
        """Repeats in which a direction's bound is NaN."""
        return sum(math.isnan(first) or math.isnan(second) for first, second in self.bounds)

    @property
    def larger_bounds(self) -> Array:
        """The larger bound of each repeat, NaN where either is NaN, shape (repeats,)."""
        return np.asarray(np.array(self.bounds, dtype=np.float64).reshape(-1, 2).max(axis=1))

    @property
    def refuted_share(self) -> float | None:
        """Share of repeats that refuted the claim; None without repeats."""
        return sum(self.refuted) / len(self.refuted) if self.refuted else None

    def _check_parts(self) -> None:
        """Raises ValueError unless there are as many verdicts and times as pairs of bounds, as the
        status says.
        """
        if self.status not in (OK, ERROR, TIMEOUT, DIED, NOT_APPLICABLE):
            raise ValueError(f"status {self.status!r} is unknown")
        audits = self.key.repeats if self.status == OK else 0
        if not audits == len(self.bounds) == len(self.refuted) == len(self.seconds):
            raise ValueError(
                f"{audits} audits have {len(self.bounds)} pairs of bounds, {len(self.refuted)}"
                f" verdicts and {len(self.seconds)} times"
            )
        if any(not isinstance(verdict, bool) for verdict in self.refuted):
            raise ValueError(f"verdicts must be true or false, got {self.refuted}")

    def to_json(self) -> str:
        """Returns one line of JSON; what is not finite is text."""
        content = plain_fields(self) | {"seconds": [round(value, 4) for value in self.seconds]}
        return json.dumps(jsonable(content, as_text=True), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> CellResult:
        """Returns the result that `to_json` wrote.

        Raises:
          ValueError: the line is something else.
        """
        try:
            content = json.loads(line)
            content["key"] = CellKey(**content["key"])
            content["bounds"] = tuple((float(a), float(b)) for a, b in content["bounds"])
            content["truth"] = None if content["truth"] is None else float(content["truth"])
            content["refuted"] = tuple(content["refuted"])
            content["seconds"] = tuple(float(value) for value in content["seconds"])
            result = cls(**content)
            result._check_parts()
            return result
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(
                f"a row must hold a cell's result, got {line[:80]!r}: {error}"
            ) from None


@dataclasses.dataclass(frozen=True)
class CellTask:
    """A cell to be run, in whatever process.

    Attributes:
      key: which cell.
      failure_probability: of one audit, both directions together.
      seed: root of every random stream.
      modules: what has to be loaded for the names in the key to be known.
      pool_path: file of samples drawn beforehand; None to draw them here.
    """

    key: CellKey
    failure_probability: float
    seed: int
    modules: tuple[str, ...]
    pool_path: str | None = None


@dataclasses.dataclass(frozen=True)
class PoolTask:
    """Samples to be drawn once for all cells of a mechanism that is expensive to sample.

    Attributes:
      mechanism: registered name.
      variant: `HONEST` or `BROKEN`.
      num_samples: samples of each law for the cells.
      seed: root of every random stream.
      modules: what has to be loaded.
      path: file to write.
    """

    mechanism: str
    variant: str
    num_samples: int
    seed: int
    modules: tuple[str, ...]
    path: str


def run_task(task: CellTask | PoolTask) -> CellResult | None:
    """Returns the cell's result; None for a pool, which is a file."""
    if isinstance(task, PoolTask):
        draw_pool(task)
        return None
    return run_cell(task)


def draw_pool(task: PoolTask) -> None:
    """Draws a pool and writes it in one step, with the claims of its mechanism."""
    load_modules(task.modules)
    subject = _subject(task.mechanism, task.variant, 0, task.seed)
    count = task.num_samples + _PILOT_SAMPLES
    guard = RepeatedSampleGuard()
    samples = [_draw(subject, dataset, count, guard) for dataset in subject.datasets]
    approximate = subject.approximate
    claims = {
        "renyi": _floats(dataclasses.astuple(subject.renyi)),
        "approximate": None if approximate is None else _floats(dataclasses.astuple(approximate)),
        "true_divergence": _float_or_none(subject.true_divergence),
        "true_delta": _float_or_none(subject.true_delta),
    }
    arrays = {
        "samples1": samples[0],
        "samples2": samples[1],
        "claims": np.array(json.dumps(claims)),
    }
    write_arrays(task.path, arrays, os.path.basename(task.path))


def read_pool(path: str) -> dict[str, NDArray[Any]]:
    """Returns what `draw_pool` wrote: samples1, samples2 and claims, which is JSON.

    Raises:
      ValueError: the file is damaged, or another pool's.
    """
    try:
        return read_arrays(path, os.path.basename(path))
    except ValueError as error:
        raise ValueError(f"{error}: delete it, and the samples are drawn again") from None


def run_cell(task: CellTask) -> CellResult:
    """Returns the result of a cell; an error inside the mechanism or the tester is a result too."""
    key = task.key
    try:
        load_modules(task.modules)
        return _run_cell(task)
    except NotApplicableError as error:
        return CellResult(key, NOT_APPLICABLE, one_line(str(error)))
    except (Exception, SystemExit) as error:
        return CellResult(key, ERROR, one_line(f"{type(error).__name__}: {error}{notes_of(error)}"))


def _run_cell(task: CellTask) -> CellResult:
    key = task.key
    registered = find_tester(key.tester)
    source = _Fresh(task) if task.pool_path is None else _Pool(task)
    output_range = _range_of(*source.pilot)
    bounds, refuted, seconds = [], [], []
    claim: float | None = None
    for repeat, (samples1, samples2) in enumerate(source.pairs()):
        seed = _seed(task.seed, f"tester {key.tester}", repeat)
        problem = make_tester_task(
            source.subject, key.num_samples, samples1.shape[1], output_range, seed
        )
        claim = float(
            source.subject.renyi.epsilon
            if registered.scale == RENYI
            else problem.approximate_dp.delta
        )
        _seed_globally(seed)
        tester = registered.build(problem)
        start = time.perf_counter()
        pair, verdicts = estimate_both_directions(
            tester, (samples1, samples2), task.failure_probability
        )
        refuted.append(any(verdicts))
        seconds.append(time.perf_counter() - start)
        bounds.append(pair)
    return CellResult(
        key=key,
        status=OK,
        claim=claim,
        truth=_float_or_none(source.subject.truth(registered.scale)),
        bounds=tuple(bounds),
        refuted=tuple(refuted),
        seconds=tuple(seconds),
    )


class _Fresh:
    """New samples for every repeat, the same ones for every tester."""

    def __init__(self, task: CellTask) -> None:
        self._key, self._seed = task.key, task.seed
        self._guard = RepeatedSampleGuard()
        self.subject = _subject(
            task.key.mechanism, task.key.variant, task.key.num_samples, task.seed
        )
        self.pilot = self._pair(_PILOT_SAMPLES)

    def pairs(self) -> Iterator[tuple[Array, Array]]:
        key = self._key
        for repeat in range(key.repeats):
            # What the tester before did to the global generators must not reach these samples.
            name = f"samples {key.mechanism} {key.variant} {key.num_samples}"
            _seed_globally(_seed(self._seed, name, repeat))
            yield self._pair(key.num_samples)

    def _pair(self, count: int) -> tuple[Array, Array]:
        first, second = self.subject.datasets
        return (
            _draw(self.subject, first, count, self._guard),
            _draw(self.subject, second, count, self._guard),
        )


class _Pool:
    """Disjoint parts of samples drawn beforehand: repeats share nothing."""

    def __init__(self, task: CellTask) -> None:
        assert task.pool_path is not None
        self._key = task.key
        arrays = read_pool(task.pool_path)
        self._samples = arrays["samples1"], arrays["samples2"]
        claims = json.loads(str(arrays["claims"]))
        approximate = claims["approximate"]

        def unavailable(dataset: Any, num_samples: int) -> Any:
            raise ValueError("a pool's mechanism cannot be called again")

        self.subject = AuditSubject(
            mechanism=unavailable,
            datasets=(None, None),
            renyi=RenyiDp(*claims["renyi"]),
            approximate=None if approximate is None else ApproximateDp(*approximate),
            true_divergence=claims["true_divergence"],
            true_delta=claims["true_delta"],
        )
        self.pilot = self._samples[0][-_PILOT_SAMPLES:], self._samples[1][-_PILOT_SAMPLES:]

    def pairs(self) -> Iterator[tuple[Array, Array]]:
        count = self._key.num_samples
        for repeat in range(self._key.repeats):
            part = slice(repeat * count, (repeat + 1) * count)
            first, second = self._samples[0][part], self._samples[1][part]
            if repeat * count + count > len(self._samples[0]) - _PILOT_SAMPLES:
                raise ValueError(
                    f"a pool of {len(self._samples[0]) - _PILOT_SAMPLES} samples has no part"
                    f" {repeat} of {count}"
                )
            yield first, second


def _subject(mechanism: str, variant: str, num_samples: int, seed: int) -> AuditSubject:
    stream = _seed(seed, f"mechanism {mechanism} {variant}", num_samples)
    _seed_globally(stream)
    subject = find_mechanism(mechanism).build(variant == BROKEN, stream)
    if not isinstance(subject, AuditSubject):
        raise ValueError(
            f"the builder of mechanism {mechanism!r} must return an AuditSubject, got"
            f" {type(subject).__name__}"
        )
    return subject


def _draw(subject: AuditSubject, dataset: Any, count: int, guard: RepeatedSampleGuard) -> Array:
    drawn = call_user_code("mechanism", subject.mechanism, dataset, count)
    samples = check_samples("samples", user_array("mechanism", drawn))
    if len(samples) != count:
        raise ValueError(f"mechanism must return {count} samples, got shape {samples.shape}")
    guard.check(samples)
    return samples


def _seed_globally(seed: int) -> None:
    """Seeds the generators that a user's code may share with all others: a cell must not depend on
    those run before it.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def _range_of(samples1: Array, samples2: Array) -> tuple[float, float]:
    columns = np.concatenate([samples1[:, 0], samples2[:, 0]])
    low, high = float(columns.min()), float(columns.max())
    margin = 0.1 * (high - low) or 0.5
    return low - margin, high + margin


def _seed(root: int, name: str, number: int) -> int:
    # A checksum of the name: hash() differs from process to process.
    sequence = np.random.SeedSequence(root, spawn_key=(zlib.crc32(name.encode()), number))
    return int(sequence.generate_state(1)[0])


def one_line(text: str) -> str:
    """Returns the beginning of a message on one line that every report can hold."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode("utf-8").split())[:500]


def _floats(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values]


def _float_or_none(value: float | None) -> float | None:
    return None if value is None else float(value)
