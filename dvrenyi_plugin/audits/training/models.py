"""Trains numbered models on both neighbouring datasets, over worker processes, and returns their
observations.

Model i of a world depends on its number alone, so any part of an audit can be trained anywhere, in
any order.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.progress import progress_bar
from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin.audits.training.settings import ModelTrainingConfig
from dvrenyi_plugin.data.neighbours import check_neighbours
from dvrenyi_plugin.execution.backends import run_tasks
from dvrenyi_plugin.execution.observation_store import ObservationStore
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.finite_observations import (
    LARGEST_OBSERVATION,
    NAN_OBSERVATION,
    finite_observations,
    is_mapped,
)
from dvrenyi_plugin.mechanisms.repeated_observations import check_independent

WITHOUT_CANARY, WITH_CANARY = 0, 1
WORLDS = (WITHOUT_CANARY, WITH_CANARY)
DIRECTIONS = ("with over without canary", "without over with canary")
_FIRST_LOOK = 16
_WORLD_NAMES = ("models without the canary", "models with the canary")


class ModelTrainer(Protocol):
    """A mechanism whose outputs are numbered, so that any part of them can be made anywhere.

    One whose models may give the very same observation says so by an attribute `discrete_outputs`
    that is True.
    """

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns one row of observations a model, shape (len(indices), k).

        Row i depends on the dataset, which is a copy, the world and indices[i] alone. NaN and
        infinities are observations like others.
        """


@dataclasses.dataclass(frozen=True)
class Observations:
    """What was seen of the trained models: row i of both worlds belongs to the i-th number asked
    for.

    All values are finite: see `finite_observations`.

    Attributes:
      without: shape (number of models, k), float64, models trained on D.
      with_canary: shape (number of models, k), float64, models trained on D + canary.
    """

    without: NDArray[np.float64]
    with_canary: NDArray[np.float64]

    def notes(self) -> tuple[str, ...]:
        """Returns a sentence on the models whose observations were infinite or NaN, if there are
        any.
        """
        counts = [
            int(is_mapped(rows).any(axis=1).sum()) for rows in (self.without, self.with_canary)
        ]
        if not any(counts):
            return ()
        return (
            f"{sum(counts)} of {len(self.without) + len(self.with_canary)} models gave an"
            f" observation that is no number, infinite or beyond {LARGEST_OBSERVATION:g}"
            f" ({counts[0]} without the canary, {counts[1]} with it). They count: as"
            f" {NAN_OBSERVATION:g} what is no number, as +-{LARGEST_OBSERVATION:g} the others, a"
            " map fixed beforehand, under which every bound holds. The moments leave them out.",
        )


def check_observations(mechanism: ModelTrainer, observations: Observations) -> None:
    """Raises ValueError when models repeat each other, unless the mechanism declares
    `discrete_outputs`.

    See `check_independent`.
    """
    _check_world(mechanism, WITHOUT_CANARY, observations.without)
    _check_world(mechanism, WITH_CANARY, observations.with_canary)


def check_models(observations: NDArray[np.float64], which: str) -> None:
    """Raises ValueError when models repeat each other, see `check_independent`; those whose
    observation was infinite or NaN are left out.

    Args:
      observations: finite, shape (n, k), a row per model.
      which: the models, for the message.
    """
    mapped = is_mapped(observations).any(axis=1)
    check_independent(observations[~mapped], which)


def _check_world(mechanism: ModelTrainer, world: int, observations: NDArray[np.float64]) -> None:
    if getattr(mechanism, "discrete_outputs", False) is not True:
        check_models(observations, _WORLD_NAMES[world])


def train_both_worlds(
    mechanism: ModelTrainer,
    pair: NeighboringDatasets[Any],
    indices: range,
    config: ModelTrainingConfig,
    *,
    num_canaries: int | None = 1,
    store: ObservationStore | None = None,
) -> Observations:
    """Returns the observations of the models with these numbers, with and without the canary, in
    the order of the numbers.

    Trained in one call or in several, over few workers or many, some of them before an
    interruption: the same numbers give the same rows.

    Args:
      mechanism: trains the models.
      pair: (D, D + canary).
      indices: numbers of the models, without gaps, at least one, each >= 0.
      config: see `ModelTrainingConfig`.
      num_canaries: records in which the pair, features and labels, must differ; None for other
        datasets, which the caller has compared.
      store: of this experiment. What is in it is not trained again; what is trained is committed to
        it, task by task.

    Raises:
      ValueError: indices with gaps, a pair that is not neighbouring, a mechanism that returned
        something else than one row of numbers a model or models that repeat each other (see
        `check_observations`), or a store that is damaged or disagrees.
      ImportError: the backend is not installed.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be
        written.
    """
    if indices.step != 1 or indices.start < 0 or not indices:
        raise ValueError(
            f"indices must be a range of integers >= 0 without gaps, at least one, got {indices!r}"
        )
    if num_canaries is not None:
        check_neighbours(*pair, num_canaries=num_canaries)
    rows = tuple({} if store is None else store.rows(world, indices) for world in WORLDS)
    _train_missing(mechanism, pair, indices, config, rows, store)
    # The store keeps what was seen; what is tested comes through the fixed map, here and nowhere
    # else.
    without, with_canary = (
        finite_observations(
            np.stack([rows[world][index][: config.num_observed_columns] for index in indices])
        )
        for world in WORLDS
    )
    observations = Observations(without, with_canary)
    check_observations(mechanism, observations)
    return observations


_Rows = dict[int, NDArray[np.float64]]


def _train_missing(
    mechanism: ModelTrainer,
    pair: NeighboringDatasets[Any],
    indices: range,
    config: ModelTrainingConfig,
    rows: Sequence[_Rows],
    store: ObservationStore | None,
) -> None:
    """Trains the models that have no row yet, and adds their rows."""
    tasks = list(_tasks(indices, config.models_per_task, rows))
    next_look = [_FIRST_LOOK for _ in WORLDS]
    with (
        progress_bar(
            "training",
            "model",
            2 * len(indices),
            config.show_progress,
            done=sum(map(len, rows)),
        ) as progress,
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
            trained = user_numbers("mechanism", result, (len(numbers), "k"), finite=False)
            _check_width(trained, rows)
            if store is not None:
                store.add(world, numbers, trained)
            rows[world].update(zip(numbers, trained, strict=True))
            progress.update(len(numbers))
            if len(rows[world]) >= next_look[world]:
                # A look each time they have doubled: a fault is found long before the last model.
                next_look[world] = 2 * len(rows[world])
                seen = np.stack(list(rows[world].values()))[:, : config.num_observed_columns]
                _check_world(mechanism, world, finite_observations(seen))


def _check_width(trained: NDArray[np.float64], rows: Sequence[_Rows]) -> None:
    before = next((len(row) for world in rows for row in world.values()), trained.shape[1])
    if trained.shape[1] != before:
        raise ValueError(
            "observations must have the same number of values for every model, got"
            f" {before} and {trained.shape[1]}"
        )


def _tasks(
    indices: range, models_per_task: int, rows: Sequence[_Rows]
) -> Iterator[tuple[int, list[int]]]:
    """Yields (world, numbers) of the models that have no row yet."""
    # Cut at multiples of models_per_task whatever range is asked for, and without regard to the
    # number of workers: an engine that trains a task's models together may round differently in
    # another grouping.
    first = indices.start - indices.start % models_per_task
    for start in range(first, indices.stop, models_per_task):
        group = range(max(start, indices.start), min(start + models_per_task, indices.stop))
        for world in WORLDS:
            missing = [number for number in group if number not in rows[world]]
            if missing:
                yield world, missing


def _train(
    shared: tuple[ModelTrainer, NeighboringDatasets[Any]], world: int, numbers: Sequence[int]
) -> NDArray[np.float64]:
    mechanism, pair = shared
    # Sums of floats depend on the number of threads, results must not.
    with single_thread():
        rows: NDArray[np.float64] = call_user_code(
            "mechanism", mechanism.train_models, pair[world], world, numbers
        )
        return rows
