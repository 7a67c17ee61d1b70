"""Says how many models an audit needs, before any is trained.

Prints, for a claim of mu-Gaussian DP, for its whole trade-off curve and for each Renyi order: how
many models per dataset refute the claim if the true mu is larger (--true_mu, or --noise_scale), and
how many certify a fraction of the claim if it is exactly true. With --output_dir, also writes
plan.json, plan.md and plan.html. Say with --sequential whether the audit will train in batches.
Exit status: 0; 1 after an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from absl import flags

from dvrenyi_plugin.audits.dp_sgd.settings import settings_of_claim
from dvrenyi_plugin.audits.settings import AuditPlanConfig
from dvrenyi_plugin.binaries._command import Outcome, end_process, run_command, staged_report
from dvrenyi_plugin.binaries._flags import (
    OVERWRITE_MEANING,
    ProgramFlags,
    settings_from,
    unless_given,
)

_NAME = "plan_audit"


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.text(
        "claim",
        None,
        "what is claimed, in place of mu, by full batches: mu=1; epsilon=8,delta=1e-5; rho=0.5;"
        " or renyi:alpha=2,epsilon=1",
    )
    program.real(
        "true_mu", None, "mu that the mechanism is assumed to have; unset: mu / noise_scale"
    )
    program.real(
        "noise_scale", None, "part of the claimed noise that is really added; 0.5 when unset"
    )
    program.settings(AuditPlanConfig, mu=1.0)
    program.alias("alpha", "alphas")
    program.alias("power", "powers")
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
    mu = values.mu if values.claim is None else _claimed_mu(values)
    true_mu = _true_mu(mu, values.true_mu, values.noise_scale)
    config = settings_from(values, AuditPlanConfig, mu=mu, true_mu=true_mu)
    # scipy is slow to load: not before the flags are known to be good.
    from dvrenyi_plugin.audits.audit_plan import plan_audit
    from dvrenyi_plugin.reports.plain_json import to_json

    plan = plan_audit(config)
    document = to_json(plan.to_dict())
    if values.output_dir is not None:
        with staged_report(_NAME, values, marker="plan.json", parts=()) as staging:
            _write(os.path.join(staging, "plan.md"), plan.to_markdown())
            _write(os.path.join(staging, "plan.html"), plan.to_html())
            _write(os.path.join(staging, "plan.json"), document)
    return Outcome(plan.to_markdown().rstrip("\n") + _reading(values, mu), document)


def _reading(values: flags.FlagValues, mu: float) -> str:
    """Returns how a claim of (epsilon, delta) was read; empty for others."""
    if values.claim is None or "delta" not in settings_of_claim(values.claim):
        return ""
    from dvrenyi_plugin.audits.training.experiment import claimed_property, fewest_models

    fewest = fewest_models(claimed_property(values.claim), "both", values.failure_probability)
    return (
        f"\n\nThe claim {values.claim} was read as that of Gaussian noise, mu = {mu:.4g}: the plan"
        f" is of an audit with --claim=mu={mu:.4g}, as dvrenyi-audit-dpsgd makes it. Where nothing"
        " is known of the noise, as with dvrenyi-audit-training, (epsilon, delta) alone takes at"
        f" least {fewest:,.0f} models per dataset to refute."
    )


def _claimed_mu(values: flags.FlagValues) -> float:
    unless_given(values, "claim", {"mu"})
    settings = settings_of_claim(values.claim)
    if "sample_rate" in settings:
        raise ValueError(
            f"claim must be one of full batches, which Gaussian DP describes, got {values.claim!r}"
        )
    if "delta" in settings:
        from dvrenyi_plugin.privacy.conversions import gaussian_dp_mu

        return gaussian_dp_mu(settings["epsilon"], settings["delta"])
    return float(settings["mu"])


def _true_mu(mu: float, true_mu: float | None, noise_scale: float | None) -> float:
    if true_mu is not None and noise_scale is not None:
        raise ValueError("only one of true_mu and noise_scale may be given")
    if true_mu is not None:
        return true_mu
    scale = 0.5 if noise_scale is None else noise_scale
    if not scale > 0.0:
        raise ValueError(f"noise_scale must be a finite number > 0, got {scale!r}")
    return mu / scale


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    run()
