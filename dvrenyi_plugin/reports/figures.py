"""Figures that pictures are drawn on.

Colours are of the Okabe-Ito palette, told apart by most colour-blind readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#222222"
_DOTS_PER_INCH = 150


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure as PNG."""
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def new_figure(panels: int, height: float) -> tuple[Figure, Any]:
    """Returns a figure of stacked panels that share their horizontal axis, and its panels."""
    # Not by way of pyplot, which would choose how all figures of the user's process are shown.
    from matplotlib.figure import Figure

    ratios = [2.0, *[1.0] * (panels - 1)]
    figure = Figure(figsize=(7.0, height), layout="constrained")
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=ratios)
    for axis in axes[:, 0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[:, 0])
