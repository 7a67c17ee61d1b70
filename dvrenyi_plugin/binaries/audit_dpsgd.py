"""Audits the privacy claim of DP-SGD on real images, from data to verdict.

Trains many models on a dataset D and as many on D plus a canary, compares the canary's losses, and
writes report.json, report.md, report.html, observations.npz and pictures into --output_dir. Models
are kept as they finish: a run that was interrupted goes on from them when it is started again. Exit
status: 0; 1 after an error; with --fail_on_violation, 2 when the claim is refuted; 130 after
Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.dp_sgd.settings import (
    DpSgdAuditConfig,
    DpSgdExperimentConfig,
    settings_of_claim,
)
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.settings import ModelTrainingConfig
from dvrenyi_plugin.binaries._command import (
    Outcome,
    audit_outcome,
    end_process,
    run_command,
    staged_report,
)
from dvrenyi_plugin.binaries._flags import (
    ProgramFlags,
    numbers,
    settings_from,
    unless_given,
)

_NAME = "audit_dpsgd"
# What the engine decides, what the store decides, and what --quiet decides.
_NO_TRAINING_FLAGS = ("models_per_task", "num_observed_columns", "show_progress")
_NO_SEQUENTIAL_FLAGS = ("futility_probability",)


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.words("alphas", ["2"], "Rényi order at which the claim is tested, > 1; one.")
    program.alias("alpha", "alphas")
    program.text(
        "claim",
        None,
        "what is claimed, in place of mu, noise_multiplier, or epsilon and delta: mu=1;"
        " epsilon=8,delta=1e-5; rho=0.5; renyi:alpha=2,epsilon=1; or"
        " noise_multiplier=1.1,sample_rate=0.01,steps=1000",
    )
    program.settings(DpSgdExperimentConfig, leave_out=("alpha",))
    program.settings(DpSgdAuditConfig, leave_out=("training",))
    program.settings(ModelTrainingConfig, leave_out=_NO_TRAINING_FLAGS, num_workers=2)
    program.switch(
        "sequential",
        False,
        "train in batches and stop as soon as the claim is refuted; not with --tester=dv",
    )
    program.settings(SequentialAuditConfig, leave_out=_NO_SEQUENTIAL_FLAGS)
    program.text(
        "store",
        None,
        "file that keeps the trained models; unset: one in output_dir, named after the experiment",
    )
    program.switch(
        "resume",
        True,
        "use the models in the store; if not, they are trained again and compared with it",
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
        claimed: dict[str, Any] = {}
        if values.claim is not None:
            claimed = settings_of_claim(values.claim)
            names = {"alphas" if name == "alpha" else name for name in claimed}
            unless_given(values, "claim", names | {"mu", "noise_multiplier", "epsilon", "delta"})
        claimed = {"alpha": _one_order(values.alphas), **claimed}
        settings = settings_from(values, DpSgdExperimentConfig, **claimed)
        sequential = settings_from(values, SequentialAuditConfig, _NO_SEQUENTIAL_FLAGS)
        if values.futility_mu is not None and not values.sequential:
            raise ValueError("futility_mu needs --sequential")
        training = settings_from(
            values,
            ModelTrainingConfig,
            # What trains one model after another has nothing to win from reporting back late.
            models_per_task=10 if values.engine == "ensemble" else 1,
            num_observed_columns=None,
            show_progress=not values.quiet,
        )
        config = settings_from(values, DpSgdAuditConfig, training=training)
        # Torch and opacus take seconds to load: not before the flags are known to be good.
        from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
        from dvrenyi_plugin.audits.training.files import write_report_files

        experiment = build_dp_sgd_experiment(
            settings,
            keep_in=os.path.dirname(values.store) or "." if values.store else values.output_dir,
            resume=values.resume,
            show_progress=True,
        )
        result = _audit_with_store(
            experiment, config, sequential if values.sequential else None, values
        )
        write_report_files(result, staging)
    return audit_outcome(result.report, values)


def _one_order(words: Sequence[str]) -> float:
    orders: tuple[float, ...] = numbers("alphas", float, words)
    if len(orders) != 1:
        raise ValueError(f"alphas must be one order for this audit, got {','.join(words)}")
    return orders[0]


def _audit_with_store(
    experiment: Any,
    config: DpSgdAuditConfig,
    sequential: SequentialAuditConfig | None,
    values: flags.FlagValues,
) -> Any:
    from dvrenyi_plugin.audits.dp_sgd.audit import audit_dp_sgd
    from dvrenyi_plugin.execution.observation_store import open_store

    mechanism, columns = experiment.with_logits_recorded()
    training = dataclasses.replace(config.training, num_observed_columns=columns)
    with open_store(
        values.store, values.output_dir, mechanism, experiment.pair, resume=values.resume
    ) as store:
        if store.count() and values.resume and not values.quiet:
            kept = f"{store.count()} models of this experiment were kept in {store.path}"
            print(f"{_NAME}: {escape(kept)}", file=sys.stderr)
        try:
            return audit_dp_sgd(
                mechanism,
                experiment.claims,
                experiment.pair,
                dataclasses.replace(config, training=training),
                sequential,
                claimed_mu=experiment.claimed_mu,
                noise_free_shift=experiment.noise_free_shift,
                settings={**experiment.settings, "fingerprint": store.fingerprint},
                notes=experiment.notes,
                store=store,
            )
        except KeyboardInterrupt as interrupt:
            kept = f"{store.count()} models are kept in {store.path}"
            interrupt.args = (f"{kept}, the same command goes on",)
            raise


if __name__ == "__main__":
    run()
