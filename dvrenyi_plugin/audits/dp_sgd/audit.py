"""The black-box audit of training: many models on each of two neighbouring datasets, told apart by
the canary's losses.

Source: Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially
Private Machine Learning", algorithm 3, with the failure probability divided over its two
directions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dvrenyi_plugin.audits.audit import AuditResult, Subject, TestedClaim, run_audit
from dvrenyi_plugin.audits.directions import BoundTester, Samples
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.models import (
    DIRECTIONS,
    ModelTrainer,
    Observations,
    check_observations,
    train_both_worlds,
)
from dvrenyi_plugin.audits.training.sections import observation_sections
from dvrenyi_plugin.data.labelled import Records
from dvrenyi_plugin.execution.observation_store import ObservationStore
from dvrenyi_plugin.interfaces import GaussianDp, NeighboringDatasets, read_claim


def audit_dp_sgd(
    mechanism: ModelTrainer,
    tester: BoundTester,
    pair: NeighboringDatasets[Records],
    config: DpSgdAuditConfig,
    sequential: SequentialAuditConfig | None = None,
    *,
    claimed_mu: float | None = None,
    noise_free_shift: float | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    notes: Sequence[str] = (),
    store: ObservationStore | None = None,
) -> AuditResult:
    """Returns the audit of a training mechanism on one pair of neighbouring datasets.

    Both directions are tested, each at half of the failure probability: the report's lower bound
    exceeds the larger of the two divergences with probability at most `config.failure_probability`
    (union bound), at whatever number of models a sequential audit stops. Stopping for futility can
    only lose refutations.

    Args:
      mechanism: trains models; observations are shape (num_models, k), the canary's loss first.
      tester: with the claim under test inside. A sequential audit takes one that has a method
        `start`, as `SequentialRenyiPropertyTester` does, at one order.
      pair: (D, D + canary).
      config: see `DpSgdAuditConfig`; `num_models` is the most that a sequential audit trains per
        dataset.
      sequential: trains in batches and stops as soon as the claim is refuted, see
        `SequentialAuditConfig`. None trains all models and looks once.
      claimed_mu: Gaussian DP parameter that the tester's claim was derived from, for the report
        only.
      noise_free_shift: by how much the canary lowers its own loss without noise, for the report
        only.
      settings: recorded in the report.
      notes: sentences for the report's reader.
      store: keeps the models as they finish, and gives those it has.

    Returns:
      Report and observations: those of the models trained with the canary come first.

    Raises:
      ValueError: the pair is not neighbouring, models that repeat each other, a tester that needs
        all samples at once in a sequential audit, a futility_mu that keeps the claim, or a store
        that is damaged.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be
        written.
    """
    training = config.training
    if sequential is not None:
        # The audit draws one bar for all batches.
        training = dataclasses.replace(training, show_progress=False)

    def draw(numbers: range) -> Samples:
        observations = train_both_worlds(
            mechanism, pair, numbers, training, num_canaries=config.num_canaries, store=store
        )
        return observations.with_canary, observations.without

    claim = read_claim(tester.privacy_property)
    mu = claim.mu if isinstance(claim, GaussianDp) else claimed_mu
    subject = Subject(
        title="Privacy audit of DP-SGD",
        draw=draw,
        directions=DIRECTIONS,
        claims=(TestedClaim(tester),),
        unit="models",
        work="training",
        check=lambda samples: check_observations(mechanism, Observations(*samples[::-1])),
        describe=lambda samples: observation_sections(
            samples[1][:, 0],
            samples[0][:, 0],
            noise_free_shift=noise_free_shift,
            claimed_mu=mu,
        ),
        remarks=lambda samples: Observations(*samples[::-1]).notes(),
        claimed_mu=mu,
        settings=settings,
        notes=tuple(notes),
        seed=config.seed,
    )
    return run_audit(
        subject,
        config.num_models,
        config.failure_probability,
        sequential,
        show_progress=config.training.show_progress,
    )
