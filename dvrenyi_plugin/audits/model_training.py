"""Trains numbered models on both neighbouring datasets, over worker processes, and returns their observations.

Model i of a world depends on its number alone, so any part of an audit can be trained anywhere, in any order.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._torch_threads import single_thread
from dvrenyi_plugin._validation import check_int
from dvrenyi_plugin.audits.backends import check_backend, run_tasks
from dvrenyi_plugin.audits.datasets import Records
from dvrenyi_plugin.audits.neighbours import check_neighbours
from dvrenyi_plugin.audits.observation_store import ObservationStore
from dvrenyi_plugin.interfaces import NeighboringDatasets

WITHOUT_CANARY, WITH_CANARY = 0, 1
WORLDS = (WITHOUT_CANARY, WITH_CANARY)


class ModelTrainer(Protocol):
    """A mechanism whose outputs are numbered, so that any part of them can be made anywhere."""

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns one row of observations a model, shape (len(indices), k).

        Row i depends on the dataset, the world and indices[i] alone.
        """


@dataclasses.dataclass(frozen=True)
class ModelTrainingConfig:
    """How models are spread over workers. Results do not depend on it.

    Attributes:
      num_workers: processes or threads that train, >= 1.
      models_per_task: most models that a worker trains before it reports back, >= 1.
      backend: "loky", "threading", "serial", "dask" or "ray"; see `run_tasks`.
      scheduler: address of a running Dask or Ray cluster; None starts one on this machine.
      columns: the first so many numbers of each observation are handed on, >= 1; a store keeps all. None: all.
      show_progress: draw a progress bar on standard error.
    """

    num_workers: int = 1
    models_per_task: int = 10
    backend: str = "loky"
    scheduler: str | None = None
    columns: int | None = None
    show_progress: bool = False

    def __post_init__(self) -> None:
        check_backend(self.backend, self.num_workers, self.scheduler)
        check_int("models_per_task", self.models_per_task, at_least=1)
        if self.columns is not None:
            check_int("columns", self.columns, at_least=1)


@dataclasses.dataclass(frozen=True)
class Observations:
    """What was seen of the trained models: row i of both worlds belongs to the i-th number asked for.

    Attributes:
      without: shape (number of models, k), float64, models trained on D.
      with_canary: shape (number of models, k), float64, models trained on D + canary.
    """

    without: NDArray[np.float64]
    with_canary: NDArray[np.float64]


def train_both_worlds(
    mechanism: ModelTrainer,
    pair: NeighboringDatasets[Records],
    indices: range,
    config: ModelTrainingConfig,
    *,
    num_canaries: int = 1,
    store: ObservationStore | None = None,
) -> Observations:
    """Returns the observations of the models with these numbers in both worlds, in the order of the numbers.

    Trained in one call or in several, over few workers or many, some of them before an interruption: the
    same numbers give the same rows.

    Args:
      mechanism: trains the models.
      pair: (D, D + canary).
      indices: numbers of the models, without gaps, at least one, each >= 0.
      config: see `ModelTrainingConfig`.
      num_canaries: records in which the pair must differ.
      store: of this experiment. What is in it is not trained again; what is trained is committed to it,
        task by task.

    Raises:
      ValueError: indices with gaps, a pair that is not neighbouring, a mechanism that returned something
        else than one row of finite numbers a model, or a store that is damaged or disagrees.
      ImportError: the backend is not installed.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be written.
    """
    if indices.step != 1 or indices.start < 0 or not indices:
        raise ValueError(
            f"indices must be a range of integers >= 0 without gaps, at least one, got {indices!r}"
        )
    check_neighbours(*pair, num_canaries=num_canaries)
    rows = tuple({} if store is None else store.rows(world, indices) for world in WORLDS)
    tasks = list(_tasks(indices, config.models_per_task, rows))
    with (
        _progress_bar(2 * len(indices), sum(map(len, rows)), config.show_progress) as progress,
        # Closed on an error too, so that no worker goes on training.
        contextlib.closing(
            run_tasks(
                _train,
                (mechanism, pair),
                tasks,
                backend=config.backend,
                num_workers=config.num_workers,
                scheduler=config.scheduler,
            )
        ) as results,
    ):
        for task, result in results:
            world, numbers = tasks[task]
            trained = _checked_rows(result, len(numbers))
            if store is not None:
                store.add(world, numbers, trained)
            rows[world].update(zip(numbers, trained, strict=True))
            progress.update(len(numbers))
    without, with_canary = (
        np.stack([rows[world][index][: config.columns] for index in indices]) for world in WORLDS
    )
    return Observations(without, with_canary)


_Rows = dict[int, NDArray[np.float64]]


def _tasks(
    indices: range, models_per_task: int, rows: Sequence[_Rows]
) -> Iterator[tuple[int, list[int]]]:
    """Yields (world, numbers) of the models that have no row yet."""
    # Cut at multiples of models_per_task whatever range is asked for, and without regard to the number of
    # workers: an engine that trains a task's models together may round differently in another grouping.
    first = indices.start - indices.start % models_per_task
    for start in range(first, indices.stop, models_per_task):
        group = range(max(start, indices.start), min(start + models_per_task, indices.stop))
        for world in WORLDS:
            missing = [number for number in group if number not in rows[world]]
            if missing:
                yield world, missing


def _train(
    shared: tuple[ModelTrainer, NeighboringDatasets[Records]], world: int, numbers: Sequence[int]
) -> NDArray[np.float64]:
    mechanism, pair = shared
    # Sums of floats depend on the number of threads, results must not.
    with single_thread():
        return mechanism.train_models(pair[world], world, numbers)


def _checked_rows(result: Any, count: int) -> NDArray[np.float64]:
    rows = np.asarray(result, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] != count or rows.shape[1] == 0:
        raise ValueError(
            f"mechanism must return observations of shape ({count}, k), got shape {rows.shape}"
        )
    if not np.isfinite(rows).all():
        bad = int((~np.isfinite(rows).all(axis=1)).sum())
        raise ValueError(
            f"mechanism must return finite observations, got NaN or infinity in {bad} of {count} models"
        )
    return rows


def _progress_bar(total: int, done: int, show: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, initial=done, desc="training", unit="model", disable=not show)
