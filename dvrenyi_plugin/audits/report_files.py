"""The files an audit leaves behind."""

from __future__ import annotations

import os

import numpy as np

from dvrenyi_plugin.audits.dp_sgd_audit import DpSgdAuditResult, Observations
from dvrenyi_plugin.audits.plots import Critic, plot_bound, plot_losses, save_figure
from dvrenyi_plugin.critics import DvRenyiEstimator, DvRenyiEstimatorConfig

# The one that says the others are complete comes last.
REPORT_FILES = ("observations.npz", "losses.png", "bound.png", "report.md", "report.json")


def write_report_files(result: DpSgdAuditResult, directory: str) -> None:
    """Writes `REPORT_FILES` into an existing folder.

    Raises:
      OSError: a file cannot be written.
    """
    report, observations = result.report, result.observations
    np.savez_compressed(
        os.path.join(directory, "observations.npz"),
        without_canary=observations.without,
        with_canary=observations.with_canary,
    )
    save_figure(
        plot_losses(
            observations.without[:, 0],
            observations.with_canary[:, 0],
            _critic_of_losses(observations, report.claim.alpha or 2.0, report.seed),
            critic_name="critic fitted to these losses: log density ratio, with over without canary",
        ),
        os.path.join(directory, "losses.png"),
    )
    save_figure(plot_bound(report), os.path.join(directory, "bound.png"))
    plots = {
        "Losses of the canary in both worlds, and the fitted critic": "losses.png",
        "Claim, point estimate and certified lower bound": "bound.png",
    }
    _write_text(os.path.join(directory, "report.md"), report.to_markdown(plots))
    _write_text(os.path.join(directory, "report.json"), report.to_json())


def _critic_of_losses(observations: Observations, alpha: float, seed: int) -> Critic | None:
    """Returns a critic of the losses alone, for the picture; None for too few or constant losses."""
    without, with_canary = observations.without[:, :1], observations.with_canary[:, :1]
    if len(without) < 10 or np.ptp(np.concatenate([without, with_canary])) == 0.0:
        return None
    config = DvRenyiEstimatorConfig(alpha=alpha, seed=seed)
    critic: Critic = DvRenyiEstimator(config).estimate(with_canary, without).critic
    return critic


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
