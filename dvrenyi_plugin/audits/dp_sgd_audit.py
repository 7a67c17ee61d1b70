"""The black-box audit: train many models on each of two neighbouring datasets, compare the canary's losses.

Source: Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially Private Machine
Learning", algorithm 3, with the failure probability divided over its two directions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dvrenyi_plugin._validation import check_failure_probability, check_int, check_seed
from dvrenyi_plugin.audits.datasets import Records
from dvrenyi_plugin.audits.neighbours import check_neighbours
from dvrenyi_plugin.audits.report import (
    AuditClaim,
    AuditReport,
    DirectionReport,
    ObservationSummary,
    Separation,
)
from dvrenyi_plugin.interfaces import GaussianDp, NeighboringDatasets, read_claim
from dvrenyi_plugin.testers.bound_result import BoundResult

WITHOUT_CANARY, WITH_CANARY = 0, 1

# Fewer cannot be divided into a part that fits a critic and one that certifies: said before anything is trained.
MIN_MODELS = 10


class ModelTrainer(Protocol):
    """A mechanism whose outputs are numbered, so that any part of them can be made anywhere."""

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns one row of observations a model, shape (len(indices), k).

        Row i depends on the dataset, the world and indices[i] alone.
        """


class BoundTester(Protocol):
    """A property tester that says how it came to its bound."""

    @property
    def privacy_property(self) -> Any:
        """The property under test."""

    def audit(
        self, samples1: NDArray[Any], samples2: NDArray[Any], failure_probability: float
    ) -> BoundResult:
        """Returns a one-sided lower bound on the divergence of law 1 from law 2."""


@dataclasses.dataclass(frozen=True)
class DpSgdAuditConfig:
    """How much is trained, and how sure the statement is to be.

    Attributes:
      num_models: trained models a world, at least `MIN_MODELS`.
      failure_probability: of the whole audit, both directions together, in (0, 1).
      num_workers: processes that train, >= 1. Results do not depend on it.
      models_per_task: models that a process trains before it reports back, >= 1.
      show_progress: draw a progress bar on standard error.
      seed: reported beside the result; the streams themselves belong to the mechanism and the tester.
    """

    num_models: int = 200
    failure_probability: float = 0.05
    num_workers: int = 1
    models_per_task: int = 10
    show_progress: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("num_models", self.num_models, at_least=MIN_MODELS)
        check_failure_probability(self.failure_probability)
        check_int("num_workers", self.num_workers, at_least=1)
        check_int("models_per_task", self.models_per_task, at_least=1)
        check_seed(self.seed)


@dataclasses.dataclass(frozen=True)
class Observations:
    """What was seen of the trained models. Row i of a world belongs to its model i.

    Attributes:
      without: shape (num_models, k), float64, models trained on D.
      with_canary: shape (num_models, k), float64, models trained on D + canary.
    """

    without: NDArray[np.float64]
    with_canary: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class DpSgdAuditResult:
    """Report and the observations it was made from."""

    report: AuditReport
    observations: Observations


def audit_dp_sgd(
    mechanism: ModelTrainer,
    tester: BoundTester,
    pair: NeighboringDatasets[Records],
    config: DpSgdAuditConfig,
    *,
    claimed_mu: float | None = None,
    noise_free_shift: float | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> DpSgdAuditResult:
    """Returns the audit of a training mechanism on one pair of neighbouring datasets.

    Both directions are tested, each at half of the failure probability: the report's lower bound exceeds the
    larger of the two divergences with probability at most `config.failure_probability` (union bound).

    Args:
      mechanism: trains models; observations are shape (num_models, k), the canary's loss first.
      tester: with the claim under test inside.
      pair: (D, D + canary).
      config: see `DpSgdAuditConfig`.
      claimed_mu: Gaussian DP parameter that the tester's claim was derived from, for the report only.
      noise_free_shift: by how much the canary lowers its own loss without noise, for the report only.
      settings: recorded in the report.
      notes: sentences for the report's reader.

    Raises:
      ValueError: the pair is not neighbouring, or observations that are not finite.
    """
    start = time.perf_counter()
    observations = collect_observations(mechanism, pair, config)
    trained = time.perf_counter()
    directions = run_both_directions(tester, observations, config.failure_probability)
    losses_without, losses_with = observations.without[:, 0], observations.with_canary[:, 0]
    claim = read_claim(tester.privacy_property)
    report = AuditReport(
        claim=AuditClaim(
            alpha=directions[0].bound.alpha,
            epsilon=directions[0].bound.threshold,
            mu=claim.mu if isinstance(claim, GaussianDp) else claimed_mu,
        ),
        directions=directions,
        failure_probability=config.failure_probability,
        num_models=config.num_models,
        seed=config.seed,
        losses_without=ObservationSummary.of(losses_without),
        losses_with_canary=ObservationSummary.of(losses_with),
        separation=Separation.of(losses_without, losses_with),
        training_seconds=trained - start,
        wall_seconds=time.perf_counter() - start,
        noise_free_shift=noise_free_shift,
        settings=dict(settings),
        notes=tuple(notes),
    )
    return DpSgdAuditResult(report, observations)


def run_both_directions(
    tester: BoundTester, observations: Observations, failure_probability: float
) -> tuple[DirectionReport, DirectionReport]:
    """Returns the bounds on both orderings of the worlds, each at half of the failure probability."""
    half = check_failure_probability(failure_probability) / 2.0
    without, with_canary = observations.without, observations.with_canary
    return (
        DirectionReport("with over without canary", tester.audit(with_canary, without, half)),
        DirectionReport("without over with canary", tester.audit(without, with_canary, half)),
    )


def collect_observations(
    mechanism: ModelTrainer, pair: NeighboringDatasets[Records], config: DpSgdAuditConfig
) -> Observations:
    """Returns the observations of `config.num_models` models a world, trained over worker processes.

    Raises:
      ValueError: the pair is not neighbouring, or the mechanism returned something else than one row of
        finite numbers a model.
    """
    check_neighbours(*pair)
    tasks = list(_tasks(config))
    rows: tuple[dict[int, NDArray[np.float64]], dict[int, NDArray[np.float64]]] = ({}, {})
    with (
        warnings.catch_warnings(),
        _progress_bar(2 * config.num_models, config.show_progress) as progress,
        # Closed on an error too, so that no worker goes on training.
        contextlib.closing(_run_tasks(mechanism, pair, tasks, config.num_workers)) as results,
    ):
        # When a model fails, what stops the audit is its error and not the tasks it cancels.
        warnings.filterwarnings("ignore", message=".*tasks which were still being processed")
        for (world, indices), result in zip(tasks, results, strict=True):
            rows[world].update(zip(indices, _checked_rows(result, len(indices)), strict=True))
            progress.update(len(indices))
    without, with_canary = (
        np.stack([rows[world][index] for index in range(config.num_models)])
        for world in (WITHOUT_CANARY, WITH_CANARY)
    )
    return Observations(without, with_canary)


_Task = tuple[int, range]


def _tasks(config: DpSgdAuditConfig) -> Iterator[_Task]:
    # Cut without regard to the number of workers: an engine that trains a task's models together may round
    # differently in another grouping, and the result must not depend on the machine.
    for start in range(0, config.num_models, config.models_per_task):
        indices = range(start, min(start + config.models_per_task, config.num_models))
        yield WITHOUT_CANARY, indices
        yield WITH_CANARY, indices


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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return mechanism.train_models(dataset, world, indices)
    finally:
        torch.set_num_threads(threads)


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
