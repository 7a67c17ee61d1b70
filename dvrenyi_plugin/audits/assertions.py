"""A privacy claim as an assertion of a test: fails once the claim is refuted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_int,
)
from dvrenyi_plugin.audits.audit import Subject, TestedClaim, run_audit
from dvrenyi_plugin.audits.directions import DATASETS, Array, Samples
from dvrenyi_plugin.audits.sample_checks import RepeatedSampleGuard
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.interfaces import Mechanism
from dvrenyi_plugin.privacy.claim_text import parse_claim
from dvrenyi_plugin.reports.model import AuditReport
from dvrenyi_plugin.testers.both_directions import shares_of_directions
from dvrenyi_plugin.testers.registry import make, quickest_tester

# Samples per dataset between two looks, at the least and as a part of the budget.
_LEAST_BATCH, _BATCHES = 20, 40


def assert_private(
    mechanism: Mechanism,
    dataset1: Any,
    dataset2: Any,
    claim: Any,
    *,
    budget: int = 2000,
    failure_probability: float = 0.01,
    seed: int = 0,
) -> AuditReport:
    """Raises AssertionError when the outputs of a mechanism refute its privacy claim, and returns
    the audit otherwise.

    Outputs are drawn in batches, until the claim is refuted or the budget is spent. A mechanism
    that keeps the claim fails with probability at most `failure_probability`, over all looks. One
    that breaks it may pass: with these two datasets, or with so few outputs, it may not show.

    Args:
      mechanism: called as mechanism(dataset, num_samples), gives independent outputs, shape
        (num_samples,) or (num_samples, k); other ones at every call.
      dataset1: a dataset.
      dataset2: its neighbour.
      claim: a privacy property, ours or DP-Auditorium's, or a text such as "epsilon=1"; see
        `parse_claim`.
      budget: outputs per dataset at most, >= 10.
      failure_probability: of this assertion, in (0, 1).
      seed: of the tester, >= 0. The randomness of the mechanism is its own.

    Raises:
      AssertionError: the claim is refuted.
      ValueError: an argument out of range, a budget with which nothing can be refuted, or outputs
        that are no numbers or come again.
      Exception: what the mechanism raised.

    Source: the e-processes of `SequentialRenyiPropertyTester` and `TradeOffPropertyTester`.
    """
    prop = parse_claim(claim) if isinstance(claim, str) else claim
    budget = check_int("budget", budget, at_least=10)
    failure_probability = check_failure_probability(failure_probability)
    tester = make(quickest_tester(prop), prop, seed)
    _check_budget(tester, budget, failure_probability)
    draw = _Draws(mechanism, (dataset1, dataset2))
    subject = Subject(
        title="Privacy assertion",
        draw=draw,
        directions=DATASETS,
        claims=(TestedClaim(tester),),
        unit="releases",
        work="drawing",
        seed=seed,
    )
    batch = max(_LEAST_BATCH, math.ceil(budget / _BATCHES))
    report = run_audit(subject, budget, failure_probability, SequentialAuditConfig(batch)).report
    if report.refuted:
        raise AssertionError(_failure(report, claim, budget, failure_probability, seed))
    return report


class _Draws:
    """Outputs of a mechanism on two datasets, batch by batch."""

    def __init__(self, mechanism: Mechanism, datasets: tuple[Any, Any]) -> None:
        self._mechanism, self._datasets = mechanism, datasets
        self._guard = RepeatedSampleGuard()

    def __call__(self, numbers: range) -> Samples:
        first, second = (self._draw(dataset, len(numbers)) for dataset in self._datasets)
        return first, second

    def _draw(self, dataset: Any, count: int) -> Array:
        outputs = call_user_code("mechanism", self._mechanism, dataset, count)
        rows = user_numbers("mechanism", outputs)
        if rows.ndim not in (1, 2) or len(rows) != count:
            raise ValueError(
                f"mechanism must give {count} outputs, shape ({count},) or ({count}, k), got shape"
                f" {rows.shape}"
            )
        self._guard.check(rows)
        return np.asarray(rows.reshape(count, -1))


def _check_budget(tester: Any, budget: int, failure_probability: float) -> None:
    process = tester.start(shares_of_directions(tester, failure_probability)[0])
    if not process.can_reject(tester.claimed_limit, budget):
        raise ValueError(
            f"budget must be large enough to refute the claim at failure probability"
            f" {failure_probability:g}, got {budget}: whatever the mechanism does, it passes"
        )


def _failure(
    report: AuditReport, claim: Any, budget: int, failure_probability: float, seed: int
) -> str:
    given = claim if isinstance(claim, str) else report.claim.describe()
    return (
        f"the mechanism is not {given}: at least {report.claim.quantity} {report.lower_bound:.6g}"
        f" is certified, of {report.claim.epsilon:.6g} claimed (failure probability"
        f" {failure_probability:g}), from {report.num_samples} of at most {budget} outputs per"
        f" dataset. To repeat it: failure_probability={failure_probability:g}, seed={seed}"
    )
