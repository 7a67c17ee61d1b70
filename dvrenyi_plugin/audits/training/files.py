"""The files that an audit of trained models leaves behind."""

from __future__ import annotations

import numpy as np

from dvrenyi_plugin.audits.audit import AuditResult
from dvrenyi_plugin.audits.directions import Samples
from dvrenyi_plugin.audits.training.plots import Critic, plot_losses
from dvrenyi_plugin.audits.training.sections import CANARY_LOSSES, Observed
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.reports.files import write_report
from dvrenyi_plugin.reports.pictures import Picture


def write_report_files(
    result: AuditResult, directory: str, observed: Observed = CANARY_LOSSES, column: int = 0
) -> None:
    """Writes the report, its observations and its pictures into an existing folder.

    Args:
      result: of the audit.
      directory: files of the same names are replaced.
      observed: what is observed of a model.
      column: of the observations, which is drawn.

    Raises:
      OSError: a file cannot be written.
    """
    with_canary, without = result.samples
    picture = Picture(
        observed.file,
        observed.caption,
        lambda: plot_losses(
            without[:, column],
            with_canary[:, column],
            _critic_of(result.samples, column),
            critic_name=f"critic fitted to these {observed.key}: log density ratio, with over"
            " without the canary",
            axis_name=observed.axis,
        ),
    )
    write_report(
        result.report,
        {"without_canary": without, "with_canary": with_canary},
        [picture],
        directory,
    )


def _critic_of(samples: Samples, column: int) -> Critic | None:
    """Returns the log density ratio fitted to one column alone; None if all of it is equal."""
    with_canary, without = (rows[:, [column]] for rows in samples)
    if np.ptp(np.concatenate([without, with_canary])) == 0.0:
        return None
    log_ratio, _ = fit_log_ratio(with_canary, without)
    return lambda numbers: log_ratio(numbers[:, np.newaxis])
