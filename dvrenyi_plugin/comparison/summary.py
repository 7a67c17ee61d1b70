"""What the rows of a comparison say: power beside false alarms, and the checks they are held to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
from scipy import stats

from dvrenyi_plugin.comparison.cells import OK, CellResult
from dvrenyi_plugin.comparison.registry import RENYI, find_tester
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.settings import BROKEN, HONEST

_SIGNIFICANCE = 0.01


@dataclasses.dataclass(frozen=True)
class CellSummary:
    """One tester on one mechanism at one sample size, honest beside broken.

    None stands for what was not run or is not known.

    Attributes:
      mechanism: its name.
      tester: its name.
      num_samples: samples of each law.
      power: share of audits of the broken mechanism that refuted the claim.
      false_alarms: share of audits of the honest mechanism that refuted the claim.
      broken_repeats: audits of the broken mechanism.
      honest_repeats: audits of the honest mechanism.
      fraction_broken: median bound over the true value, broken; NaN bounds left out.
      fraction_honest: the same, honest.
      invalid: share of audits, of both, in which a bound was NaN.
      nothing_certified: share of audits, of both, whose valid bounds were 0 or below.
      seconds: median time of an audit.
      status: "ok", or why a part is missing.
    """

    mechanism: str
    tester: str
    num_samples: int
    power: float | None
    false_alarms: float | None
    broken_repeats: int
    honest_repeats: int
    fraction_broken: float | None
    fraction_honest: float | None
    invalid: float | None
    nothing_certified: float | None
    seconds: float | None
    status: str


@dataclasses.dataclass(frozen=True)
class TesterTotal:
    """A tester over the whole comparison.

    Attributes:
      tester: its name.
      honest_audits: audits of honest mechanisms.
      false_alarms: of them, those that refuted.
      p_value: probability of at least as many if each had exactly the stated failure probability.
      broken_audits: audits of broken mechanisms.
      detections: of them, those that refuted.
      invalid: audits with a NaN bound.
      valid_at_stated_level: False for a method whose stated failure probability is known not to
        hold.
    """

    tester: str
    honest_audits: int
    false_alarms: int
    p_value: float
    broken_audits: int
    detections: int
    invalid: int
    valid_at_stated_level: bool


@dataclasses.dataclass(frozen=True)
class HeadToHead:
    """Two testers on the same samples: medians of their bounds on D_alpha.

    Attributes:
      mechanism: its name.
      variant: honest or broken.
      num_samples: samples of each law.
      ours: median bound of the first tester.
      theirs: median of the other's valid bounds; NaN when there is none.
      theirs_invalid: share of the other's audits with a NaN bound.
    """

    mechanism: str
    variant: str
    num_samples: int
    ours: float
    theirs: float
    theirs_invalid: float

    @property
    def ours_at_least_as_large(self) -> bool:
        """Whether the first tester's median is no smaller, or the other has no valid bound."""
        return self.ours >= self.theirs or (math.isnan(self.theirs) and not math.isnan(self.ours))


def summarise(comparison: Comparison) -> list[CellSummary]:
    """Returns one summary a (mechanism, sample size, tester), in the order of the comparison."""
    rows: dict[tuple[str, int, str], dict[str, CellResult]] = {}
    for row in comparison.rows:
        key = (row.key.mechanism, row.key.num_samples, row.key.tester)
        rows.setdefault(key, {})[row.key.variant] = row
    return [
        _summary(*key, rows[key])
        for mechanism in comparison.mechanisms
        for size in comparison.config.sample_sizes
        for tester in comparison.testers
        if (key := (mechanism, size, tester)) in rows
    ]


def accuses_honest(summary: CellSummary, failure_probability: float) -> bool:
    """Returns whether the honest mechanism was refuted significantly more often than stated.

    That is decided by a one-sided binomial test at 0.01. Power says nothing there.
    """
    if summary.false_alarms is None:
        return False
    alarms = round(summary.false_alarms * summary.honest_repeats)
    p_value = stats.binom.sf(alarms - 1, summary.honest_repeats, failure_probability)
    return bool(p_value < _SIGNIFICANCE)


def totals_by_tester(comparison: Comparison) -> list[TesterTotal]:
    """Returns every tester's false alarms and detections over all cells."""
    totals = []
    for tester in comparison.testers:
        rows = [row for row in comparison.rows if row.key.tester == tester and row.status == OK]
        honest = [row for row in rows if row.key.variant == HONEST]
        broken = [row for row in rows if row.key.variant == BROKEN]
        audits, alarms = _count(honest), sum(sum(row.refuted) for row in honest)
        totals.append(
            TesterTotal(
                tester=tester,
                honest_audits=audits,
                false_alarms=alarms,
                p_value=float(
                    stats.binom.sf(alarms - 1, audits, comparison.config.failure_probability)
                ),
                broken_audits=_count(broken),
                detections=sum(sum(row.refuted) for row in broken),
                invalid=sum(row.num_invalid for row in rows),
                valid_at_stated_level=find_tester(tester).valid_at_stated_level,
            )
        )
    return totals


def head_to_head(comparison: Comparison, ours: str, theirs: str) -> list[HeadToHead]:
    """Returns where both testers bounded D_alpha on the same samples.

    Repeats that only one of them made are left out.
    """
    rows = {
        (row.key.mechanism, row.key.variant, row.key.num_samples, row.key.tester): row
        for row in comparison.rows
        if row.status == OK
    }
    pairs = []
    for (mechanism, variant, size, tester), other in rows.items():
        own = rows.get((mechanism, variant, size, ours))
        if tester != theirs or own is None:
            continue
        common = min(len(own.bounds), len(other.bounds))
        their_bounds = other.larger_bounds[:common]
        pairs.append(
            HeadToHead(
                mechanism=mechanism,
                variant=variant,
                num_samples=size,
                ours=_median(own.larger_bounds[:common]),
                theirs=_median(their_bounds),
                theirs_invalid=float(np.mean(np.isnan(their_bounds))),
            )
        )
    return pairs


def undetected(comparison: Comparison, testers: Iterable[str]) -> list[str]:
    """Returns the mechanisms whose broken variant none of these testers refuted in most audits.

    Most are more than half, at the mechanism's largest sample size.
    """
    names = set(testers)
    missed = []
    for mechanism in comparison.mechanisms:
        rows = [
            row
            for row in comparison.rows
            if row.key.mechanism == mechanism
            and row.key.variant == BROKEN
            and row.status == OK
            and row.key.tester in names
        ]
        largest = max((row.key.num_samples for row in rows), default=0)
        shares = [row.refuted_share or 0.0 for row in rows if row.key.num_samples == largest]
        if not any(share > 0.5 for share in shares):
            missed.append(mechanism)
    return missed


def untested(comparison: Comparison, testers: Iterable[str]) -> list[str]:
    """Returns the mechanisms for whose broken variant none of these testers has a result."""
    names = set(testers)
    tested = {
        row.key.mechanism
        for row in comparison.rows
        if row.key.variant == BROKEN and row.status == OK and row.key.tester in names
    }
    return [mechanism for mechanism in comparison.mechanisms if mechanism not in tested]


def _summary(
    mechanism: str, num_samples: int, tester: str, rows: dict[str, CellResult]
) -> CellSummary:
    good = [row for row in rows.values() if row.status == OK]
    bounds = np.concatenate([row.larger_bounds for row in good]) if good else np.empty(0)
    valid = bounds[~np.isnan(bounds)]
    problems = [
        f"{variant}: {row.status}" + (f" ({row.message})" if row.message else "")
        for variant, row in rows.items()
        if row.status != OK
    ]
    seconds = [second for row in good for second in row.seconds]
    honest, broken = rows.get(HONEST), rows.get(BROKEN)
    return CellSummary(
        mechanism=mechanism,
        tester=tester,
        num_samples=num_samples,
        power=broken.refuted_share if broken else None,
        false_alarms=honest.refuted_share if honest else None,
        broken_repeats=len(broken.refuted) if broken else 0,
        honest_repeats=len(honest.refuted) if honest else 0,
        fraction_broken=_fraction(broken),
        fraction_honest=_fraction(honest),
        invalid=float(np.mean(np.isnan(bounds))) if bounds.size else None,
        nothing_certified=float(np.mean(valid <= 0.0)) if valid.size else None,
        seconds=float(np.median(seconds)) if seconds else None,
        status="; ".join(problems) or OK,
    )


def _fraction(row: CellResult | None) -> float | None:
    if row is None or row.status != OK or not row.truth:
        return None
    fraction = _median(row.larger_bounds) / row.truth
    return None if math.isnan(fraction) else fraction


def _median(values: np.ndarray) -> float:
    valid = values[~np.isnan(values)]
    return float(np.median(valid)) if valid.size else math.nan


def _count(rows: list[CellResult]) -> int:
    return sum(len(row.refuted) for row in rows)


def scale_of(tester: str) -> str:
    """Returns what a tester's bounds are on, in words."""
    return "D_alpha" if find_tester(tester).scale == RENYI else "delta"
