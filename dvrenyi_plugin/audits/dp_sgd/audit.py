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
    claims: BoundTester | Sequence[TestedClaim],
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

    All lower bounds of the report hold together with probability at least 1 -
    `config.failure_probability` (union bound over claims and directions), at whatever number of
    models a sequential audit stops. Stopping for futility can only lose refutations.

    Args:
      mechanism: trains models; observations are shape (num_models, k), the canary's loss first.
      claims: a tester with its claim inside, or several claims with theirs. A sequential audit
        takes testers that have a method `start`.
      pair: (D, D + canary).
      config: see `DpSgdAuditConfig`; `num_models` is the most that a sequential audit trains per
        dataset.
      sequential: trains in batches and stops as soon as the claim is refuted, see
        `SequentialAuditConfig`. None trains all models and looks once.
      claimed_mu: Gaussian DP parameter that the claims were derived from, for the report only.
      noise_free_shift: by how much the canary lowers its own loss without noise, for the report
        only.
      settings: recorded in the report.
      notes: for the report's reader.
      store: keeps the models as they finish, and gives those it has.

    Returns: observations with the canary come first.

    Raises:
      ValueError: the pair is not neighbouring, models that repeat each other, a tester that needs
        all samples at once in a sequential audit, a futility_mu that keeps the claim, or a store
        that is damaged.
      OSError: workers die again and again, a cluster cannot be reached, or the store cannot be
        written.
    """
    subject = _subject(
        mechanism,
        tuple(claims) if isinstance(claims, Sequence) else (TestedClaim(claims),),
        pair,
        config if sequential is None else _without_bars(config),
        store,
        claimed_mu=claimed_mu,
        noise_free_shift=noise_free_shift,
    )
    return run_audit(
        dataclasses.replace(subject, settings=settings, notes=tuple(notes)),
        config.num_models,
        config.failure_probability,
        sequential,
        show_progress=config.training.show_progress,
    )


def _without_bars(config: DpSgdAuditConfig) -> DpSgdAuditConfig:
    """Returns the settings for one batch of many: the audit draws one bar for all of them."""
    training = dataclasses.replace(config.training, show_progress=False)
    return dataclasses.replace(config, training=training)


def _subject(
    mechanism: ModelTrainer,
    claims: tuple[TestedClaim, ...],
    pair: NeighboringDatasets[Records],
    config: DpSgdAuditConfig,
    store: ObservationStore | None,
    *,
    claimed_mu: float | None,
    noise_free_shift: float | None,
) -> Subject:
    def draw(numbers: range) -> Samples:
        observations = train_both_worlds(
            mechanism, pair, numbers, config.training, num_canaries=config.num_canaries, store=store
        )
        return observations.with_canary, observations.without

    first = read_claim(claims[0].tester.privacy_property)
    mu = first.mu if isinstance(first, GaussianDp) else claimed_mu
    return Subject(
        title="Privacy audit of DP-SGD",
        draw=draw,
        directions=DIRECTIONS,
        claims=claims,
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
        seed=config.seed,
    )
