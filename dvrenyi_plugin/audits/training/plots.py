"""The picture of an audit of trained models: what was observed, and the critic fitted to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.audits.training.sections import CANARY_LOSSES
from dvrenyi_plugin.reports.figures import BLACK, BLUE, GREEN, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Critic = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def plot_losses(
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    critic: Critic | None,
    *,
    critic_name: str = "fitted critic",
    axis_name: str = CANARY_LOSSES.axis,
) -> Figure:
    """Returns the histograms of one number a model, such as the canary's loss, and under them the
    critic.

    Args:
      without: canary losses of models trained without the canary, shape (n,), in nats.
      with_canary: those of models trained with it, shape (m,).
      critic: maps losses of shape (k,) to values of shape (k,); None leaves the lower panel out.
      critic_name: title of the lower panel.
      axis_name: what the numbers are.
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
    axes[-1].set_xlabel(f"{axis_name} (dashed: means)")
    return figure


def _num_bins(count: int) -> int:
    return int(np.clip(round(3.0 * count ** (1.0 / 3.0)), 10, 60))
