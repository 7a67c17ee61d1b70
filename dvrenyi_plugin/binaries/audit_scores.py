"""Audits a privacy claim from scores that were recorded of trained models.

    dvrenyi-audit-scores scores.csv --claim=mu=1 --output_dir=my_audit

The file has a row for each model: a column "side" that says whether the record was in its training
data (with or without), one or more columns of scores (losses, logits), and, if models have names, a
column "id". CSV, Parquet (with pyarrow) and .npz are read. No row is dropped: what is missing or on
one side only is said, and a model that stands twice is an error. Writes report.json, report.md,
report.html, observations.npz and pictures into --output_dir. Exit status: 0; 1 after an error; with
--fail_on_violation, 2 when the claim is refuted; 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import flags

from dvrenyi_plugin.audits.training.settings import RecordedAuditConfig
from dvrenyi_plugin.binaries._command import (
    Outcome,
    audit_outcome,
    end_process,
    run_command,
    staged_report,
)
from dvrenyi_plugin.binaries._flags import ProgramFlags, settings_from

_NAME = "audit_scores"


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.text("scores", None, "file of recorded scores; may stand without --scores=")
    program.texts(
        "join", "further file with other scores of the same models, joined by side and id"
    )
    program.text("side_column", "side", "column that says with or without (in or out, 1 or 0)")
    program.text("id_column", "id", "column that tells models apart, if there is one; empty: none")
    program.words("score_columns", (), "columns of scores; unset: all others")
    program.tested_claim()
    program.settings(RecordedAuditConfig)
    program.audit_report()
    return program.values


def main(argv: Sequence[str]) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: program name and flags, as in sys.argv.
    """
    return run_command(_NAME, __doc__ or "", define_flags(), _audit, argv, positional="scores")


def run() -> None:
    """Entry point of the console script: runs on sys.argv and exits."""
    end_process(main(sys.argv))


def _audit(values: flags.FlagValues) -> Outcome:
    with staged_report(_NAME, values) as staging:
        config = settings_from(values, RecordedAuditConfig)
        if not values.scores:
            raise ValueError("scores is required: a file, such as scores.csv")
        # Tests and pictures need scipy and matplotlib: not before the flags are read.
        from dvrenyi_plugin.audits.training.audit import write_training_report
        from dvrenyi_plugin.audits.training.recorded import run_scores_audit
        from dvrenyi_plugin.data.score_columns import ScoreColumns
        from dvrenyi_plugin.data.score_files import read_scores

        columns = ScoreColumns(
            side=values.side_column,
            id=values.id_column or None,
            scores=tuple(values.score_columns),
        )
        recorded = read_scores([values.scores, *values.join], columns)
        result = run_scores_audit(recorded, values.claim, config)
        write_training_report(result, staging)
    return audit_outcome(result.report, values)


if __name__ == "__main__":
    run()
