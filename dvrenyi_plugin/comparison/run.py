"""Every tester on every mechanism, honest and broken, at several sample sizes: planned, run in
parallel, resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from dvrenyi_plugin import __version__
from dvrenyi_plugin._internal.files import refuse_link
from dvrenyi_plugin.comparison.cells import (
    DIED,
    ERROR,
    NOT_APPLICABLE,
    OK,
    TIMEOUT,
    CellKey,
    CellResult,
    CellTask,
    PoolTask,
    one_line,
    read_pool,
    run_task,
)
from dvrenyi_plugin.comparison.registry import (
    find_mechanism,
    find_tester,
    load_modules,
    mechanism_names,
    tester_names,
)
from dvrenyi_plugin.comparison.rows import RowStore, with_source
from dvrenyi_plugin.comparison.settings import ComparisonConfig
from dvrenyi_plugin.execution.isolated import (
    FINISHED,
    PROCESS_DIED,
    TIMED_OUT,
    Outcome,
    run_in_processes,
)
from dvrenyi_plugin.reports.versions import library_versions

_ROWS, _POOLS, _LOG = "rows.jsonl", "pools", "workers.log"
# What the testers of workers may load beside what every audit uses.
_OPTIONAL_LIBRARIES = ("scikit-learn", "dp_auditorium", "tensorflow", "keras")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Rows of a comparison.

    Attributes:
      config: what was asked.
      mechanisms: names compared, in order.
      testers: names compared, in order.
      rows: one a cell that has ended, in the order of the plan.
      num_missing: cells of the plan that have not ended.
      versions: of the libraries.
    """

    config: ComparisonConfig
    mechanisms: tuple[str, ...]
    testers: tuple[str, ...]
    rows: tuple[CellResult, ...]
    num_missing: int
    versions: Mapping[str, str]

    @property
    def num_failed(self) -> int:
        """Cells that ended without a result, though their tester can test their claim."""
        return sum(row.status not in (OK, NOT_APPLICABLE) for row in self.rows)


def run_comparison(
    config: ComparisonConfig, on_progress: Callable[[int, int, CellResult], None] | None = None
) -> Comparison:
    """Returns the comparison, after running every cell that the output folder has no row for.

    A row is appended as soon as its cell ends. A tester or mechanism that raises, hangs or kills
    its process leaves a row that says so.

    Args:
      config: see `ComparisonConfig`.
      on_progress: called after each cell with (cells ended, cells planned, result).

    Raises:
      ValueError: an unknown name, a module that cannot be loaded, an output folder in use by
        another process, or one whose rows or pools are damaged or of a comparison with another
        seed, failure probability or version.
      OSError: the folder cannot be written.
    """
    started = time.monotonic()
    load_modules(config.all_modules)
    mechanisms = config.mechanisms or mechanism_names()
    testers = config.testers or tester_names()
    plan = _plan(config, mechanisms, testers)
    if os.path.lexists(config.output_dir) and not os.path.isdir(config.output_dir):
        raise ValueError(f"output_dir must be a folder, got the file {config.output_dir!r}")
    os.makedirs(config.output_dir, exist_ok=True)
    for name in (_POOLS, _LOG):
        refuse_link("output_dir", os.path.join(config.output_dir, name))

    def may_start() -> bool:
        limit = config.time_limit_s
        return limit is None or time.monotonic() - started < limit

    header = {
        "seed": int(config.seed),
        "failure_probability": float(config.failure_probability),
        "version": __version__,
    }
    with RowStore.open(os.path.join(config.output_dir, _ROWS), header, _source) as store:
        missing = _missing(plan, store.rows, config.retry_failed)
        done = len(plan) - len(missing)
        with contextlib.closing(_run(config, missing, may_start)) as results:
            for result in results:
                store.append(with_source(result, _source(result.key) or ""))
                done += 1
                if on_progress is not None:
                    on_progress(done, len(plan), result)
    rows = tuple(store.rows[key] for key, _ in plan if key in store.rows)
    return Comparison(
        config,
        tuple(mechanisms),
        tuple(testers),
        rows,
        len(plan) - len(rows),
        library_versions(*_OPTIONAL_LIBRARIES),
    )


def _plan(
    config: ComparisonConfig, mechanisms: tuple[str, ...], testers: tuple[str, ...]
) -> list[tuple[CellKey, int | None]]:
    """Returns every cell with the size of its pool, None for samples drawn in the cell."""
    plan: list[tuple[CellKey, int | None]] = []
    for name in mechanisms:
        mechanism = find_mechanism(name)
        pool = None
        if mechanism.pool_size is not None:
            pool = min(mechanism.pool_size, config.repeats * max(config.sample_sizes))
        for variant in config.variants:
            for size in config.sample_sizes:
                for tester_name in testers:
                    slow = find_tester(tester_name).slow
                    repeats = config.slow_repeats if slow else config.repeats
                    if pool is not None:
                        repeats = min(repeats, pool // size)
                    if repeats > 0:
                        key = CellKey(name, variant, int(size), tester_name, int(repeats))
                        plan.append((key, pool))
    return plan


def _missing(
    plan: list[tuple[CellKey, int | None]], rows: Mapping[CellKey, CellResult], retry_failed: bool
) -> list[tuple[CellKey, int | None]]:
    """Returns the cells that are still to be run."""
    missing = [
        (key, pool)
        for key, pool in plan
        if key not in rows or (retry_failed and rows[key].status not in (OK, NOT_APPLICABLE))
    ]
    # Fast testers first: a run that is cut short shows most of the picture.
    return sorted(missing, key=lambda cell: find_tester(cell[0].tester).slow)


def _run(
    config: ComparisonConfig,
    cells: list[tuple[CellKey, int | None]],
    may_start: Callable[[], bool],
) -> Generator[CellResult, None, None]:
    pools: dict[str, PoolTask] = {}
    for key, size in cells:
        if size is not None:
            pool = PoolTask(
                key.mechanism,
                key.variant,
                size,
                config.seed,
                config.all_modules,
                _pool_path(config, key, size),
            )
            pools[pool.path] = pool
    undrawn = []
    for drawn, pool in pools.items():
        if os.path.exists(drawn):
            read_pool(drawn)
        else:
            undrawn.append(pool)
    failed: dict[str, Outcome] = {}
    for outcome in _in_processes(config, undrawn, may_start):
        if outcome.status != FINISHED:
            failed[outcome.task.path] = outcome
    tasks = []
    for key, size in cells:
        path = None if size is None else _pool_path(config, key, size)
        if path in failed:
            yield _without_result(key, failed[path], "drawing samples: ")
        elif path is None or os.path.exists(path):
            tasks.append(
                CellTask(key, config.failure_probability, config.seed, config.all_modules, path)
            )
    for outcome in _in_processes(config, tasks, may_start):
        if outcome.status == FINISHED:
            yield outcome.value
        else:
            yield _without_result(outcome.task.key, outcome, "")


def _in_processes(
    config: ComparisonConfig, tasks: list[Any], may_start: Callable[[], bool]
) -> Iterator[Outcome]:
    return run_in_processes(
        run_task,
        tasks,
        num_workers=config.num_workers,
        timeout_s=config.timeout_s,
        prepare=functools.partial(load_modules, config.all_modules),
        log_path=os.path.abspath(os.path.join(config.output_dir, _LOG)),
        may_start=may_start,
    )


def _without_result(key: CellKey, outcome: Outcome, prefix: str) -> CellResult:
    status = {TIMED_OUT: TIMEOUT, PROCESS_DIED: DIED}.get(outcome.status, ERROR)
    return CellResult(key, status, one_line(prefix + outcome.message))


def _source(key: CellKey) -> str | None:
    """Returns which files registered a cell's mechanism and tester; None for names that are not
    registered now.
    """
    if key.mechanism not in mechanism_names() or key.tester not in tester_names():
        return None
    sources = find_mechanism(key.mechanism).source, find_tester(key.tester).source
    return " ".join(sources) if any(sources) else ""


def _pool_path(config: ComparisonConfig, key: CellKey, size: int) -> str:
    source = find_mechanism(key.mechanism).source
    stem = f"{key.mechanism}-{source}" if source else key.mechanism
    name = f"{stem}-{key.variant}-seed{config.seed}-{size}.npz"
    # Absolute: a tester may change its process's working directory.
    return os.path.abspath(os.path.join(config.output_dir, _POOLS, name))
