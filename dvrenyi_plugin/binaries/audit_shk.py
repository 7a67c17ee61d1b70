"""Audits the certificate of an exponential-mechanism sampler, from a pair of datasets to verdict.

Draws many releases on two neighbouring datasets and writes report.json, report.md, report.html,
observations.npz and pictures into --output_dir: the certificate, the exact divergence of the
program as run, a point estimate, a certified lower bound, the utility. Exit status: 0; 1 after an
error; with --fail_on_violation, 2 when the claim is refuted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from absl import flags

from dvrenyi_plugin._internal.validation import check_choice
from dvrenyi_plugin.audits.samplers.settings import ShkAuditConfig, ShkExperimentConfig
from dvrenyi_plugin.binaries._command import (
    Outcome,
    audit_outcome,
    end_process,
    run_command,
    staged_report,
)
from dvrenyi_plugin.binaries._flags import ProgramFlags, settings_from
from dvrenyi_plugin.testers.registry import make

_NAME = "audit_shk"
_TESTERS = ("auto", "sequential", "dv", "threshold")


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.settings(ShkExperimentConfig)
    program.alias("alpha", "alphas")
    program.settings(ShkAuditConfig)
    program.text(
        "tester",
        "auto",
        f"what certifies: {', '.join(_TESTERS)}; auto: sequential, with one tenth of the failure"
        " probability, beside the certificate's whole trade-off curve",
    )
    program.audit_report()
    return program.values


def main(argv: Sequence[str]) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: program name and flags, as in sys.argv.
    """
    return run_command(_NAME, __doc__ or "", define_flags(), _audit, argv)


def run() -> None:
    """Entry point of the console script: runs on sys.argv and exits."""
    end_process(main(sys.argv))


def _audit(values: flags.FlagValues) -> Outcome:
    with staged_report(_NAME, values) as staging:
        tester = check_choice("tester", values.tester, _TESTERS)
        config = settings_from(values, ShkAuditConfig)
        settings = settings_from(values, ShkExperimentConfig)
        # scipy and the testers are slow to load: not before the flags are known to be good.
        from dvrenyi_plugin.audits.samplers.audit import audit_grid_mechanism
        from dvrenyi_plugin.audits.samplers.experiment import build_shk_experiment
        from dvrenyi_plugin.audits.samplers.files import write_shk_report_files

        experiment = build_shk_experiment(settings)
        result = audit_grid_mechanism(
            experiment.mechanism,
            functools.partial(
                make, "sequential" if tester == "auto" else tester, seed=experiment.tester_seed
            ),
            experiment.pair,
            config,
            make_curve_tester=(
                functools.partial(make, "trade_off", seed=experiment.tester_seed)
                if tester == "auto"
                else None
            ),
            settings=experiment.settings | {"tester": tester},
        )
        write_shk_report_files(result, experiment.mechanism, experiment.pair, staging)
    return audit_outcome(result.report, values)


if __name__ == "__main__":
    run()
