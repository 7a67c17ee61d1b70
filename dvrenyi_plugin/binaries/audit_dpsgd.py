"""Audits the privacy claim of DP-SGD on real images, from data to verdict.

Trains many models on a dataset D and as many on D plus a canary, compares the canary's losses, and
writes report.json, report.md, report.html, observations.npz and pictures into --output_dir. Models
are kept as they finish: a run that was interrupted goes on from them when it is started again. Exit
status: 0; 1 after an error; with --fail_on_violation, 2 when the claim is refuted; 130 after
Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Sequence

from absl import flags

from dvrenyi_plugin._internal.text import escape
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

_NAME = "audit_dpsgd"


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()

    program.text(
        "dataset",
        "mnist5k",
        "mnist5k, digits, mnist, fashion_mnist, cifar10, torchvision:NAME or a path ending in .npz",
    )
    program.text(
        "data_dir",
        None,
        "folder of the files of mnist, fashion_mnist (IDX), cifar10 (binary) or torchvision:NAME",
    )
    program.text("model", "mlp", "mlp, logistic, cnn or cifar_cnn")
    program.whole("num_records", 100, "records in D")
    program.whole(
        "num_models",
        200,
        "trained models a world (D, and D plus canary); the most that are trained with --sequential",
    )
    program.whole("steps", 100, "DP-SGD steps a model")
    program.real("sample_rate", 1.0, "1 for full batches, else the rate of Poisson batches")
    program.real("mu", None, "claimed mu-Gaussian DP; sets the noise; 1.0 when no claim is given")
    program.real(
        "noise_multiplier", None, "claim given as noise over clipping norm, in place of --mu"
    )
    program.real(
        "epsilon", None, "claim given as (epsilon, delta), in place of --mu; sets the noise"
    )
    program.real("delta", None, "beside --epsilon")
    program.real(
        "noise_scale", 1.0, "multiplies the noise that is really added; below 1 breaks the claim"
    )
    program.text(
        "defect",
        "none",
        "breaks the training and not the claim: no_clipping, noise_every_fourth_step, mean_by_private_count",
    )
    program.orders(["2"], "Renyi order at which the claim is tested, one")
    program.real("failure_probability", 0.05, "of the whole audit, over both directions")
    program.real("learning_rate", 4.0 / 30_000.0, "of DP-SGD, on summed gradients")
    program.real(
        "clip_norm", 1.0, "L2 norm that gradients are clipped to; the noise is in its units"
    )
    program.text(
        "canary", "blank", "blank, clipbkd, mislabelled, random or the path of an .npy file"
    )
    program.whole(
        "canary_label", None, "class of the canary; unset: the initial model's least likely one"
    )
    program.whole(
        "num_canaries",
        1,
        "copies of the canary; above 1 the claim for groups of that many is tested",
    )
    program.text(
        "observe",
        "loss",
        "what the tester sees: loss, logits (beside the loss) or white_box (inner product with its gradient)",
    )
    program.text(
        "initial_weights",
        "worst_case",
        "worst_case (pretrained on records that are not audited), random, or a state_dict file",
    )
    program.whole(
        "max_pretraining_records", 10_000, "most records that the initial model is pretrained on"
    )
    program.whole("pretraining_epochs", 5, "passes over the records that are not audited")
    program.real("pretraining_learning_rate", 0.1, "of the training on these")
    program.text(
        "engine",
        "ensemble",
        "ensemble (many models at once), opacus or tf_privacy (one after another)",
    )
    program.text("device", "cpu", "where the ensemble trains: cpu, cuda, cuda:1 and so on")
    program.text(
        "tester", "sequential", "sequential (e-process, stronger) or dv (neural critic on a split)"
    )
    program.words(
        "critic_widths", ["100", "100"], "with --tester=dv: widths of the critic's hidden layers"
    )
    program.real("ema_rate", 0.99, "with --tester=dv: rate of the moving average in its training")
    program.whole(
        "num_critics",
        1,
        "with --tester=dv: critics, each with its own seed, behind the point estimate",
    )
    program.switch(
        "sequential",
        False,
        "train in batches and stop as soon as the claim is refuted; needs --tester=sequential",
    )
    program.whole("batch_models", 20, "with --sequential: models a world between two looks")
    program.real(
        "futility_mu",
        None,
        "with --sequential: also stop when even a true mu this large would hardly refute the claim any more;"
        " unset: never",
    )
    program.whole("num_workers", 2, "worker processes; the result does not depend on it")
    program.text(
        "backend", "loky", "loky (processes), threading, serial, or a cluster: dask or ray"
    )
    program.text(
        "scheduler",
        None,
        "address of a running cluster, such as tcp://host:8786 (dask) or auto (ray); unset: one is started here",
    )
    program.text(
        "store",
        None,
        "file that keeps the trained models; unset: one in output_dir that is named after the experiment",
    )
    program.switch(
        "resume",
        True,
        "use the models in the store; if not, they are trained again and compared with it",
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
    alpha = _one_order(values.alphas)
    with staged_output(
        values.output_dir or "",
        marker="report.json",
        settings=settings_of(_NAME, values),
        overwrite=values.overwrite,
    ) as staging:
        # Torch and opacus take seconds to load: not before the flags are known to be good.
        from dvrenyi_plugin.audits.dp_sgd.audit import DpSgdAuditConfig, audit_dp_sgd
        from dvrenyi_plugin.audits.dp_sgd.experiment import (
            DpSgdExperimentConfig,
            build_dp_sgd_experiment,
        )
        from dvrenyi_plugin.audits.dp_sgd.files import write_report_files
        from dvrenyi_plugin.audits.dp_sgd.sequential import (
            SequentialAuditConfig,
            audit_dp_sgd_sequentially,
        )
        from dvrenyi_plugin.audits.dp_sgd.training import ModelTrainingConfig
        from dvrenyi_plugin.execution.observation_store import open_store

        if values.futility_mu is not None and not values.sequential:
            raise ValueError("futility_mu needs --sequential")
        batches = SequentialAuditConfig(
            batch_models=values.batch_models, futility_mu=values.futility_mu
        )
        audit_config = DpSgdAuditConfig(
            num_models=values.num_models,
            failure_probability=values.failure_probability,
            training=ModelTrainingConfig(
                num_workers=values.num_workers,
                # What trains one model after another has nothing to win from reporting back late.
                models_per_task=10 if values.engine == "ensemble" else 1,
                backend=values.backend,
                scheduler=values.scheduler,
                show_progress=not values.quiet,
            ),
            num_canaries=values.num_canaries,
            seed=values.seed,
        )
        experiment = build_dp_sgd_experiment(
            DpSgdExperimentConfig(
                dataset=values.dataset,
                data_dir=values.data_dir,
                model=values.model,
                num_records=values.num_records,
                steps=values.steps,
                sample_rate=values.sample_rate,
                mu=values.mu,
                noise_multiplier=values.noise_multiplier,
                epsilon=values.epsilon,
                delta=values.delta,
                noise_scale=values.noise_scale,
                defect=values.defect,
                alpha=alpha,
                learning_rate=values.learning_rate,
                clip_norm=values.clip_norm,
                canary=values.canary,
                canary_label=values.canary_label,
                num_canaries=values.num_canaries,
                observe=values.observe,
                initial_weights=values.initial_weights,
                max_pretraining_records=values.max_pretraining_records,
                pretraining_epochs=values.pretraining_epochs,
                pretraining_learning_rate=values.pretraining_learning_rate,
                engine=values.engine,
                device=values.device,
                tester=values.tester,
                critic_widths=_whole_numbers("critic_widths", values.critic_widths),
                ema_rate=values.ema_rate,
                num_critics=values.num_critics,
                seed=values.seed,
            ),
            keep_in=os.path.dirname(values.store) or "." if values.store else values.output_dir,
            resume=values.resume,
            show_progress=True,
        )
        audit = (
            functools.partial(audit_dp_sgd_sequentially, sequential=batches)
            if values.sequential
            else audit_dp_sgd
        )
        mechanism, columns = experiment.recording()
        training = dataclasses.replace(audit_config.training, num_observed_columns=columns)
        with open_store(
            values.store, values.output_dir, mechanism, experiment.pair, resume=values.resume
        ) as store:
            if store.count() and values.resume and not values.quiet:
                _say(f"{store.count()} models of this experiment were kept in {store.path}")
            try:
                result = audit(
                    mechanism,
                    experiment.tester,
                    experiment.pair,
                    dataclasses.replace(audit_config, training=training),
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
        write_report_files(result, staging)
    report = result.report
    failed = report.refuted and values.fail_on_violation
    return Outcome(
        f"{report.summary()}\nreport                 {escape(values.output_dir)}/report.md",
        report.to_json(),
        EXIT_REFUTED if failed else EXIT_OK,
    )


def _one_order(words: Sequence[str]) -> float:
    orders = real_numbers("alphas", words)
    if len(orders) != 1:
        raise ValueError(f"alphas must be one order for this audit, got {','.join(words)}")
    return orders[0]


def _whole_numbers(name: str, words: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words)
    except ValueError:
        raise ValueError(
            f"{name} must be whole numbers with commas between, got {','.join(words)}"
        ) from None


def _say(message: str) -> None:
    print(f"{_NAME}: {escape(message)}", file=sys.stderr)


if __name__ == "__main__":
    run()
