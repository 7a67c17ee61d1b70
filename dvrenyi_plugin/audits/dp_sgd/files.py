"""The files that an audit of DP-SGD leaves behind."""

from __future__ import annotations

import numpy as np

from dvrenyi_plugin.audits.audit import AuditResult
from dvrenyi_plugin.audits.directions import Samples
from dvrenyi_plugin.audits.dp_sgd.plots import Critic, plot_losses
from dvrenyi_plugin.critics.simple_families import fit_log_ratio
from dvrenyi_plugin.reports.files import write_report
from dvrenyi_plugin.reports.pictures import Picture

LOSSES_FILE = "losses.png"


def write_report_files(result: AuditResult, directory: str) -> None:
    """Writes the report, its observations and its pictures into an existing folder.

    Raises:
      OSError: a file cannot be written.
    """
    with_canary, without = result.samples
    losses = Picture(
        LOSSES_FILE,
        "Losses of the canary with and without it in the training data, and the fitted critic",
        lambda: plot_losses(
            without[:, 0],
            with_canary[:, 0],
            _critic_of_losses(result.samples),
            critic_name="critic fitted to these losses: log density ratio, with over without the"
            " canary",
        ),
    )
    write_report(
        result.report,
        {"without_canary": without, "with_canary": with_canary},
        [losses],
        directory,
    )


def _critic_of_losses(samples: Samples) -> Critic | None:
    """Returns the log density ratio fitted to the losses alone; None if all of them are equal."""
    with_canary, without = (rows[:, :1] for rows in samples)
    if np.ptp(np.concatenate([without, with_canary])) == 0.0:
        return None
    log_ratio, _ = fit_log_ratio(with_canary, without)
    return lambda losses: log_ratio(losses[:, np.newaxis])
