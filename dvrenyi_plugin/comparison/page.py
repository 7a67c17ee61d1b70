"""A comparison as a document: sentences and tables, and in HTML a heat map and curves too."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence

from markupsafe import Markup

from dvrenyi_plugin.comparison.registry import find_tester
from dvrenyi_plugin.comparison.render import (
    comparison_sections,
    number,
    settings_lines,
    verdict_lines,
)
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.summary import CellSummary, accuses_honest, summarise
from dvrenyi_plugin.reports.render import Format, render

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


@dataclasses.dataclass(frozen=True)
class HeatCell:
    """One tester on one mechanism.

    Attributes:
      power: large figure.
      below: small figures.
      mark: "alarm" or "nan", which say that the power is none.
      style: its colour, if it has no mark.
      missing: why there are no figures.
    """

    power: str
    below: tuple[str, ...] = ()
    mark: str = ""
    style: str = ""
    missing: str = ""


@dataclasses.dataclass(frozen=True)
class HeatRow:
    """One mechanism at its largest sample size, one cell per tester."""

    mechanism: str
    num_samples: int
    cells: tuple[HeatCell, ...]


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """Power as colour, false alarms below it.

    Attributes:
      testers: whether each of them states a failure probability that is meant to hold, by name.
      rows: one per mechanism.
    """

    testers: dict[str, bool]
    rows: tuple[HeatRow, ...]

    @classmethod
    def of(cls, comparison: Comparison, summaries: Sequence[CellSummary]) -> HeatMap:
        """Returns the heat map at each mechanism's largest sample size."""
        largest: dict[str, int] = {}
        for summary in summaries:
            size = max(largest.get(summary.mechanism, 0), summary.num_samples)
            largest[summary.mechanism] = size
        cells = {
            (s.mechanism, s.tester): s for s in summaries if s.num_samples == largest[s.mechanism]
        }
        stated = comparison.config.failure_probability
        return cls(
            {tester: find_tester(tester).valid_at_stated_level for tester in comparison.testers},
            tuple(
                HeatRow(
                    name,
                    largest[name],
                    tuple(_heat_cell(cells.get((name, t)), stated) for t in comparison.testers),
                )
                for name in comparison.mechanisms
                if name in largest
            ),
        )


def to_markdown(comparison: Comparison, title: str) -> str:
    """Returns the whole comparison as one document."""
    return _render(comparison, title, "markdown", heat_map=None)


def to_html(comparison: Comparison, title: str) -> str:
    """Returns the page. Nothing in it is loaded from elsewhere."""
    summaries = summarise(comparison)
    heat_map = HeatMap.of(comparison, summaries)
    # The page is written whether or not the curves can be drawn.
    try:
        curves, why_not = _power_curves(comparison, summaries), ""
    except Exception as error:
        curves, why_not = Markup(""), str(error)
    return _render(comparison, title, "html", heat_map=heat_map, curves=curves, no_curves=why_not)


def _render(comparison: Comparison, title: str, target: Format, **charts: object) -> str:
    return render(
        "comparison.jinja",
        target,
        title=title,
        settings=settings_lines(comparison),
        verdicts=verdict_lines(comparison),
        sections=comparison_sections(comparison),
        **charts,
    )


def _heat_cell(summary: CellSummary | None, stated: float) -> HeatCell:
    if summary is None or (summary.power is None and summary.false_alarms is None):
        why = "not run" if summary is None else summary.status
        return HeatCell("-", style="background:#eee", missing=why)
    below = [f"false {number(summary.false_alarms)}"]
    if summary.invalid:
        below.append(f"NaN {number(summary.invalid)}")
    mark = "alarm" if accuses_honest(summary, stated) else "nan" if summary.invalid else ""
    style = "" if mark else _shade(summary.power)
    return HeatCell(number(summary.power), tuple(below), mark, style)


def _shade(power: float | None) -> str:
    if power is None:
        return "background:#eee;color:#222"
    # From near white to a deep blue: light and dark tell as much as the hue.
    red, green, blue = (round(248 + power * (end - 248)) for end in (8, 69, 148))
    return f"background:rgb({red},{green},{blue});color:{'#fff' if power > 0.5 else '#222'}"


def _power_curves(comparison: Comparison, summaries: Sequence[CellSummary]) -> Markup:
    """Returns inline SVG, one small plot per mechanism."""
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
    return Markup(text[text.index("<svg") :])
