"""Audits the privacy claim of any training function in Python, from two datasets to verdict.

    dvrenyi-audit-training my_module:train --observe=my_module:loss --pair=my_module:pair \\
        --claim=mu=1 --output_dir=my_audit

Calls train(dataset, seed) for many models on each of two datasets that differ in one record, looks
at each with observe(model), and writes report.json, report.md, report.html, observations.npz and
pictures into --output_dir. It stops as soon as the claim is refuted. Models are kept as they
finish: a run that was interrupted goes on from them when it is started again. Exit status: 0; 1
after an error; with --fail_on_violation, 2 when the claim is refuted; 130 after Ctrl-C, 143 after
SIGTERM.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.training.settings import TrainingAuditConfig
from dvrenyi_plugin.binaries._command import (
    Outcome,
    audit_outcome,
    end_process,
    one_line,
    run_command,
    staged_report,
)
from dvrenyi_plugin.binaries._flags import ProgramFlags, settings_from
from dvrenyi_plugin.binaries._user_objects import in_one_line, load_data, load_object

_NAME = "audit_training"


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.text("train", None, "MODULE:NAME of train(dataset, seed); may stand without --train=")
    program.text(
        "observe",
        None,
        "MODULE:NAME of observe(model), which gives a number or a vector; with --dataset it is"
        " called as observe(model, canary)",
    )
    program.text(
        "pair",
        None,
        "MODULE:NAME of two datasets that differ in one record, the second with the canary, or of a"
        " function that returns them",
    )
    program.text(
        "dataset",
        None,
        "in place of --pair: MODULE:NAME of features or (features, labels), or of a function that"
        " returns them, or a file .npz with arrays of these names",
    )
    program.text(
        "canary",
        None,
        "beside --dataset: blank, mislabelled, MODULE:NAME of a record, or a file .npy with its"
        " features",
    )
    program.text("canary_label", None, "of the canary; unset: one that the data make unlikely")
    program.tested_claim()
    program.settings(TrainingAuditConfig, workers=2)
    program.alias("num_workers", "workers")
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
    return run_command(_NAME, __doc__ or "", define_flags(), _audit, argv, positional="train")


def run() -> None:
    """Entry point of the console script: runs on sys.argv and exits."""
    end_process(main(sys.argv))


def _audit(values: flags.FlagValues) -> Outcome:
    with staged_report(_NAME, values) as staging:
        config = settings_from(values, TrainingAuditConfig)
        if values.claim is None:
            raise ValueError("claim is required: what is tested, such as --claim=mu=1")
        # The accounting needs scipy, which is slow to load: not before the flags are read.
        from dvrenyi_plugin.privacy.claim_text import parse_claim

        claim = parse_claim(values.claim)
        try:
            result = _train_and_test(values, claim, config)
        except Exception as error:
            line = in_one_line(error)
            if line is None:
                raise
            raise ValueError(line) from error
        # The pictures' library is slow to load: not before there is something to draw.
        from dvrenyi_plugin.audits.training.audit import write_training_report

        write_training_report(result, staging)
    return audit_outcome(result.report, values)


def _train_and_test(values: flags.FlagValues, claim: Any, config: TrainingAuditConfig) -> Any:
    train = load_object("train", values.train)
    observe = load_object("observe", values.observe)
    given: dict[str, Any] = {}
    if values.pair is not None:
        given["pair"] = load_data("pair", values.pair)
    if values.dataset is not None:
        given["dataset"] = _dataset(values.dataset)
    if values.canary is not None:
        given["canary"] = _canary(values.canary)
    if values.canary_label is not None:
        given["canary_label"] = _label(values.canary_label)
    from dvrenyi_plugin.audits.training.audit import run_training_audit
    from dvrenyi_plugin.audits.training.experiment import build_training_experiment

    experiment = build_training_experiment(train, observe, claim, config, **given)
    with _store(values, experiment) as store:
        if store is not None and store.count() and values.resume and not values.quiet:
            _say(f"{store.count()} models of this experiment were kept in {store.path}")
        try:
            return run_training_audit(experiment, store=store, show_progress=not values.quiet)
        except KeyboardInterrupt as interrupt:
            if store is not None:
                kept = f"{store.count()} models are kept in {store.path}"
                interrupt.args = (f"{kept}, the same command goes on",)
            raise


def _store(values: flags.FlagValues, experiment: Any) -> contextlib.AbstractContextManager[Any]:
    """Returns the store; none where none was asked for and the experiment's content is unknown."""
    from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
    from dvrenyi_plugin.execution.observation_store import open_store

    mechanism, pair = experiment.mechanism, experiment.pair
    if values.store is None:
        try:
            ExperimentFingerprint.of(mechanism, pair)
        except ValueError as error:
            if not values.quiet:
                _say(f"models are not kept: {one_line(error)}")
            return contextlib.nullcontext()
    return open_store(values.store, values.output_dir, mechanism, pair, resume=values.resume)


def _say(text: str) -> None:
    print(f"{_NAME}: {escape(text)}", file=sys.stderr)


def _dataset(text: str) -> Any:
    if not text.lower().endswith(".npz"):
        return load_data("dataset", text)
    from dvrenyi_plugin._internal.files import errors_that_name_argument
    from dvrenyi_plugin.data.file_formats import read_npz

    with errors_that_name_argument("dataset", text):
        return read_npz(text)


def _canary(text: str) -> Any:
    if text.lower().endswith(".npy"):
        from dvrenyi_plugin._internal.files import errors_that_name_argument
        from dvrenyi_plugin.data.file_formats import read_npy

        with errors_that_name_argument("canary", text):
            return read_npy(text)
    return load_data("canary", text) if ":" in text else text


def _label(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


if __name__ == "__main__":
    run()
