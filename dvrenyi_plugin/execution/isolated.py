"""Tasks in processes of their own, each with a time limit: one that hangs or dies takes no other
with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from dvrenyi_plugin._internal.files import open_for_appending
from dvrenyi_plugin.execution.parent_watch import end_with_parent, kill_own_group

# Read when numpy, torch and TensorFlow are first imported: one thread a process, since processes
# are what is parallel.
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
# After that long a process without a task that does not end is killed.
_END_LIMIT_S = 5.0


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
    num_ended: int = 0


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

    A task during which a process dies that has run others before is run once more in a new one: an
    earlier task may have left behind what killed it.

    Args:
      function: importable by name; takes a task, returns something that can be pickled.
      tasks: can be pickled.
      num_workers: processes, >= 1. A process runs one task after another.
      timeout_s: after that long a task's process is killed.
      prepare: importable by name; called once in each new process, outside the time of any task.
      log_path: file that takes what the processes print; None drops it.
      may_start: asked before each task; once it says no, running tasks are waited for and the rest
        is left.
    """
    queue = _Queue(iter(tasks), may_start)
    workers: list[_Worker] = []
    try:
        while True:
            while len([w for w in workers if w.task is not None]) < num_workers:
                task, is_retried = queue.next()
                if task is None:
                    break
                worker = None if is_retried else _idle(workers)
                if worker is None:
                    worker = _start(function, prepare, log_path)
                    workers.append(worker)
                _give(worker, task, timeout_s)
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                return
            remaining = min(worker.deadline for worker in busy) - time.monotonic()
            ready = wait([worker.connection for worker in busy], timeout=max(0.0, remaining))
            for worker in busy:
                outcome = _outcome(worker, worker.connection in ready, timeout_s)
                if outcome is None:
                    continue
                worker.num_ended += 1
                if outcome.status in (TIMED_OUT, PROCESS_DIED):
                    _stop(worker)
                    workers.remove(worker)
                worker.task, worker.deadline = None, float("inf")
                if outcome.status == PROCESS_DIED and worker.num_ended > 1:
                    queue.again.append(outcome.task)
                else:
                    yield outcome
    finally:
        for worker in workers:
            _stop(worker)


class _Queue:
    """Tasks that wait, those to run once more first."""

    def __init__(self, waiting: Iterator[Any], may_start: Callable[[], bool]) -> None:
        self._waiting, self._may_start = waiting, may_start
        self._is_exhausted = False
        self.again: list[Any] = []

    def next(self) -> tuple[Any, bool]:
        """Returns a task, None if there is none, and whether it is run once more."""
        if self.again:
            return self.again.pop(), True
        if self._is_exhausted or not self._may_start():
            self._is_exhausted = True
            return None, False
        task = next(self._waiting, None)
        self._is_exhausted = task is None
        return task, False


def _give(worker: _Worker, task: Any, timeout_s: float) -> None:
    worker.task = task
    worker.deadline = time.monotonic() + (timeout_s if worker.is_ready else _START_LIMIT_S)
    with contextlib.suppress(OSError):  # It has died, and is read as such later.
        worker.connection.send(task)


def _idle(workers: list[_Worker]) -> _Worker | None:
    """Returns a living worker without a task, if there is one; dead ones are taken off the list."""
    for worker in [w for w in workers if w.task is None]:
        if worker.process.is_alive():
            return worker
        _stop(worker)
        workers.remove(worker)
    return None


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
    # Unpickled by the process itself: the modules that this loads take seconds, in which it must
    # watch its parent.
    work = pickle.dumps((function, prepare))
    process = context.Process(target=_serve, args=(os.getpid(), theirs, work, log_path))
    with _environment(_ENVIRONMENT):
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    if worker.task is None:
        # It ends by itself, and gives back what its tasks made, such as the lock of a progress bar.
        # Waiting for the sentinel leaves its number taken.
        wait([worker.process.sentinel], timeout=_END_LIMIT_S)
    # The group first: once the process has been waited for, its number may be another's.
    pid = worker.process.pid
    if pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(OSError):  # It leads no group yet, or all of it has ended.
            os.killpg(pid, signal.SIGKILL)
    worker.process.kill()
    worker.process.join()


def _serve(parent: int, connection: Connection, work: bytes, log_path: str | None) -> None:
    # What this process and its tasks start is stopped together with it.
    if hasattr(os, "setsid"):
        os.setsid()
    end_with_parent(parent, kill_own_group)
    owner = os.getpid()
    # Testers print: progress bars, warnings of their libraries.
    with open_for_appending(log_path or os.devnull) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    function, prepare = pickle.loads(work)
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
        if (
            os.getpid() != owner
        ):  # The task forked, and this is the copy: there is one answer to a task.
            os._exit(0)
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
