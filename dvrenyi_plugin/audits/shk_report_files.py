"""The files an audit of a sampler leaves behind."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dvrenyi_plugin.audits.plots import plot_bound, save_figure
from dvrenyi_plugin.audits.shk_audit import ShkAuditResult
from dvrenyi_plugin.audits.shk_plots import (
    flow_curves,
    plot_densities,
    plot_distance_to_target,
    plot_log_ratio,
)
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.flow_mechanism import FlowMechanism
from dvrenyi_plugin.mechanisms.grid_mechanism import GridMechanism


def write_shk_report_files(
    result: ShkAuditResult,
    mechanism: GridMechanism,
    pair: NeighboringDatasets[Any],
    directory: str,
) -> None:
    """Writes observations.npz, the pictures, report.md and, last, report.json into an existing folder.

    A mechanism without a flow (the exponential mechanism) has the picture of the bound only.

    Raises:
      OSError: a file cannot be written.
    """
    np.savez_compressed(
        os.path.join(directory, "observations.npz"),
        dataset1=result.samples1,
        dataset2=result.samples2,
    )
    save_figure(plot_bound(result.report), os.path.join(directory, "bound.png"))
    plots = {"Claim, point estimate and certified lower bound": "bound.png"}
    if isinstance(mechanism, FlowMechanism):
        curves = flow_curves(mechanism, pair)
        for name, caption, figure in (
            ("densities.png", "Density of the release over time", plot_densities(curves)),
            ("log_ratio.png", "Log ratio over time under its envelopes", plot_log_ratio(curves)),
            ("kl.png", "Distance to the target over time", plot_distance_to_target(curves)),
        ):
            save_figure(figure, os.path.join(directory, name))
            plots[caption] = name
    for name, text in (
        ("report.md", result.report.to_markdown(plots)),
        ("report.json", result.report.to_json()),
    ):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
