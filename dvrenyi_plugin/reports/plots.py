"""Pictures that every audit has."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from dvrenyi_plugin.reports.claims import TestedLevel
from dvrenyi_plugin.reports.figures import BLACK, BLUE, ORANGE, new_figure
from dvrenyi_plugin.reports.model import AuditReport
from dvrenyi_plugin.reports.sequential_outcome import SequentialOutcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_bound(report: AuditReport) -> Figure:
    """Returns claim, point estimate and certified lower bound on one axis."""
    figure, (axis,) = new_figure(1, height=2.5)
    claim, bound, estimate = report.claim.epsilon, report.lower_bound, report.point_estimate
    largest = max(value for value in (claim, bound, estimate, 1e-12) if math.isfinite(value))
    axis.set_xlim(0.0, 1.15 * largest)
    rows = {
        f"claimed {report.claim.parameter}": 2.0,
        "point estimate\n(no confidence statement)": 1.0,
        f"certified lower bound\n(failure probability {report.failure_probability:g})": 0.0,
    }
    axis.set_yticks(list(rows.values()), list(rows))
    axis.set_ylim(-0.6, 2.6)
    axis.axvline(claim, color=BLACK, linestyle="--", linewidth=1.2)
    axis.plot(claim, 2.0, marker="D", color=BLACK, markersize=8)
    _annotate(axis, claim, 2.0, claim)
    if math.isfinite(estimate):
        axis.plot(estimate, 1.0, marker="o", color=BLUE, markersize=9, markerfacecolor="white")
        # A label that would stand on the claim's line goes to the right of it.
        crosses = 0.0 <= claim - estimate < 0.16 * largest
        _annotate(axis, claim if crosses else estimate, 1.0, estimate)
    # An arrow to the right: the divergence is certified to be here or larger.
    axis.annotate(
        "",
        xy=(1.15 * largest, 0.0),
        xytext=(bound, 0.0),
        arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 2.0},
    )
    axis.plot(bound, 0.0, marker="|", color=ORANGE, markersize=18, markeredgewidth=3.0)
    _annotate(axis, bound, 0.0, bound)
    axis.set_xlabel(_quantity(report.claim))
    axis.set_title("claim refuted" if report.refuted else "claim not refuted", fontsize=11)
    return figure


def plot_evidence(outcome: SequentialOutcome) -> Figure:
    """Returns a sequential audit's log e-values against its claims, each over its threshold.

    They are drawn over the models per dataset, less log(1 / failure probability) of the direction.
    A claim is refuted when its path reaches zero and so do those of all smaller claims, which as a
    rule are ahead.
    """
    figure, (axis,) = new_figure(1, height=3.4)
    looks = itertools.cycle(((BLUE, "o"), (ORANGE, "s")))
    for (colour, marker), path in zip(looks, outcome.evidence, strict=False):
        axis.plot(
            (0, *outcome.models_after_batch),
            [value - path.log_threshold for value in (0.0, *path.log_e_values)],
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.6,
            label=path.direction,
        )
    axis.axhline(0.0, color=BLACK, linestyle="--", linewidth=1.2)
    axis.annotate("refuted", (0.0, 0.0), xytext=(4, 4), textcoords="offset points", fontsize=9)
    axis.set_xlim(0.0, 1.02 * outcome.models_trained_per_world)
    lowest, highest = axis.get_ylim()
    axis.set_ylim(top=max(highest, 0.15 * (highest - lowest)))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(f"models trained per dataset (at most {outcome.max_models_per_world})")
    axis.set_ylabel("log (e-value x failure probability) / nat")
    axis.legend(frameon=False, loc="best", fontsize=9)
    axis.set_title(outcome.summary(), fontsize=10)
    return figure


def _quantity(claim: TestedLevel) -> str:
    match claim.parameter:
        case "mu":
            return "Gaussian DP parameter mu that the two datasets' laws need"
        case "epsilon":
            order = "" if claim.alpha is None else f" of order {claim.alpha:g}"
            return f"Rényi divergence{order} between the two datasets' laws / nat"
    return f"{claim.parameter} that the two datasets' laws need"


def _annotate(axis: Any, x: float, y: float, value: float) -> None:
    axis.annotate(
        f"{value:.3g}",
        (x, y),
        xytext=(10, 9),
        textcoords="offset points",
        fontsize=10,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )
