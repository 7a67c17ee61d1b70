"""One audit of any mechanism on any pair of datasets: draw outputs, test both directions of every
claim, report.

A number of outputs that is fixed beforehand, or no more than it takes to refute a claim. Then each
direction of each claim has an e-process: pairs of outputs are bet on one by one, in the order of
their numbers, and the bound holds at every number of pairs at once (Ville's inequality). So the
rule that stops may look at anything seen so far, the size of the batches decides when the audit
looks and nothing else, and an audit that drew all its outputs may go on later with a larger number
of them.

Source: Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially
Private Machine Learning", algorithm 3, with the failure probability divided over claims and
directions.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.progress import progress_bar
from dvrenyi_plugin.audits.directions import BoundTester, Samples, bound_both_directions
from dvrenyi_plugin.audits.evidence import Evidence, check_sequential
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.reports.claims import ClaimReport, DirectionReport, TestedLevel
from dvrenyi_plugin.reports.model import AuditReport, Section
from dvrenyi_plugin.reports.sequential_outcome import (
    ALL_TRAINED,
    FUTILE,
    REFUTED,
    SequentialOutcome,
)

# Models per dataset between two looks, where a claim is about to fall.
_SMALLEST_BATCH = 2


@dataclasses.dataclass(frozen=True)
class TestedClaim:
    """A claim with the tester that holds it.

    Attributes:
      tester: of the claim.
      source: the result that the claim comes from, for the report; empty if none is known.
      exact_divergences: true values in both directions, where the laws of the outputs are known.
      weight: its part of the failure probability, relative to those of the other claims, > 0.
      is_beside: reported beside the claims that the audit is about: it leads the report only where
        it alone is refuted.
    """

    tester: BoundTester
    source: str = ""
    exact_divergences: tuple[float, float] | None = None
    weight: float = 1.0
    is_beside: bool = False


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is audited: a mechanism on a pair of neighbouring datasets, its claims, and what a
    report says of it.

    Attributes:
      title: of the report.
      draw: returns the outputs with these numbers on both datasets, shape (len(numbers), k) each;
        asked for every number once, in order.
      directions: names of "first over second" and of "second over first".
      claims: at least one.
      unit: what a row is, in the plural: "models" or "releases".
      work: how they are made: "training" or "drawing".
      check: sees all outputs so far and raises ValueError when they cannot be independent.
      describe: returns what else a report says of the outputs.
      remarks: returns sentences for the report's reader that the outputs give rise to.
      claimed_mu: Gaussian DP parameter that the claims follow from, for the report only.
      settings: recorded in the report.
      notes: sentences for the report's reader.
      seed: root of every random stream, for the report only.
    """

    title: str
    draw: Callable[[range], Samples]
    directions: tuple[str, str]
    claims: tuple[TestedClaim, ...]
    unit: str
    work: str
    check: Callable[[Samples], None] = lambda samples: None
    describe: Callable[[Samples], tuple[Section, ...]] = lambda samples: ()
    remarks: Callable[[Samples], tuple[str, ...]] = lambda samples: ()
    claimed_mu: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """Report and the outputs it was made from.

    Attributes:
      report: see `AuditReport`.
      samples: outputs on the subject's first dataset and on its second, shape (n, k) each.
    """

    report: AuditReport
    samples: Samples

    def __repr__(self) -> str:
        return f"AuditResult({self.report!r})"

    def __str__(self) -> str:
        return self.report.summary()

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def run_audit(
    subject: Subject,
    num_samples: int,
    failure_probability: float,
    sequential: SequentialAuditConfig | None = None,
    *,
    show_progress: bool = False,
) -> AuditResult:
    """Returns the audit of a mechanism on a pair of datasets.

    The failure probability is divided over claims, by their weights, and over directions: all lower
    bounds of the report hold together with probability at least 1 - `failure_probability` (union
    bound), at whatever number of outputs the audit stops.

    Args:
      subject: what is audited.
      num_samples: outputs per dataset; the most that are drawn of a sequential audit.
      failure_probability: of the whole audit, in (0, 1).
      sequential: how often a sequential audit looks and when it gives up; None draws all outputs
        and looks once.
      show_progress: draw a progress bar for a sequential audit on standard error.

    Raises:
      ValueError: outputs that repeat each other or are malformed, or a tester that needs all
        samples at once in a sequential audit.
      Exception: what the user's code raised, with a note that says which part it was.
    """
    start = time.perf_counter()
    total = sum(claim.weight for claim in subject.claims)
    shares = [failure_probability * claim.weight / total for claim in subject.claims]
    if sequential is None:
        samples = subject.draw(range(num_samples))
        drawn = time.perf_counter()
        outcome = None
        bounds = [
            bound_both_directions(claim.tester, samples, share, subject.directions)
            for claim, share in zip(subject.claims, shares, strict=True)
        ]
        seconds = drawn - start
    else:
        samples, outcome, bounds, seconds = _until_refuted(
            subject, num_samples, shares, sequential, show_progress
        )
    seconds_of = {subject.work: seconds, "wall": time.perf_counter() - start}
    report = _report(subject, samples, bounds, failure_probability, outcome, seconds_of)
    return AuditResult(report, samples)


def _report(
    subject: Subject,
    samples: Samples,
    bounds: Sequence[tuple[DirectionReport, ...]],
    failure_probability: float,
    outcome: SequentialOutcome | None,
    seconds: Mapping[str, float],
) -> AuditReport:
    return AuditReport(
        title=subject.title,
        claims=tuple(
            ClaimReport(
                TestedLevel(
                    alpha=directions[0].bound.alpha,
                    epsilon=directions[0].bound.claimed_limit,
                    mu=subject.claimed_mu,
                    parameter=directions[0].bound.details.get("parameter", "epsilon"),
                ),
                directions,
                claim.source,
                claim.exact_divergences,
                claim.is_beside,
            )
            for claim, directions in zip(subject.claims, bounds, strict=True)
        ),
        failure_probability=failure_probability,
        num_samples=min(map(len, samples)),
        unit=subject.unit,
        seed=subject.seed,
        seconds=seconds,
        sections=subject.describe(samples),
        settings=dict(subject.settings),
        notes=(*subject.notes, *subject.remarks(samples)),
        sequential=outcome,
    )


def _until_refuted(
    subject: Subject,
    num_samples: int,
    shares: Sequence[float],
    config: SequentialAuditConfig,
    show_progress: bool,
) -> tuple[Samples, SequentialOutcome, list[tuple[DirectionReport, ...]], float]:
    evidence = Evidence(
        [check_sequential(claim.tester) for claim in subject.claims], shares, config
    )
    batches: list[Samples] = []
    drawn_after: list[int] = []
    seconds = 0.0
    stopped = None
    batch = config.batch_models
    with progress_bar(
        f"{subject.work}, at most", subject.unit, 2 * num_samples, show_progress
    ) as progress:
        while stopped is None:
            done = drawn_after[-1] if drawn_after else 0
            numbers = range(done, min(done + batch, num_samples))
            start = time.perf_counter()
            batches.append(subject.draw(numbers))
            seconds += time.perf_counter() - start
            samples = _joined(batches)
            # A batch by itself may be too small to show that outputs repeat each other.
            subject.check(samples)
            drawn_after.append(numbers.stop)
            evidence.update(batches[-1])
            log_e_value, threshold = evidence.nearest()
            progress.set_postfix_str(f"log e-value {log_e_value:.2f} of {threshold:.2f}", False)
            progress.update(2 * len(numbers))
            # A third of what it seems to take: looks are cheap, models trained in vain are not.
            expected = min(evidence.pairs_to_refute() / 3.0, config.batch_models)
            batch = max(math.ceil(expected), _SMALLEST_BATCH)
            if evidence.refuted_after is not None:
                stopped = REFUTED
            elif numbers.stop == num_samples:
                stopped = ALL_TRAINED
            elif evidence.is_futile(num_samples - numbers.stop):
                stopped = FUTILE
    outcome = SequentialOutcome(
        stopped=stopped,
        models_after_batch=tuple(drawn_after),
        max_models_per_world=num_samples,
        evidence=evidence.paths(subject.directions),
        refuted_after_models=evidence.refuted_after,
        futility_mu=config.futility_mu,
        futility_probability=config.futility_probability,
    )
    return samples, outcome, evidence.results(subject.directions), seconds


def _joined(batches: Sequence[Samples]) -> Samples:
    first, second = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return first, second
