"""The files an audit leaves behind."""

from __future__ import annotations

import os

import numpy as np

from dvrenyi_plugin.audits.dp_sgd.audit import DpSgdAuditResult
from dvrenyi_plugin.audits.dp_sgd.training import Observations
from dvrenyi_plugin.audits.pictures import Picture, draw_pictures
from dvrenyi_plugin.audits.plots import Critic, plot_bound, plot_evidence, plot_losses
from dvrenyi_plugin.critics.simple_families import fit_log_ratio

# The one that says the others are complete comes last.
REPORT_FILES = ("observations.npz", "losses.png", "bound.png", "report.md", "report.json")
# Written beside them by a sequential audit.
EVIDENCE_FILE = "evidence.png"


def write_report_files(result: DpSgdAuditResult, directory: str) -> None:
    """Writes `REPORT_FILES`, and `EVIDENCE_FILE` for a sequential audit, into an existing folder. Instead of a picture that
    cannot be drawn the report has a line that says so.

    Raises:
      OSError: a file cannot be written.
    """
    report, observations = result.report, result.observations
    np.savez_compressed(
        os.path.join(directory, "observations.npz"),
        without_canary=observations.without,
        with_canary=observations.with_canary,
    )
    pictures = [
        Picture(
            "losses.png",
            "Losses of the canary in both worlds, and the fitted critic",
            lambda: plot_losses(
                observations.without[:, 0],
                observations.with_canary[:, 0],
                _critic_of_losses(observations),
                critic_name="critic fitted to these losses: log density ratio, with over without the canary",
            ),
        ),
        Picture(
            "bound.png",
            "Claim, point estimate and certified lower bound",
            lambda: plot_bound(report),
        ),
    ]
    outcome = report.sequential
    if outcome is not None:
        pictures.append(
            Picture(
                EVIDENCE_FILE,
                "Evidence against the claim while models were trained",
                lambda: plot_evidence(outcome),
            )
        )
    gallery = draw_pictures(pictures, directory)
    _write_text(os.path.join(directory, "report.md"), report.to_markdown(gallery))
    _write_text(os.path.join(directory, "report.json"), report.to_json())


def _critic_of_losses(observations: Observations) -> Critic | None:
    """Returns the log density ratio fitted to the losses alone, for the picture; None if all are equal."""
    without, with_canary = observations.without[:, :1], observations.with_canary[:, :1]
    if np.ptp(np.concatenate([without, with_canary])) == 0.0:
        return None
    log_ratio, _ = fit_log_ratio(with_canary, without)
    return lambda losses: log_ratio(losses[:, np.newaxis])


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
