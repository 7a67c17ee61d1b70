"""What a comparison shows: the sentences and tables of its pages, and all cells as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence

from dvrenyi_plugin.comparison.registry import OWN_FAMILY, RENYI, find_tester
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.summary import (
    CellSummary,
    TesterTotal,
    accuses_honest,
    head_to_head,
    scale_of,
    summarise,
    totals_by_tester,
    undetected,
    untested,
)
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.text import Table

_REFERENCE = "sequential"
_NONE = "-"


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Returns the totals, the comparisons with other Rényi testers, and every cell."""
    return [
        _totals_section(comparison),
        _power_section(comparison),
        *_head_to_head_sections(comparison),
        _cells_section(summarise(comparison)),
    ]


def verdict_lines(comparison: Comparison) -> list[str]:
    """Returns what the comparison shows about this package's testers, one sentence each."""
    ours = [name for name in comparison.testers if find_tester(name).family == OWN_FAMILY]
    lines = []
    for total in totals_by_tester(comparison):
        if total.tester in ours and total.honest_audits:
            lines.append(
                f"`{total.tester}` refuted {total.false_alarms} of {total.honest_audits} honest"
                f" claims (stated: at most {comparison.config.failure_probability:g} of them) and"
                f" {total.detections} of {total.broken_audits} broken ones; {total.invalid} invalid"
                " answers."
            )
    if ours and "broken" in comparison.config.variants:
        lines += _power_lines(comparison, ours)
    for other in _other_renyi_testers(comparison):
        pairs = head_to_head(comparison, _REFERENCE, other)
        if not pairs:
            continue
        behind = [pair for pair in pairs if not pair.ours_at_least_as_large]
        invalid = sum(pair.theirs_invalid > 0.0 for pair in pairs)
        # Not a number counts as "no bound" here: the comparison with it is False.
        negative = sum(pair.theirs <= 0.0 for pair in pairs)
        lines.append(
            f"Against `{other}` on the same samples: `{_REFERENCE}`'s median bound is at least as"
            f" large in {len(pairs) - len(behind)} of {len(pairs)} cells; `{other}` returns NaN in"
            f" {invalid} cells and a median of 0 or below in {negative}."
        )
        if behind:
            cells = "; ".join(f"{p.mechanism} {p.variant} n={p.num_samples}" for p in behind)
            lines[-1] += f" Smaller in: {cells}."
    if comparison.num_failed:
        lines.append(
            f"{comparison.num_failed} of {len(comparison.rows)} cells ended without a result: the"
            " status of every cell says why."
        )
    if comparison.num_missing:
        lines.append(f"{comparison.num_missing} planned cells have not been run yet.")
    return lines


def _power_lines(comparison: Comparison, ours: list[str]) -> list[str]:
    open_ones = untested(comparison, ours)
    missed = [name for name in undetected(comparison, ours) if name not in open_ones]
    lines = []
    if missed:
        lines.append(
            "Broken mechanisms that none of this package's testers refuted in most audits at their"
            f" largest sample size: {', '.join(missed)}."
        )
    elif len(open_ones) < len(comparison.mechanisms):
        lines.append(
            f"Every {'tested ' if open_ones else ''}broken mechanism is refuted by one of this"
            " package's testers in most audits at its largest sample size."
        )
    if open_ones:
        lines.append(
            "Broken mechanisms of which none of this package's testers has a result (not run yet,"
            " failed, or fewer samples in their pool than any sample size):"
            f" {', '.join(open_ones)}."
        )
    return lines


def to_csv(comparison: Comparison) -> str:
    """Returns one line per (mechanism, sample size, tester), empty where nothing is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(CellSummary)]
    writer.writerow(names)
    for summary in summarise(comparison):
        writer.writerow([_csv_cell(getattr(summary, name)) for name in names])
    return text.getvalue()


def settings_lines(comparison: Comparison) -> list[str]:
    """Returns how the comparison was made, one paragraph per line."""
    config = comparison.config
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    return [
        f"Seed {config.seed}; {config.repeats} audits per cell ({config.slow_repeats} of slow"
        " testers, fewer where a pool of samples is exhausted); failure probability"
        f" {config.failure_probability:g} of an audit, half of it for each direction. All testers"
        " of a cell get the same samples.",
        f"Versions: {versions}.",
    ]


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number as text, "-" for None."""
    return _NONE if value is None else f"{value:.{digits}f}"


def _totals_section(comparison: Comparison) -> Section:
    rows = []
    for total in totals_by_tester(comparison):
        registered = find_tester(total.tester)
        rows.append(
            (
                total.tester,
                registered.family,
                scale_of(total.tester),
                _share(total.detections, total.broken_audits),
                _share(total.false_alarms, total.honest_audits),
                f"{total.p_value:.3g}" if total.honest_audits else _NONE,
                str(total.invalid),
                _verdict(total),
            )
        )
    header = (
        *("tester", "family", "bounds", "refuted of broken", "refuted of honest"),
        *("p-value", "invalid (NaN)", "valid at stated level"),
    )
    note = (
        "Refuted of broken is the power, refuted of honest the false alarms. p-value: probability"
        " of as many false alarms or more if each audit had exactly the stated failure probability."
        " The last column says whether the method states a failure probability that is meant to"
        " hold."
    )
    return Section("Testers over all cells", paragraphs=(note,), table=Table(header, rows))


def _power_section(comparison: Comparison) -> Section:
    summaries = summarise(comparison)
    cells = {(s.mechanism, s.num_samples, s.tester): s for s in summaries}
    places = dict.fromkeys((s.mechanism, s.num_samples) for s in summaries)
    stated = comparison.config.failure_probability
    header = ("mechanism", "samples", *comparison.testers)
    rows = [
        (
            mechanism,
            size,
            *(_power_cell(cells.get((mechanism, size, t)), stated) for t in comparison.testers),
        )
        for mechanism, size in places
    ]
    note = (
        "Share of audits that refuted the broken mechanism / share that refuted the honest one. !:"
        " the honest one significantly more often than stated, so that the power says nothing. NaN:"
        " some bounds were no number. -: not run, or no result (see every cell)."
    )
    return Section("Power and false alarms", paragraphs=(note,), table=Table(header, rows))


def _power_cell(summary: CellSummary | None, stated: float) -> str:
    if summary is None or (summary.power is None and summary.false_alarms is None):
        return _NONE
    text = f"{number(summary.power)} / {number(summary.false_alarms)}"
    marks = " !" * accuses_honest(summary, stated) + " NaN" * bool(summary.invalid)
    return text + marks


def _head_to_head_sections(comparison: Comparison) -> Iterable[Section]:
    for other in _other_renyi_testers(comparison):
        pairs = head_to_head(comparison, _REFERENCE, other)
        if not pairs:
            continue
        rows = [
            (
                *(pair.mechanism, pair.variant, pair.num_samples),
                *(number(pair.ours, 3), number(pair.theirs, 3), number(pair.theirs_invalid)),
            )
            for pair in pairs
        ]
        note = (
            "Median lower bounds on D_alpha from the same samples (larger direction of each audit)."
        )
        yield Section(
            f"{_REFERENCE} against {other}",
            paragraphs=(note,),
            table=Table(
                ("mechanism", "variant", "samples", _REFERENCE, other, f"{other} NaN"), rows
            ),
        )


def _cells_section(summaries: Sequence[CellSummary]) -> Section:
    header = (
        *("mechanism", "samples", "tester", "power", "false", "audits", "fraction broken"),
        *("fraction honest", "nothing", "invalid", "seconds", "status"),
    )
    rows = [
        (
            *(s.mechanism, s.num_samples, s.tester, number(s.power), number(s.false_alarms)),
            f"{s.broken_repeats} + {s.honest_repeats}",
            *(number(s.fraction_broken), number(s.fraction_honest), number(s.nothing_certified)),
            *(number(s.invalid), number(s.seconds), s.status),
        )
        for s in summaries
    ]
    note = (
        "power: share of audits that refuted the broken mechanism. false: the same of the honest"
        " one. fraction: median bound over the true value, where that is known. nothing: share of"
        " audits whose bound is 0 or below. invalid: share with NaN. seconds: median of an audit,"
        " both directions."
    )
    return Section("Every cell", paragraphs=(note,), table=Table(header, rows))


def _other_renyi_testers(comparison: Comparison) -> list[str]:
    if _REFERENCE not in comparison.testers:
        return []
    return [
        name
        for name in comparison.testers
        if find_tester(name).family != OWN_FAMILY
        and find_tester(name).scale == RENYI
        and find_tester(name).valid_at_stated_level
    ]


def _verdict(total: TesterTotal) -> str:
    if not total.honest_audits + total.broken_audits:
        return _NONE
    return "yes" if total.valid_at_stated_level else "no"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else _NONE


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    return round(value, 6) if isinstance(value, float) else value
