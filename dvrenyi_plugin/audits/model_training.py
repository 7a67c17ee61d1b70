"""Trains numbered models on both neighbouring datasets, over worker processes, and returns their observations.

Model i of a world depends on its number alone, so any part of an audit can be trained anywhere, in any order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._torch_threads import single_thread
from dvrenyi_plugin._validation import check_int
from dvrenyi_plugin.audits.datasets import Records
from dvrenyi_plugin.audits.neighbours import check_neighbours
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
      num_workers: processes that train, >= 1.
      models_per_task: most models that a worker trains before it reports back, >= 1.
      show_progress: draw a progress bar on standard error.
    """

    num_workers: int = 1
    models_per_task: int = 10
    show_progress: bool = False

    def __post_init__(self) -> None:
        check_int("num_workers", self.num_workers, at_least=1)
        check_int("models_per_task", self.models_per_task, at_least=1)


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
) -> Observations:
    """Returns the observations of the models with these numbers in both worlds, in the order of the numbers.

    Trained in one call or in several, over few workers or many: the same numbers give the same rows.

    Args:
      mechanism: trains the models.
      pair: (D, D + canary).
      indices: numbers of the models, without gaps, at least one, each >= 0.
      config: see `ModelTrainingConfig`.

    Raises:
      ValueError: indices with gaps, a pair that is not neighbouring, or a mechanism that returned something
        else than one row of finite numbers a model.
    """
    if indices.step != 1 or indices.start < 0 or not indices:
        raise ValueError(
            f"indices must be a range of integers >= 0 without gaps, at least one, got {indices!r}"
        )
    check_neighbours(*pair)
    tasks = list(_tasks(indices, config.models_per_task))
    rows: tuple[dict[int, NDArray[np.float64]], dict[int, NDArray[np.float64]]] = ({}, {})
    with (
        warnings.catch_warnings(),
        _progress_bar(2 * len(indices), config.show_progress) as progress,
        # Closed on an error too, so that no worker goes on training.
        contextlib.closing(_run_tasks(mechanism, pair, tasks, config.num_workers)) as results,
    ):
        # When a model fails, what stops the audit is its error and not the tasks it cancels.
        warnings.filterwarnings("ignore", message=".*tasks which were still being processed")
        for (world, numbers), result in zip(tasks, results, strict=True):
            rows[world].update(zip(numbers, _checked_rows(result, len(numbers)), strict=True))
            progress.update(len(numbers))
    without, with_canary = (np.stack([rows[world][index] for index in indices]) for world in WORLDS)
    return Observations(without, with_canary)


_Task = tuple[int, range]


def _tasks(indices: range, models_per_task: int) -> Iterator[_Task]:
    # Cut at multiples of models_per_task whatever range is asked for, and without regard to the number of
    # workers: an engine that trains a task's models together may round differently in another grouping.
    first = indices.start - indices.start % models_per_task
    for start in range(first, indices.stop, models_per_task):
        numbers = range(max(start, indices.start), min(start + models_per_task, indices.stop))
        yield WITHOUT_CANARY, numbers
        yield WITH_CANARY, numbers


def _run_tasks(
    mechanism: ModelTrainer,
    pair: NeighboringDatasets[Records],
    tasks: Sequence[_Task],
    num_workers: int,
) -> Generator[NDArray[np.float64], None, None]:
    if num_workers == 1:
        for world, indices in tasks:
            yield _train(mechanism, pair[world], world, indices)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        results = Parallel(n_jobs=num_workers, return_as="generator", batch_size=1)(
            delayed(_train)(mechanism, pair[world], world, indices) for world, indices in tasks
        )
    yield from results


def _train(
    mechanism: ModelTrainer, dataset: Records, world: int, indices: range
) -> NDArray[np.float64]:
    # One thread in every process: sums of floats depend on the number of threads, results must not.
    with single_thread():
        return mechanism.train_models(dataset, world, indices)


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


def _progress_bar(total: int, show: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc="training", unit="model", disable=not show)
