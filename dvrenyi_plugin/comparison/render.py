"""A comparison as tables: the same ones in CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.report_text import table
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

_REFERENCE = "sequential"
_NONE = "-"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table to be shown.

    Attributes:
      title: heading.
      note: what its numbers mean.
      header: names of the columns.
      rows: cells as text.
    """

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Returns the totals, the comparisons with other Rényi testers, and every cell."""
    return [
        _totals_table(comparison),
        _power_table(comparison),
        *_head_to_head_tables(comparison),
        _cells_table(summarise(comparison)),
    ]


def verdict_lines(comparison: Comparison) -> list[str]:
    """Returns what the comparison shows about this package's testers, one sentence each."""
    ours = [name for name in comparison.testers if find_tester(name).family == OWN_FAMILY]
    lines = []
    for total in totals_by_tester(comparison):
        if total.tester in ours and total.honest_audits:
            lines.append(
                f"`{total.tester}` refuted {total.false_alarms} of {total.honest_audits} honest claims"
                f" (stated: at most {comparison.config.failure_probability:g} of them) and"
                f" {total.detections} of {total.broken_audits} broken ones; {total.invalid} invalid answers."
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
            f"Against `{other}` on the same samples: `{_REFERENCE}`'s median bound is at least as large in"
            f" {len(pairs) - len(behind)} of {len(pairs)} cells; `{other}` returns NaN in {invalid} cells and a median"
            f" of 0 or below in {negative}."
            + (
                " Smaller in: "
                + "; ".join(f"{p.mechanism} {p.variant} n={p.num_samples}" for p in behind)
                + "."
                if behind
                else ""
            )
        )
    if comparison.num_failed:
        lines.append(
            f"{comparison.num_failed} of {len(comparison.rows)} cells ended without a result: the status of every cell"
            " says why."
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
            "Broken mechanisms that none of this package's testers refuted in most audits at their largest sample"
            f" size: {', '.join(missed)}."
        )
    elif len(open_ones) < len(comparison.mechanisms):
        lines.append(
            f"Every {'tested ' if open_ones else ''}broken mechanism is refuted by one of this package's testers in most"
            " audits at its largest sample size."
        )
    if open_ones:
        lines.append(
            "Broken mechanisms of which none of this package's testers has a result (not run yet, failed, or fewer"
            f" samples in their pool than any sample size): {', '.join(open_ones)}."
        )
    return lines


def to_csv(comparison: Comparison) -> str:
    """Returns one line a (mechanism, sample size, tester), empty where nothing is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(CellSummary)]
    writer.writerow(names)
    for summary in summarise(comparison):
        writer.writerow([_csv_cell(getattr(summary, name)) for name in names])
    return text.getvalue()


def to_markdown(comparison: Comparison, title: str) -> str:
    """Returns the whole comparison as one document."""
    lines = [f"# {escape(title, 'markdown')}", ""]
    lines += [escape(line, "markdown") for line in settings_lines(comparison)]
    # Names in these lines are registered ones, of letters, digits, "_" and ".", and stand in backticks on purpose.
    lines += ["", "## What it shows", "", *(f"- {line}" for line in verdict_lines(comparison)), ""]
    for shown in comparison_tables(comparison):
        lines += [f"## {shown.title}", "", shown.note, "", table(shown.header, shown.rows), ""]
    return "\n".join(lines)


def settings_lines(comparison: Comparison) -> list[str]:
    """Returns how the comparison was made, a sentence each."""
    config = comparison.config
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    return [
        f"Seed {config.seed}; {config.repeats} audits a cell ({config.slow_repeats} of slow testers, fewer where a pool"
        f" of samples is exhausted); failure probability {config.failure_probability:g} of an audit, half of it for each"
        " direction. All testers of a cell get the same samples.",
        f"Versions: {versions}.",
    ]


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number as text, "-" for None."""
    return _NONE if value is None else f"{value:.{digits}f}"


def _totals_table(comparison: Comparison) -> Table:
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
    return Table(
        "Testers over all cells",
        "Refuted of broken is the power, refuted of honest the false alarms. p-value: probability of as many false alarms"
        " or more if each audit had exactly the stated failure probability. The last column says whether the method"
        " states a failure probability that is meant to hold.",
        (
            "tester",
            "family",
            "bounds",
            "refuted of broken",
            "refuted of honest",
            "p-value",
            "invalid (NaN)",
            "valid at stated level",
        ),
        tuple(rows),
    )


def _power_table(comparison: Comparison) -> Table:
    summaries = summarise(comparison)
    cells = {(s.mechanism, s.num_samples, s.tester): s for s in summaries}
    rows = dict.fromkeys((s.mechanism, s.num_samples) for s in summaries)
    stated = comparison.config.failure_probability
    return Table(
        "Power and false alarms",
        "Share of audits that refuted the broken mechanism / share that refuted the honest one. !: the honest one"
        " significantly more often than stated, so that the power says nothing. NaN: some bounds were no number. -: not"
        " run, or no result (see every cell).",
        ("mechanism", "samples", *comparison.testers),
        tuple(
            (
                mechanism,
                str(size),
                *(_power_cell(cells.get((mechanism, size, t)), stated) for t in comparison.testers),
            )
            for mechanism, size in rows
        ),
    )


def _power_cell(summary: CellSummary | None, stated: float) -> str:
    if summary is None or (summary.power is None and summary.false_alarms is None):
        return _NONE
    text = f"{number(summary.power)} / {number(summary.false_alarms)}"
    marks = " !" * accuses_honest(summary, stated) + " NaN" * bool(summary.invalid)
    return text + marks


def _head_to_head_tables(comparison: Comparison) -> Iterable[Table]:
    for other in _other_renyi_testers(comparison):
        pairs = head_to_head(comparison, _REFERENCE, other)
        if not pairs:
            continue
        yield Table(
            f"{_REFERENCE} against {other}",
            "Median lower bounds on D_alpha from the same samples (larger direction of each audit).",
            ("mechanism", "variant", "samples", _REFERENCE, other, f"{other} NaN"),
            tuple(
                (
                    pair.mechanism,
                    pair.variant,
                    str(pair.num_samples),
                    number(pair.ours, 3),
                    number(pair.theirs, 3),
                    number(pair.theirs_invalid),
                )
                for pair in pairs
            ),
        )


def _cells_table(summaries: Sequence[CellSummary]) -> Table:
    return Table(
        "Every cell",
        "power: share of audits that refuted the broken mechanism. false: the same of the honest one. fraction: median bound over"
        " the true value, where that is known. nothing: share of audits whose bound is 0 or below. invalid: share with"
        " NaN. seconds: median of an audit, both directions.",
        (
            "mechanism",
            "samples",
            "tester",
            "power",
            "false",
            "audits",
            "fraction broken",
            "fraction honest",
            "nothing",
            "invalid",
            "seconds",
            "status",
        ),
        tuple(
            (
                s.mechanism,
                str(s.num_samples),
                s.tester,
                number(s.power),
                number(s.false_alarms),
                f"{s.broken_repeats} + {s.honest_repeats}",
                number(s.fraction_broken),
                number(s.fraction_honest),
                number(s.nothing_certified),
                number(s.invalid),
                number(s.seconds),
                s.status,
            )
            for s in summaries
        ),
    )


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
