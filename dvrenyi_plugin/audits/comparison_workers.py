"""Tasks in processes of their own, each with a time limit: one that hangs or dies takes no other with it."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

# Read when numpy, torch and TensorFlow are first imported: one thread a process, since processes are what is parallel.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
FINISHED, FAILED, TIMED_OUT, PROCESS_DIED = "finished", "failed", "timed out", "process died"
_READY = "ready"
# Importing what a task needs is not the task's time; on a busy machine it alone can take a minute.
_START_LIMIT_S = 300.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
      task: as it was given.
      status: `FINISHED`, `FAILED` (the function raised), `TIMED_OUT` or `PROCESS_DIED`.
      value: what the function returned; None unless finished.
      message: of the error or how the process ended, else empty.
    """

    task: Any
    status: str
    value: Any = None
    message: str = ""


@dataclasses.dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: Any = None
    deadline: float = float("inf")
    is_ready: bool = False


def run_in_processes(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    *,
    num_workers: int,
    timeout_s: float,
    prepare: Callable[[], None] | None = None,
    log_path: str | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> Iterator[Outcome]:
    """Yields outcomes in the order in which tasks end.

    Args:
      function: importable by name; takes a task, returns something that can be pickled.
      tasks: can be pickled.
      num_workers: processes, >= 1. A process runs one task after another.
      timeout_s: after that long a task's process is killed.
      prepare: importable by name; called once in each new process, outside the time of any task.
      log_path: file that takes what the processes print; None drops it.
      may_start: asked before each task; once it says no, running tasks are waited for and the rest is left.
    """
    waiting = iter(tasks)
    workers: list[_Worker] = []
    exhausted = False
    try:
        while True:
            while not exhausted and len([w for w in workers if w.task is not None]) < num_workers:
                task = next(waiting, None) if may_start() else None
                if task is None:
                    exhausted = True
                    break
                worker = next((w for w in workers if w.task is None), None)
                if worker is None:
                    worker = _start(function, prepare, log_path)
                    workers.append(worker)
                worker.task = task
                worker.deadline = time.monotonic() + (
                    timeout_s if worker.is_ready else _START_LIMIT_S
                )
                worker.connection.send(task)
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                return
            remaining = min(worker.deadline for worker in busy) - time.monotonic()
            ready = wait([worker.connection for worker in busy], timeout=max(0.0, remaining))
            for worker in busy:
                outcome = _outcome(worker, worker.connection in ready, timeout_s)
                if outcome is None:
                    continue
                worker.task, worker.deadline = None, float("inf")
                if outcome.status in (TIMED_OUT, PROCESS_DIED):
                    _stop(worker)
                    workers.remove(worker)
                yield outcome
    finally:
        for worker in workers:
            _stop(worker)


def _outcome(worker: _Worker, is_ready: bool, timeout_s: float) -> Outcome | None:
    """Returns the outcome of a busy worker's task, None while it runs."""
    if is_ready:
        try:
            status, value = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(timeout=5.0)
            return Outcome(
                worker.task, PROCESS_DIED, message=f"exit code {worker.process.exitcode}"
            )
        if status == _READY:
            worker.is_ready, worker.deadline = True, time.monotonic() + timeout_s
            return None
        if status == FINISHED:
            return Outcome(worker.task, FINISHED, value)
        return Outcome(worker.task, FAILED, message=value)
    if time.monotonic() >= worker.deadline:
        limit = timeout_s if worker.is_ready else _START_LIMIT_S
        return Outcome(worker.task, TIMED_OUT, message=f"more than {limit:g} s")
    return None


def _start(
    function: Callable[[Any], Any], prepare: Callable[[], None] | None, log_path: str | None
) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, function, prepare, log_path))
    with _environment(_ENVIRONMENT):
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.kill()
    worker.process.join()


def _serve(
    connection: Connection,
    function: Callable[[Any], Any],
    prepare: Callable[[], None] | None,
    log_path: str | None,
) -> None:
    # Testers print: progress bars, warnings of their libraries.
    log = os.open(log_path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if prepare is not None:
        prepare()
    connection.send((_READY, None))
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (FINISHED, function(task))
        except Exception as error:
            answer = (FAILED, " ".join(f"{type(error).__name__}: {error}".split()))
        connection.send(answer)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
