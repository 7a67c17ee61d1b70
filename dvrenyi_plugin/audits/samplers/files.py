"""The files that an audit of a sampler leaves behind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from dvrenyi_plugin.reports.files import write_report
from dvrenyi_plugin.reports.pictures import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of samplers that have a flow.
FLOW_FILES = ("densities.png", "log_ratio.png", "kl.png")


def write_shk_report_files(
    result: ShkAuditResult,
    mechanism: GridMechanism,
    pair: NeighboringDatasets[Any],
    directory: str,
) -> None:
    """Writes the report, its observations and its pictures into an existing folder.

    A mechanism without a flow (the exponential mechanism) has no pictures of its own.

    Raises:
      OSError: a file cannot be written.
    """
    pictures = []
    if isinstance(mechanism, FlowMechanism):
        curves = functools.cache(lambda: flow_curves(mechanism, pair))
        captions_and_plots = (
            ("Density of the release over time", plot_densities),
            ("Log ratio over time under its envelopes", plot_log_ratio),
            ("Distance to the target over time", plot_distance_to_target),
        )
        pictures = [
            Picture(name, caption, functools.partial(_draw, plot, curves))
            for name, (caption, plot) in zip(FLOW_FILES, captions_and_plots, strict=True)
        ]
    observations = {"dataset1": result.samples1, "dataset2": result.samples2}
    write_report(result.report, observations, pictures, directory)


def _draw(plot: Callable[[FlowCurves], Figure], curves: Callable[[], FlowCurves]) -> Figure:
    return plot(curves())
