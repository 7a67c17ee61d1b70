"""Where tasks run: in this process, on this machine's cores, or on a cluster of many.

A worker that dies takes nothing with it: its tasks are given to others. Tasks must therefore give
the same result wherever and however often they run.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from dvrenyi_plugin._internal.extras import missing_extra
from dvrenyi_plugin._internal.validation import check_choice, check_int
from dvrenyi_plugin.execution.parent_watch import end_with_parent

BACKENDS = ("loky", "threading", "serial", "dask", "ray")
# backend -> the module that it needs
_CLUSTERS = {"dask": "distributed", "ray": "ray"}

# How often workers may die over one task, or one after another on this machine, before we stop.
_MAX_DEATHS = 3
_SECONDS_TO_CLOSE_A_LOST_CLIENT = 1.0

Function = Callable[..., Any]
Results = Generator[tuple[int, Any], None, None]


# By address and number of workers, kept between calls: a local cluster takes seconds to start.
_dask_clients: dict[tuple[str | None, int], Any] = {}


class WorkersDiedError(OSError):
    """Worker processes died again and again: killed, out of memory, or crashed."""


def check_backend(backend: str, num_workers: int, scheduler: str | None) -> None:
    """Raises ValueError or ImportError unless tasks could be run like this; see `run_tasks`."""
    check_choice("backend", backend, BACKENDS)
    check_int("num_workers", num_workers, at_least=1)
    if scheduler is not None and backend not in _CLUSTERS:
        raise ValueError(f"scheduler must be given with backend dask or ray only, got {backend!r}")
    if backend in _CLUSTERS and importlib.util.find_spec(_CLUSTERS[backend]) is None:
        package = _CLUSTERS[backend]
        raise missing_extra(
            f"backend {backend!r}", f"the package {package}", "distributed", "it is not installed"
        )


def run_tasks(
    function: Function,
    shared: Any,
    tasks: Sequence[tuple[Any, ...]],
    *,
    backend: str = "loky",
    num_workers: int = 1,
    scheduler: str | None = None,
) -> Results:
    """Yields (i, function(shared, *tasks[i])) for every i exactly once, in the order in which they
    finish.

    Closing the generator, or an exception in a task, stops what has not begun.

    Args:
      function: defined at the top of a module that workers can import.
      shared: what all tasks need; sent to a cluster once.
      tasks: the other arguments of each.
      backend: "loky" (processes on this machine; with one worker, this process), "threading"
        (threads in this process), "serial" (this process, one after another), "dask" or "ray" (a
        cluster).
      num_workers: processes or threads on this machine; a cluster with an address of its own has
        its own number.
      scheduler: address of a running cluster, "tcp://host:8786" for Dask, "auto" or
        "ray://host:10001" for Ray. None starts one on this machine, which is kept for later calls
        until the process ends.

    Raises:
      ImportError: Dask or Ray is not installed.
      WorkersDiedError: tasks were given to new workers three times, and these died too.
      OSError: the cluster cannot be reached.
      Exception: what the function raised.
    """
    check_backend(backend, num_workers, scheduler)
    if backend == "dask":
        return _run_on_dask(function, shared, tasks, num_workers, scheduler)
    if backend == "ray":
        return _run_on_ray(function, shared, tasks, num_workers, scheduler)
    if backend == "serial" or num_workers == 1:
        return ((i, function(shared, *task)) for i, task in enumerate(tasks))
    return _run_on_joblib(function, shared, tasks, num_workers, backend)


def _run_on_joblib(
    function: Function, shared: Any, tasks: Sequence[Any], num_workers: int, backend: str
) -> Results:
    from joblib import Parallel, delayed, parallel_config

    # Only processes can be told how many threads their libraries may use; threads share this
    # process's number.
    limits = {"inner_max_num_threads": 1} if backend == "loky" else {}
    watch: dict[str, Any] = (
        {"initializer": _prepare_process, "initargs": (os.getpid(),)} if backend == "loky" else {}
    )
    threads = _one_torch_thread() if backend == "threading" else contextlib.nullcontext()
    left = dict(enumerate(tasks))
    deaths = 0
    with warnings.catch_warnings(), threads:
        # When a task fails, what stops the run is its error and not the tasks it cancels.
        warnings.filterwarnings("ignore", message=".*tasks which were still being processed")
        while left:
            with parallel_config(backend=backend, **limits):
                parallel = Parallel(
                    n_jobs=num_workers, return_as="generator_unordered", batch_size=1, **watch
                )
                results = parallel(
                    delayed(_numbered)(i, function, shared, task) for i, task in list(left.items())
                )
            try:
                with contextlib.closing(results):
                    for i, result in results:
                        del left[i]
                        yield i, result
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > _MAX_DEATHS:
                    raise _died("processes on this machine") from error


def _prepare_process(parent: int) -> None:
    end_with_parent(parent)
    # What tasks print is no result of the program, whose standard output may be read by another.
    os.dup2(2, 1)


def close_clusters() -> None:
    """Leaves the clusters that earlier calls kept, and stops those that were started here.

    At the end of the process this happens by itself.
    """
    while _dask_clients:
        _close_dask_client(_dask_clients.popitem()[1])
    if _CLUSTERS["ray"] in sys.modules:
        importlib.import_module("ray").shutdown()


def _run_on_dask(
    function: Function,
    shared: Any,
    tasks: Sequence[Any],
    num_workers: int,
    scheduler: str | None,
) -> Results:
    distributed: Any = importlib.import_module("distributed")
    client = _dask_client(scheduler, num_workers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        # A task of its own and not scattered data: when the worker that holds it dies, it is made
        # again.
        everywhere = client.submit(_identity, _Shared(function, shared), pure=False)
        futures = {
            client.submit(_call_shared, everywhere, task, pure=False): i
            for i, task in enumerate(tasks)
        }
    try:
        for future in distributed.as_completed(list(futures), loop=client.loop):
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                raise _died("of the Dask cluster") from error
            except CancelledError as error:
                # Nobody else cancels: this is what a client makes of its tasks when it has lost its
                # scheduler.
                where = scheduler or "on this machine"
                raise OSError(f"scheduler {where} was lost while tasks were running") from error
            yield futures.pop(future), result
            future.release()
    finally:
        if client.status == "running":
            client.cancel([everywhere, *futures], force=True)
        else:
            _close_dask_client(_dask_clients.pop((scheduler, num_workers)))


def _dask_client(scheduler: str | None, num_workers: int) -> Any:
    client = _dask_clients.get((scheduler, num_workers))
    if client is None or client.status != "running":
        client = _dask_clients[scheduler, num_workers] = _new_dask_client(scheduler, num_workers)
    return client


def _new_dask_client(scheduler: str | None, num_workers: int) -> Any:
    distributed: Any = importlib.import_module("distributed")
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, set_as_default=False)
        except (OSError, ValueError) as error:
            raise OSError(f"scheduler {scheduler!r} cannot be reached: {error}") from error
    else:
        cluster = distributed.LocalCluster(
            n_workers=num_workers, threads_per_worker=1, processes=True, dashboard_address=None
        )
        client = distributed.Client(cluster, set_as_default=False)
    atexit.register(_close_dask_client, client)
    return client


def _close_dask_client(client: Any) -> None:
    cluster = client.cluster
    if client.status == "running":
        client.close()
    else:
        # It has lost its scheduler: it would wait for it, and log a traceback when it is told not
        # to.
        logger = logging.getLogger("distributed.client")
        logger.addFilter(_nothing)
        try:
            with contextlib.suppress(TimeoutError):
                client.close(timeout=_SECONDS_TO_CLOSE_A_LOST_CLIENT)
        finally:
            logger.removeFilter(_nothing)
    if cluster is not None:
        cluster.close()


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _run_on_ray(
    function: Function,
    shared: Any,
    tasks: Sequence[Any],
    num_workers: int,
    scheduler: str | None,
) -> Results:
    ray: Any = importlib.import_module("ray")
    _start_ray(scheduler, num_workers)
    everywhere = ray.put(_Shared(function, shared))
    remote = ray.remote(num_cpus=1, max_retries=_MAX_DEATHS)(_call_shared)
    left = {remote.remote(everywhere, task): i for i, task in enumerate(tasks)}
    try:
        while left:
            for reference in ray.wait(list(left))[0]:
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    raise _died("of the Ray cluster") from error
                yield left.pop(reference), result
    finally:
        for reference in left:
            ray.cancel(reference, force=True)


def _start_ray(scheduler: str | None, num_workers: int) -> None:
    ray: Any = importlib.import_module("ray")
    if ray.is_initialized():
        return
    if scheduler is None:
        # Workers on this machine import from where this process does, as loky's and Dask's do.
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
        ray.init(
            num_cpus=num_workers,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env=environment,
        )
        return
    try:
        ray.init(address=scheduler, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise OSError(f"scheduler {scheduler!r} cannot be reached: {error}") from error


class _Shared:
    """Function and shared argument in one opaque object, which clusters send as it is."""

    def __init__(self, function: Function, argument: Any) -> None:
        self.function = function
        self.argument = argument


def _call_shared(shared: _Shared, task: tuple[Any, ...]) -> Any:
    return shared.function(shared.argument, *task)


def _one_torch_thread() -> contextlib.AbstractContextManager[None]:
    # Torch takes seconds to load, which not every task needs.
    from dvrenyi_plugin._internal.torch_threads import single_thread

    return single_thread()


def _identity(value: Any) -> Any:
    return value


def _numbered(i: int, function: Function, shared: Any, task: tuple[Any, ...]) -> tuple[int, Any]:
    try:
        return i, function(shared, *task)
    except Exception as error:
        if _travels(error):
            raise
        told = RuntimeError(f"{type(error).__name__}: {error}")
        told.__notes__ = list(getattr(error, "__notes__", ()))
        raise told from error


def _travels(error: Exception) -> bool:
    """Returns whether an error can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a user's class does
        return False
    return True


def _died(which: str) -> WorkersDiedError:
    return WorkersDiedError(
        f"workers {which} died {_MAX_DEATHS + 1} times: killed, crashed, or out of memory"
    )
