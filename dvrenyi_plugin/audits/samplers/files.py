"""The files an audit of a sampler leaves behind."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dvrenyi_plugin.audits.pictures import Picture, draw_pictures
from dvrenyi_plugin.audits.plots import plot_bound
from dvrenyi_plugin.audits.samplers.audit import ShkAuditResult
from dvrenyi_plugin.audits.samplers.plots import (
    FlowCurves,
    flow_curves,
    plot_densities,
    plot_distance_to_target,
    plot_log_ratio,
)
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism
from dvrenyi_plugin.mechanisms.exponential.grid import GridMechanism

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_shk_report_files(
    result: ShkAuditResult,
    mechanism: GridMechanism,
    pair: NeighboringDatasets[Any],
    directory: str,
) -> None:
    """Writes observations.npz, the pictures, report.md and, last, report.json into an existing folder.

    A mechanism without a flow (the exponential mechanism) has the picture of the bound only. Instead of a picture that
    cannot be drawn the report has a line that says so.

    Raises:
      OSError: a file cannot be written.
    """
    np.savez_compressed(
        os.path.join(directory, "observations.npz"),
        dataset1=result.samples1,
        dataset2=result.samples2,
    )
    pictures = [
        Picture(
            "bound.png",
            "Claim, point estimate and certified lower bound",
            lambda: plot_bound(result.report),
        )
    ]
    if isinstance(mechanism, FlowMechanism):
        curves = functools.cache(lambda: flow_curves(mechanism, pair))
        pictures += [
            Picture(name, caption, functools.partial(_draw, plot, curves))
            for name, caption, plot in (
                ("densities.png", "Density of the release over time", plot_densities),
                ("log_ratio.png", "Log ratio over time under its envelopes", plot_log_ratio),
                ("kl.png", "Distance to the target over time", plot_distance_to_target),
            )
        ]
    gallery = draw_pictures(pictures, directory)
    for name, text in (
        ("report.md", result.report.to_markdown(gallery)),
        ("report.json", result.report.to_json()),
    ):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


def _draw(plot: Callable[[FlowCurves], Figure], curves: Callable[[], FlowCurves]) -> Figure:
    return plot(curves())
