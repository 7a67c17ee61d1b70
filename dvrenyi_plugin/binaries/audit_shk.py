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

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin._internal.validation import check_choice
from dvrenyi_plugin.binaries._command import (
    EXIT_OK,
    EXIT_REFUTED,
    OVERWRITE_MEANING,
    Outcome,
    ProgramFlags,
    end_process,
    real_numbers,
    run_command,
    settings_of,
)
from dvrenyi_plugin.binaries._output_directory import staged_output

_NAME = "audit_shk"
_TESTERS = ("sequential", "dv", "threshold")


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()

    program.text(
        "mechanism",
        "shk",
        "shk, exponential, langevin, or a broken one: shk_wrong_temperature, shk_data_dependent_start,"
        " shk_understated_sensitivity",
    )
    program.text("loss", "circular_mean", "circular_mean, mean, median or logistic")
    program.text(
        "pair",
        "extreme",
        "extreme (one record moved from end to end), random, or an .npz file with arrays dataset1, dataset2",
    )
    program.whole("num_records", 20, "public number of records")
    program.real("inverse_temperature", 5.0, "beta: the target is exp(-beta loss)")
    program.real("run_time", 6.0, "flow time t")
    program.whole("num_steps", None, "steps of the splitting; unset: ten a unit of time")
    program.whole("cells", None, "grid cells of every axis; unset: the dimension decides")
    program.orders(["2"], "Renyi orders at which the claim is tested, commas between")
    program.text("tester", "sequential", "sequential, dv or threshold")
    program.whole("num_samples", 20_000, "releases a dataset")
    program.real(
        "failure_probability", 0.05, "of the whole audit, over all orders and both directions"
    )
    program.whole("seed", 0, "root of every random stream")
    program.text("output_dir", None, "folder for the report; required")
    program.switch("overwrite", False, OVERWRITE_MEANING)
    program.switch("fail_on_violation", False, "exit with status 2 when the claim is refuted")
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
    alphas = real_numbers("alphas", values.alphas)
    check_choice("tester", values.tester, _TESTERS)
    with staged_output(
        values.output_dir or "",
        marker="report.json",
        settings=settings_of(_NAME, values),
        overwrite=values.overwrite,
    ) as staging:
        # scipy and the testers take a second to load: not before the flags are known to be good.
        from dvrenyi_plugin.audits.samplers.audit import ShkAuditConfig, audit_grid_mechanism
        from dvrenyi_plugin.audits.samplers.experiment import (
            ShkExperimentConfig,
            build_shk_experiment,
        )
        from dvrenyi_plugin.audits.samplers.files import write_shk_report_files
        from dvrenyi_plugin.testers.registry import make

        config = ShkAuditConfig(
            num_samples=values.num_samples,
            failure_probability=values.failure_probability,
            alphas=alphas,
            seed=values.seed,
        )
        experiment = build_shk_experiment(
            ShkExperimentConfig(
                mechanism=values.mechanism,
                loss=values.loss,
                pair=values.pair,
                num_records=values.num_records,
                inverse_temperature=values.inverse_temperature,
                run_time=values.run_time,
                num_steps=values.num_steps,
                cells=values.cells,
                alphas=alphas,
                seed=values.seed,
            )
        )
        result = audit_grid_mechanism(
            experiment.mechanism,
            functools.partial(make, values.tester, seed=experiment.tester_seed),
            experiment.pair,
            config,
            settings=experiment.settings | {"tester": values.tester},
        )
        write_shk_report_files(result, experiment.mechanism, experiment.pair, staging)
    report = result.report
    failed = report.refuted and values.fail_on_violation
    return Outcome(
        f"{report.summary()}\nreport                 {escape(values.output_dir)}/report.md",
        report.to_json(),
        EXIT_REFUTED if failed else EXIT_OK,
    )


if __name__ == "__main__":
    run()
