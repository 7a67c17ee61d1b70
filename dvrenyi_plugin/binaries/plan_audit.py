"""Says how many models an audit needs, before any is trained.

Prints, for a claim of mu-Gaussian DP and each Renyi order: how many models per dataset refute the
claim if the true mu is larger (--true_mu, or --noise_scale), and how many certify a fraction of the
claim if it is exactly true. With --output_dir, also writes plan.json, plan.md and plan.html. Say
with --sequential whether the audit will train in batches. Exit status: 0; 1 after an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from absl import flags

from dvrenyi_plugin.binaries._command import (
    OVERWRITE_MEANING,
    Outcome,
    ProgramFlags,
    end_process,
    real_numbers,
    run_command,
    settings_of,
)
from dvrenyi_plugin.binaries._output_directory import staged_output

_NAME = "plan_audit"


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()

    program.real("mu", 1.0, "claimed mu-Gaussian DP")
    program.real(
        "true_mu", None, "mu that the mechanism is assumed to have; unset: mu / noise_scale"
    )
    program.real(
        "noise_scale", None, "part of the claimed noise that is really added; 0.5 when unset"
    )
    program.orders(["1.25", "2", "4"], "Renyi orders, commas between")
    program.real("failure_probability", 0.05, "of the whole audit")
    program.whole(
        "num_statements", 2, "bounds that share the failure probability: 2 for both directions"
    )
    program.real("fraction", 0.5, "part of a kept claim's epsilon that is to be certified")
    program.words("power", ["0.5", "0.9"], "wanted probabilities of success, commas between")
    program.words(
        "num_models",
        ["100", "250", "500", "1000"],
        "models a world at which the probability to refute is shown",
    )
    program.switch(
        "sequential",
        False,
        "plan an audit in batches that stops once it refutes, as with its --sequential",
    )
    program.whole("batch_models", 20, "with --sequential: models a world between two looks")
    program.text("output_dir", None, "folder for plan.json, plan.md and plan.html")
    program.switch("overwrite", False, OVERWRITE_MEANING)
    return program.values


def main(argv: Sequence[str]) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: program name and flags, as in sys.argv.
    """
    return run_command(_NAME, __doc__ or "", define_flags(), _plan, argv)


def run() -> None:
    """Entry point of the console script: runs on sys.argv and exits."""
    end_process(main(sys.argv))


def _plan(values: flags.FlagValues) -> Outcome:
    # scipy takes a moment to load: not for --help.
    from dvrenyi_plugin.audits.audit_plan import AuditPlanConfig, plan_audit
    from dvrenyi_plugin.reports.plain_json import to_json

    plan = plan_audit(
        AuditPlanConfig(
            mu=values.mu,
            true_mu=_true_mu(values.mu, values.true_mu, values.noise_scale),
            alphas=real_numbers("alphas", values.alphas),
            failure_probability=values.failure_probability,
            num_statements=values.num_statements,
            fraction=values.fraction,
            powers=real_numbers("power", values.power),
            num_models=_counts("num_models", values.num_models),
            sequential=values.sequential,
            batch_models=values.batch_models,
        )
    )
    document = to_json(plan.to_dict())
    if values.output_dir is not None:
        with staged_output(
            values.output_dir,
            marker="plan.json",
            parts=(),
            settings=settings_of(_NAME, values),
            overwrite=values.overwrite,
        ) as staging:
            _write(os.path.join(staging, "plan.md"), plan.to_markdown())
            _write(os.path.join(staging, "plan.html"), plan.to_html())
            _write(os.path.join(staging, "plan.json"), document)
    return Outcome(plan.to_markdown().rstrip("\n"), document)


def _true_mu(mu: float, true_mu: float | None, noise_scale: float | None) -> float:
    if true_mu is not None and noise_scale is not None:
        raise ValueError("only one of true_mu and noise_scale may be given")
    if true_mu is not None:
        return true_mu
    scale = 0.5 if noise_scale is None else noise_scale
    if not scale > 0.0:
        raise ValueError(f"noise_scale must be a finite number > 0, got {scale!r}")
    return mu / scale


def _counts(name: str, words: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words)
    except ValueError:
        raise ValueError(
            f"{name} must be integers with commas between, got {','.join(words)}"
        ) from None


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    run()
