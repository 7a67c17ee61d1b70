"""The black-box audit: train many models on each of two neighbouring datasets, compare the canary's losses.

Source: Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially Private Machine
Learning", algorithm 3, with the failure probability divided over its two directions.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, FailureProbability, Int, Seed
from dvrenyi_plugin.audits.dp_sgd.sections import report_on_losses
from dvrenyi_plugin.audits.dp_sgd.training import (
    ModelTrainer,
    ModelTrainingConfig,
    Observations,
    train_both_worlds,
)
from dvrenyi_plugin.data.labelled import Records
from dvrenyi_plugin.execution.observation_store import ObservationStore
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.reports.model import AuditReport, DirectionReport
from dvrenyi_plugin.testers.base import BoundResult
from dvrenyi_plugin.testers.both_directions import in_both_directions

# Fewer cannot be divided into a part that fits a critic and one that certifies: said before anything is trained.
MIN_MODELS = 10


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
class DpSgdAuditConfig(CheckedSettings):
    """How much is trained, and how sure the statement is to be.

    Attributes:
      num_models: trained models a world, at least `MIN_MODELS`.
      failure_probability: of the whole audit, both directions together, in (0, 1).
      training: how the models are spread over workers. Results do not depend on it.
      num_canaries: records in which the datasets differ, >= 1. With more than one the tester's claim must be one for
        groups of that many (see `dp_sgd_claim_at`).
      seed: reported beside the result; the streams themselves belong to the mechanism and the tester.
    """

    num_models: Annotated[int, Int(at_least=MIN_MODELS)] = 200
    failure_probability: FailureProbability = 0.05
    training: ModelTrainingConfig = dataclasses.field(default_factory=ModelTrainingConfig)
    num_canaries: Count = 1
    seed: Seed = 0


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
    store: ObservationStore | None = None,
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
      store: keeps the models as they finish, and gives those it has.

    Raises:
      ValueError: the pair is not neighbouring, models that repeat each other, or a store that is damaged.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be written.
    """
    start = time.perf_counter()
    observations = train_both_worlds(
        mechanism,
        pair,
        range(config.num_models),
        config.training,
        num_canaries=config.num_canaries,
        store=store,
    )
    trained = time.perf_counter()
    directions = run_both_directions(tester, observations, config.failure_probability)
    report = report_on_losses(
        observations.without[:, 0],
        observations.with_canary[:, 0],
        directions,
        tester.privacy_property,
        claimed_mu=claimed_mu,
        failure_probability=config.failure_probability,
        seed=config.seed,
        seconds={"training": trained - start, "wall": time.perf_counter() - start},
        noise_free_shift=noise_free_shift,
        settings=dict(settings),
        notes=tuple(notes) + observations.notes(),
    )
    return DpSgdAuditResult(report, observations)


def run_both_directions(
    tester: BoundTester, observations: Observations, failure_probability: float
) -> tuple[DirectionReport, DirectionReport]:
    """Returns the bounds on both orderings of the worlds, each at half of the failure probability."""
    forwards, backwards = in_both_directions(
        tester.audit, observations.with_canary, observations.without, failure_probability
    )
    return (
        DirectionReport("with over without canary", forwards),
        DirectionReport("without over with canary", backwards),
    )
