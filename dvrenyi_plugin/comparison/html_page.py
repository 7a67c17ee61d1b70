"""A comparison as one self-contained HTML page: verdicts, heat map, power curves, tables."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.comparison.registry import find_tester
from dvrenyi_plugin.comparison.render import (
    Table,
    comparison_tables,
    number,
    settings_lines,
    verdict_lines,
)
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.summary import CellSummary, accuses_honest, summarise

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 1200px; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2em; }
p.note { color: #555; max-width: 52em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 9px; border-bottom: 1px solid #e3e3e3; text-align: right; white-space: nowrap; }
th { background: #f4f4f4; font-weight: 600; }
td.text, th.text { text-align: left; }
th.wrap { white-space: normal; text-align: center; vertical-align: bottom; }
td.heat { text-align: center; border: 1px solid #fff; min-width: 4.8em; }
td.heat small { display: block; opacity: .85; }
td.alarm { background: #D55E00; color: #fff; border: 2px solid #7a3600; }
td.alarm small { font-weight: 700; opacity: 1; }
td.nan { background: repeating-linear-gradient(45deg, #eee 0 6px, #d5d5d5 6px 12px); color: #222; }
th small { display: block; font-weight: 400; color: #a04600; }
svg { max-width: 100%; height: auto; }
"""
_NUMBER = re.compile(r"-?\d*\.?\d+(e[+-]?\d+)?|-|nan|inf")
# Colour-blind safe (Okabe and Ito), with markers, so that no curve depends on its colour alone.
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8A6D3B",
    "#7F7F7F",
)
_MARKERS = "osD^vPX*h"


def to_html(comparison: Comparison, title: str) -> str:
    """Returns the page. Nothing in it is loaded from elsewhere."""
    summaries = summarise(comparison)
    parts = [
        f"<h1>{escape(title, 'html')}</h1>",
        *(f'<p class="note">{escape(line, "html")}</p>' for line in settings_lines(comparison)),
        "<h2>What it shows</h2>",
        "<ul>",
        *(f"<li>{_inline(line)}</li>" for line in verdict_lines(comparison)),
        "</ul>",
        *_heat_map(comparison, summaries),
        "<h2>Power by sample size</h2>",
        '<p class="note">Share of audits that refute the broken mechanism, by samples of each law; dashed: the stated failure'
        " probability. Curves on top of each other show as markers inside each other.</p>",
        _picture_or_reason(lambda: _power_curves(comparison, summaries)),
    ]
    for table in comparison_tables(comparison):
        parts += [
            f"<h2>{escape(table.title, 'html')}</h2>",
            f'<p class="note">{_inline(table.note)}</p>',
        ]
        parts += _html_table(table)
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title, "html")}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _heat_map(comparison: Comparison, summaries: Sequence[CellSummary]) -> list[str]:
    """At each mechanism's largest sample size: power as colour, false alarms below it."""
    largest: dict[str, int] = {}
    for summary in summaries:
        largest[summary.mechanism] = max(largest.get(summary.mechanism, 0), summary.num_samples)
    cells = {(s.mechanism, s.tester): s for s in summaries if s.num_samples == largest[s.mechanism]}
    head = "".join(f'<th class="wrap">{_heading(tester)}</th>' for tester in comparison.testers)
    lines = [
        "<h2>Power and false alarms at the largest sample size</h2>",
        '<p class="note">Large figure: share of audits that refute the broken mechanism, the deeper the blue the larger. Small'
        " figure: share that accuse the honest one. Orange with a frame: the honest mechanism is accused significantly more often"
        " than stated (one-sided binomial test at 0.01), so the large figure is no power. Striped: some bounds are no number"
        " (NaN: share of audits). Testers without a guarantee state a failure probability that is known not to hold.</p>",
        '<div class="scroll"><table>',
        f'<tr><th class="text">mechanism</th><th>samples</th>{head}</tr>',
    ]
    stated = comparison.config.failure_probability
    for mechanism in comparison.mechanisms:
        if mechanism not in largest:
            continue
        row = [
            f'<tr><td class="text">{escape(mechanism, "html")}</td><td>{largest[mechanism]}</td>'
        ]
        row += [_heat_cell(cells.get((mechanism, tester)), stated) for tester in comparison.testers]
        lines.append("".join(row) + "</tr>")
    return [*lines, "</table></div>"]


def _heading(tester: str) -> str:
    name = escape(tester, "html").replace("_", "_<wbr>")
    return (
        name if find_tester(tester).valid_at_stated_level else f"{name}<small>no guarantee</small>"
    )


def _heat_cell(summary: CellSummary | None, stated: float) -> str:
    if summary is None or (summary.power is None and summary.false_alarms is None):
        why = "not run" if summary is None else summary.status
        return f'<td class="heat" style="background:#eee" title="{escape(why, "html")}">-</td>'
    below = [f"false {number(summary.false_alarms)}"]
    if summary.invalid:
        below.append(f"NaN {number(summary.invalid)}")
    if accuses_honest(summary, stated):
        look = 'class="heat alarm"'
    elif summary.invalid:
        look = 'class="heat nan"'
    else:
        look = f'class="heat" style="{_shade(summary.power)}"'
    return f"<td {look}>{number(summary.power)}<small>{'<br>'.join(below)}</small></td>"


def _shade(power: float | None) -> str:
    if power is None:
        return "background:#eee;color:#222"
    # From near white to a deep blue: light and dark tell as much as the hue.
    red, green, blue = (round(248 + power * (end - 248)) for end in (8, 69, 148))
    return f"background:rgb({red},{green},{blue});color:{'#fff' if power > 0.5 else '#222'}"


def _power_curves(comparison: Comparison, summaries: Sequence[CellSummary]) -> str:
    """Returns inline SVG, one small plot a mechanism."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    mechanisms = [m for m in comparison.mechanisms if any(s.mechanism == m for s in summaries)]
    holds = {tester: find_tester(tester).valid_at_stated_level for tester in comparison.testers}
    columns = 3
    rows = max(1, -(-len(mechanisms) // columns))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dvrenyi"}):
        figure = Figure(figsize=(11, 2.5 * rows + 0.7), layout="constrained")
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axis in axes[len(mechanisms) :]:
            axis.set_axis_off()
        for axis, mechanism in zip(axes, mechanisms, strict=False):
            axis.set_title(mechanism, fontsize=10)
            axis.set_ylim(-0.04, 1.04)
            axis.set_xscale("log")
            sizes = sorted({s.num_samples for s in summaries if s.mechanism == mechanism})
            axis.set_xticks(sizes, [str(size) for size in sizes])
            axis.minorticks_off()
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.3)
            axis.axhline(
                comparison.config.failure_probability, color="grey", linewidth=0.8, linestyle="--"
            )
            for index, tester in enumerate(comparison.testers):
                points = [
                    (s.num_samples, s.power)
                    for s in summaries
                    if s.mechanism == mechanism and s.tester == tester and s.power is not None
                ]
                axis.plot(
                    [size for size, _ in points],
                    [power for _, power in points],
                    color=_COLOURS[index % len(_COLOURS)],
                    marker=_MARKERS[index % len(_MARKERS)],
                    # Smaller and smaller, so that equal values do not hide each other.
                    markersize=max(2.5, 11.0 - 1.2 * index),
                    linewidth=1.3,
                    linestyle="-" if holds[tester] else ":",
                    label=tester if holds[tester] else f"{tester} (no guarantee)",
                )
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9)
        figure.supylabel("power", fontsize=9)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _picture_or_reason(draw: Callable[[], str]) -> str:
    """Returns what `draw` does, or a paragraph that says why it could not: the page is written either way."""
    try:
        return draw()
    except Exception as error:
        return f"<p>The curves could not be drawn: {escape(error, 'html')}.</p>"


def _html_table(table: Table) -> list[str]:
    is_text = [
        not all(_NUMBER.fullmatch(row[column]) for row in table.rows)
        for column in range(len(table.header))
    ]

    def line(tag: str, cells: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(
                f"<{tag}{' class=text' if text else ''}>{escape(cell, 'html')}</{tag}>"
                for cell, text in zip(cells, is_text, strict=True)
            )
            + "</tr>"
        )

    return [
        '<div class="scroll"><table>',
        line("th", table.header),
        *(line("td", row) for row in table.rows),
        "</table></div>",
    ]


def _inline(text: str) -> str:
    """Returns escaped text with `names` set as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, "html"))
