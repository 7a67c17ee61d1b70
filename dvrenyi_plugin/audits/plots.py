"""Pictures of an audit. Colours are of the Okabe-Ito palette, told apart by most colour-blind readers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.audits.dp_sgd.outcome import SequentialOutcome
from dvrenyi_plugin.audits.report_parts import TestedLevel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Critic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#222222"
_DOTS_PER_INCH = 150


def plot_losses(
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    critic: Critic | None,
    *,
    critic_name: str = "fitted critic",
) -> Figure:
    """Returns the histograms of both worlds' canary losses, and under them the critic.

    Args:
      without: canary losses of models trained without the canary, shape (n,), in nats.
      with_canary: those of models trained with it, shape (m,).
      critic: maps losses of shape (k,) to values of shape (k,); None leaves the lower panel out.
      critic_name: title of the lower panel.
    """
    from matplotlib.colors import to_rgb

    panels = 1 if critic is None else 2
    figure, axes = new_figure(panels, height=3.2 + 1.6 * (panels - 1))
    histogram = axes[0]
    both = np.concatenate([without, with_canary])
    edges = np.histogram_bin_edges(both, bins=_num_bins(both.size))
    for losses, colour, hatch, name in (
        (without, BLUE, "", "without the canary"),
        (with_canary, ORANGE, "///", "with the canary"),
    ):
        histogram.hist(
            losses,
            bins=edges,
            histtype="stepfilled",
            facecolor=(*to_rgb(colour), 0.25),
            edgecolor=colour,
            hatch=hatch,
            linewidth=1.6,
            label=f"{name} ({losses.size} models)",
        )
        histogram.axvline(losses.mean(), color=colour, linestyle="--", linewidth=1.2)
    histogram.set_ylabel("models")
    histogram.yaxis.get_major_locator().set_params(integer=True)
    histogram.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 1.2), ncols=2)
    if critic is not None:
        grid = np.linspace(edges[0], edges[-1], 400)
        axes[1].plot(grid, critic(grid), color=GREEN, linewidth=2.0)
        axes[1].axhline(0.0, color=BLACK, linewidth=0.8, linestyle=":")
        axes[1].set_ylabel("critic / nat")
        axes[1].set_title(critic_name, loc="left", fontsize=9, color=GREEN)
    # Losses differ in late digits: whole numbers on the axis, not an offset in its corner.
    axes[-1].ticklabel_format(axis="x", style="plain", useOffset=False)
    axes[-1].locator_params(axis="x", nbins=6)
    axes[-1].set_xlabel("loss of the canary under the trained model / nat (dashed: means)")
    return figure


class BoundedReport(Protocol):
    """What `plot_bound` shows of a report: an audit of DP-SGD or of a sampler."""

    @property
    def claim(self) -> TestedLevel:
        """What was tested."""

    @property
    def lower_bound(self) -> float:
        """Certified lower bound."""

    @property
    def point_estimate(self) -> float:
        """Point estimate, NaN when there is none."""

    @property
    def failure_probability(self) -> float:
        """Of the lower bound."""

    @property
    def refuted(self) -> bool:
        """True when the lower bound exceeds the claim."""


def plot_bound(report: BoundedReport) -> Figure:
    """Returns claim, point estimate and certified lower bound on one axis of epsilon."""
    figure, (axis,) = new_figure(1, height=2.5)
    claim, bound, estimate = report.claim.epsilon, report.lower_bound, report.point_estimate
    largest = max(value for value in (claim, bound, estimate, 1e-12) if math.isfinite(value))
    axis.set_xlim(0.0, 1.15 * largest)
    rows = {
        "claimed epsilon": 2.0,
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
    order = "" if report.claim.alpha is None else f" of order {report.claim.alpha:g}"
    axis.set_xlabel(f"Rényi divergence{order} between the two worlds / nat")
    axis.set_title("claim refuted" if report.refuted else "claim not refuted", fontsize=11)
    return figure


def plot_evidence(outcome: SequentialOutcome) -> Figure:
    """Returns a sequential audit's log e-values against the claim, in both directions, by models a world.

    The claim is refuted when a path reaches the line and so do those of all smaller claims, which as a rule are ahead.
    """
    figure, (axis,) = new_figure(1, height=3.4)
    styles = zip((BLUE, ORANGE), ("o", "s"), outcome.evidence, strict=True)
    for colour, marker, path in styles:
        axis.plot(
            (0, *outcome.models_after_batch),
            (0.0, *path.log_e_values),
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.6,
            label=path.direction,
        )
    axis.axhline(outcome.log_threshold, color=BLACK, linestyle="--", linewidth=1.2)
    axis.annotate(
        "log(1 / failure probability of one direction)",
        (0.0, outcome.log_threshold),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=9,
    )
    axis.set_xlim(0.0, 1.02 * outcome.models_trained_per_world)
    axis.set_ylim(top=1.15 * max(axis.get_ylim()[1], outcome.log_threshold))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(f"models trained a world (at most {outcome.max_models_per_world})")
    axis.set_ylabel("log e-value against the claim / nat")
    axis.legend(frameon=False, loc="best", fontsize=9)
    axis.set_title(outcome.summary(), fontsize=10)
    return figure


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure as PNG and frees it."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=_DOTS_PER_INCH)
    pyplot.close(figure)


def new_figure(panels: int, height: float) -> tuple[Figure, Any]:
    """Returns a figure of stacked panels that share their horizontal axis, and the list of panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratios = [2.0, *[1.0] * (panels - 1)]
    figure, axes = pyplot.subplots(
        panels,
        1,
        figsize=(7.0, height),
        sharex=True,
        squeeze=False,
        height_ratios=ratios,
        layout="constrained",
    )
    for axis in axes[:, 0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[:, 0])


def _num_bins(count: int) -> int:
    return int(np.clip(round(3.0 * count ** (1.0 / 3.0)), 10, 60))


def _annotate(axis: Any, x: float, y: float, value: float) -> None:
    axis.annotate(
        f"{value:.3g}",
        (x, y),
        xytext=(10, 9),
        textcoords="offset points",
        fontsize=10,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )
