"""The black-box audit in batches: train a few models, look, stop as soon as the claim is refuted.

Each direction has an e-process at half of the failure probability. Pairs of models (model i without the canary, model i
with it) are bet on one by one, in the order of their numbers. The bound holds at every number of pairs at once (Ville's
inequality), so the rule that stops may look at anything seen so far; and since pairs are taken one by one, the
size of the batches decides when the audit looks and nothing else.

An audit that trained all its models may go on later: with a larger `num_models` and the same seed it is the same process,
continued.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np

from dvrenyi_plugin._internal.limits import CheckedSettings, Fraction, Int, Real
from dvrenyi_plugin.audits.dp_sgd.audit import BoundTester, DpSgdAuditConfig, DpSgdAuditResult
from dvrenyi_plugin.audits.dp_sgd.sections import report_on_losses
from dvrenyi_plugin.audits.dp_sgd.training import (
    ModelTrainer,
    Observations,
    check_observations,
    train_both_worlds,
)
from dvrenyi_plugin.audits.planner import RefutationPlan, plan_refutation
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.data.labelled import Records
from dvrenyi_plugin.execution.observation_store import ObservationStore
from dvrenyi_plugin.interfaces import NeighboringDatasets, read_claim, renyi_threshold
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.reports.model import DirectionReport
from dvrenyi_plugin.reports.sequential_outcome import (
    ALL_TRAINED,
    FUTILE,
    REFUTED,
    EvidencePath,
    SequentialOutcome,
)
from dvrenyi_plugin.testers.base import BoundResult, fewest_samples
from dvrenyi_plugin.testers.both_directions import failure_probability_of_each

DIRECTIONS = ("with over without canary", "without over with canary")


@runtime_checkable
class SequentialTester(Protocol):
    """A property tester that can certify samples while they arrive."""

    @property
    def privacy_property(self) -> Any:
        """The property under test."""

    def start(self, failure_probability: float) -> GrowthOptimalEProcess:
        """Returns a process whose lower bound holds at all times at once."""


@dataclasses.dataclass(frozen=True)
class SequentialAuditConfig(CheckedSettings):
    """How often the audit looks, and when it gives up.

    Attributes:
      batch_models: models a world that are trained between two looks, >= 2. A multiple of the models per task wastes
        no worker's time.
      futility_mu: smallest violation the auditor cares about, as the mu of Gaussian DP, above the claim: the audit
        stops when even losses with this mu would hardly refute the claim with the models that are left. None: it
        never gives up, which keeps the bound on a kept claim as tight as the models allow.
      futility_probability: what "hardly" means, in (0, 1).
    """

    batch_models: Annotated[int, Int(at_least=2)] = 20
    futility_mu: Annotated[float, Real(above=0.0, at_most=1e100)] | None = None
    futility_probability: Fraction = 0.05


def audit_dp_sgd_sequentially(
    mechanism: ModelTrainer,
    tester: BoundTester | SequentialTester,
    pair: NeighboringDatasets[Records],
    config: DpSgdAuditConfig,
    sequential: SequentialAuditConfig = SequentialAuditConfig(),
    *,
    claimed_mu: float | None = None,
    noise_free_shift: float | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    notes: Sequence[str] = (),
    store: ObservationStore | None = None,
) -> DpSgdAuditResult:
    """Returns the audit of a training mechanism with no more models than it took to refute the claim.

    Both directions are tested, each at half of the failure probability: at whatever number of models the audit stops,
    its lower bound exceeds the larger of the two divergences with probability at most `config.failure_probability`.
    Stopping for futility can only lose refutations.

    Args:
      mechanism: trains models; observations are shape (models, k), the canary's loss first.
      tester: with the claim under test inside, at one order; it must have a method `start`, as
        `SequentialRenyiPropertyTester` does.
      pair: (D, D + canary).
      config: see `DpSgdAuditConfig`; `num_models` is the most that are trained a world.
      sequential: see `SequentialAuditConfig`.
      claimed_mu: Gaussian DP parameter that the tester's claim was derived from, for the report only.
      noise_free_shift: by how much the canary lowers its own loss without noise, for the report only.
      settings: recorded in the report.
      notes: sentences for the report's reader.
      store: keeps the models as they finish, and gives those it has.

    Raises:
      ValueError: the pair is not neighbouring, models that repeat each other, a tester that needs all samples at
        once, a futility_mu that keeps the claim, or a store that is damaged.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be written.

    Source: Ville's inequality; the e-process and its proof are in `dvrenyi_plugin.bounds.growth_factor`, the futility
    rule is `dvrenyi_plugin.audits.planner.RefutationPlan`.
    """
    start = time.perf_counter()
    if not isinstance(tester, SequentialTester):
        raise ValueError(
            "tester must be able to certify samples while they arrive (SequentialRenyiPropertyTester), got"
            f" {type(tester).__name__}"
        )
    evidence = _Evidence(tester, failure_probability_of_each(config.failure_probability))
    plan = _futility_plan(evidence, sequential)
    batches: list[Observations] = []
    trained_after: list[int] = []
    training_seconds = 0.0
    stopped = None
    with _progress_bar(2 * config.num_models, config.training.show_progress) as progress:
        while stopped is None:
            done = trained_after[-1] if trained_after else 0
            indices = range(done, min(done + sequential.batch_models, config.num_models))
            batch_start = time.perf_counter()
            batch = train_both_worlds(
                mechanism,
                pair,
                indices,
                dataclasses.replace(config.training, show_progress=False),
                num_canaries=config.num_canaries,
                store=store,
            )
            training_seconds += time.perf_counter() - batch_start
            batches.append(batch)
            # A batch by itself may be too small to show that models repeat each other.
            observations = _joined(batches)
            check_observations(mechanism, observations)
            trained_after.append(indices.stop)
            evidence.update(batch)
            progress.update(2 * len(indices))
            left = config.num_models - indices.stop
            if evidence.refuted_after is not None:
                stopped = REFUTED
            elif left == 0:
                stopped = ALL_TRAINED
            elif plan is not None and evidence.is_futile(plan, left, sequential):
                stopped = FUTILE
    outcome = SequentialOutcome(
        stopped=stopped,
        models_after_batch=tuple(trained_after),
        max_models_per_world=config.num_models,
        evidence=evidence.paths(),
        log_threshold=evidence.log_threshold,
        refuted_after_models=evidence.refuted_after,
        futility_mu=sequential.futility_mu,
        futility_probability=sequential.futility_probability,
    )
    report = report_on_losses(
        observations.without[:, 0],
        observations.with_canary[:, 0],
        evidence.results(config.seed),
        tester.privacy_property,
        claimed_mu=claimed_mu,
        failure_probability=config.failure_probability,
        seed=config.seed,
        seconds={"training": training_seconds, "wall": time.perf_counter() - start},
        noise_free_shift=noise_free_shift,
        settings=dict(settings),
        notes=tuple(notes) + observations.notes(),
        sequential=outcome,
    )
    return DpSgdAuditResult(report, observations)


class _Evidence:
    """The e-processes of both directions, and what they said after each batch."""

    def __init__(self, tester: SequentialTester, failure_probability: float) -> None:
        self._failure_probability = failure_probability
        self._processes = tuple(tester.start(failure_probability) for _ in DIRECTIONS)
        self._claim = renyi_threshold(read_claim(tester.privacy_property), self.alpha)
        self._paths: tuple[list[float], ...] = tuple([] for _ in DIRECTIONS)
        self.refuted_after: int | None = None

    @property
    def alpha(self) -> float:
        return self._processes[0].alpha

    @property
    def claim(self) -> float:
        """Epsilon under test."""
        return self._claim

    @property
    def failure_probability(self) -> float:
        """Of one direction."""
        return self._failure_probability

    @property
    def log_threshold(self) -> float:
        return -float(np.log(self._failure_probability))

    def update(self, batch: Observations) -> None:
        forwards, backwards = self._processes
        for index in range(len(batch.without)):
            without, with_canary = batch.without[[index]], batch.with_canary[[index]]
            forwards.update(with_canary, without)
            backwards.update(without, with_canary)
            if self.refuted_after is None and any(
                process.lower_bound > self._claim for process in self._processes
            ):
                self.refuted_after = forwards.num_pairs
        for path, value in zip(self._paths, self._log_e_values(), strict=True):
            path.append(value)

    def is_futile(
        self, plan: RefutationPlan, pairs_left: int, config: SequentialAuditConfig
    ) -> bool:
        return all(
            plan.is_futile(value, pairs_left, config.futility_probability)
            for value in self._log_e_values()
        )

    def paths(self) -> tuple[EvidencePath, ...]:
        return tuple(
            EvidencePath(direction, tuple(path))
            for direction, path in zip(DIRECTIONS, self._paths, strict=True)
        )

    def results(self, seed: int) -> tuple[DirectionReport, DirectionReport]:
        first, second = (
            DirectionReport(direction, self._result(process, log_e_value, seed))
            for direction, process, log_e_value in zip(
                DIRECTIONS, self._processes, self._log_e_values(), strict=True
            )
        )
        return first, second

    def _result(self, process: GrowthOptimalEProcess, log_e_value: float, seed: int) -> BoundResult:
        bound = process.lower_bound
        seen1, seen2 = process.num_samples
        certify1, certify2 = process.num_certifying
        return BoundResult(
            lower_bound=bound,
            point_estimate=process.point_estimate(),
            claimed_limit=self._claim,
            refuted=bound > self._claim,
            failure_probability=self._failure_probability,
            method="growth-optimal e-process, anytime-valid",
            alpha=process.alpha,
            num_fit=(seen1 - certify1, seen2 - certify2),
            num_certify=(certify1, certify2),
            fewest_samples=fewest_samples(
                functools.partial(process.can_reject, self._claim), process.num_pairs
            ),
            seed=seed,
            details=MappingProxyType(
                {
                    "log_ratio_family": process.log_ratio_family,
                    "log_e_value_of_claim": log_e_value,
                }
            ),
        )

    def _log_e_values(self) -> tuple[float, ...]:
        return tuple(process.log_e_value(self._claim) for process in self._processes)


def _joined(batches: Sequence[Observations]) -> Observations:
    return Observations(
        np.concatenate([batch.without for batch in batches]),
        np.concatenate([batch.with_canary for batch in batches]),
    )


def _futility_plan(evidence: _Evidence, config: SequentialAuditConfig) -> RefutationPlan | None:
    mu = config.futility_mu
    if mu is None:
        return None
    divergence = renyi_gaussian_dp(evidence.alpha, mu)
    if divergence <= evidence.claim:
        raise ValueError(
            f"futility_mu must break the claim: epsilon {evidence.claim:g} at order {evidence.alpha:g},"
            f" got mu {mu:g} with epsilon {divergence:g}"
        )
    # The divergence between Gaussian laws of one variance is the same in both directions.
    return plan_refutation(
        gaussian_pair(mu, evidence.alpha),
        evidence.alpha,
        evidence.claim,
        evidence.failure_probability,
    )


def _progress_bar(total: int, show: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc="training, at most", unit="model", disable=not show)
