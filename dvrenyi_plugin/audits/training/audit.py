"""The audit of any training function: models on two neighbouring datasets, until the claim is
refuted or all are trained.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.files import errors_that_name_argument, scratch_folder
from dvrenyi_plugin.audits.audit import AuditResult, Subject, TestedClaim, run_audit
from dvrenyi_plugin.audits.directions import BoundTester, Samples
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.experiment import (
    TrainingExperiment,
    build_training_experiment,
    describe_claim,
    fewest_models,
)
from dvrenyi_plugin.audits.training.files import write_report_files
from dvrenyi_plugin.audits.training.models import (
    DIRECTIONS,
    Observations,
    check_observations,
    train_both_worlds,
)
from dvrenyi_plugin.audits.training.outlook import outlook
from dvrenyi_plugin.audits.training.sections import Observed, Separation, observation_sections
from dvrenyi_plugin.audits.training.settings import ModelTrainingConfig, TrainingAuditConfig
from dvrenyi_plugin.execution.observation_store import ObservationStore, open_store
from dvrenyi_plugin.interfaces import GaussianDp, read_claim
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.text import Table, number

OBSERVATIONS = Observed(
    title="Observations",
    key="observations",
    axis="what was observed of the trained model",
    unit="",
    file="observations.png",
    caption="Observations of models trained with and without the canary, and the fitted critic",
)
_MOST_COLUMNS_SHOWN = 20


def audit_training(
    train: Callable[[Any, int], Any],
    observe: Callable[..., Any],
    pair: Any = None,
    claim: Any = None,
    *,
    dataset: Any = None,
    canary: Any = None,
    canary_label: Any = None,
    store: str | os.PathLike[str] | None = None,
    report_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> AuditResult:
    """Returns the audit of any Python function that trains: bound, point estimate and verdict.

    Certified is a lower bound on what the claim's own number must be for these two datasets; it
    exceeds the truth with probability at most the failure probability, at whatever number of
    models the audit stops. Gaussian, pure and (epsilon, delta)-DP and DP-SGD with Poisson batches
    are tested with `TradeOffPropertyTester`, Rényi DP and zCDP with
    `SequentialRenyiPropertyTester`.

    Args:
      train: called as train(dataset, seed) with a copy of a dataset and an int seed in [0, 2^32),
        from which all its randomness must come; returns anything.
      observe: called as observe(model) with what `train` returned; gives a number or a vector of
        always as many numbers (tensors too). With `dataset` and `canary` it is called as
        observe(model, canary), with a record: features, or (features, label).
      pair: (D, D with the canary): two datasets of any kind that differ in one record, see
        `compare_pair`.
      claim: a property, ours or DP-Auditorium's, or a text such as "mu=1", see `parse_claim`.
      dataset: in place of `pair`: features, or (features, labels).
      canary: "blank", "mislabelled", a record's features or (features, label); see `make_pair`.
      canary_label: its label.
      store: file that keeps the models as they finish; the same call goes on from it. Functions
        and classes that decide the observations must then be defined in files.
      report_dir: folder for the report and its pictures, made if there is none; a report that is
        there is replaced.
      show_progress: draw progress bars on standard error, or in a notebook.
      **settings: fields of `TrainingAuditConfig`: num_models, failure_probability, sequential,
        batch_models, workers, discrete_outputs, seed.

    Raises:
      ValueError: an argument that is not as said above, or models that repeat each other.
      OSError: workers die again and again, or a file cannot be written.
      Exception: what `train` or `observe` raised, with a note that says which.
    """
    experiment = build_training_experiment(
        train,
        observe,
        claim,
        TrainingAuditConfig(**settings),
        pair=pair,
        dataset=dataset,
        canary=canary,
        canary_label=canary_label,
    )
    return _run_and_write(experiment, store, report_dir, show_progress)


def _run_and_write(
    experiment: TrainingExperiment,
    store: str | os.PathLike[str] | None,
    report_dir: str | os.PathLike[str] | None,
    show_progress: bool,
) -> AuditResult:
    with contextlib.ExitStack() as stack:
        # A folder that cannot be written is noticed before anything is trained.
        staging = None if report_dir is None else stack.enter_context(report_folder(report_dir))
        kept = None
        if store is not None:
            kept = open_store(store, ".", experiment.mechanism, experiment.pair)
            stack.enter_context(kept)
        result = run_training_audit(experiment, store=kept, show_progress=show_progress)
        if staging is not None:
            write_training_report(result, staging)
    return result


def run_training_audit(
    experiment: TrainingExperiment,
    *,
    store: ObservationStore | None = None,
    show_progress: bool = False,
) -> AuditResult:
    """Returns the audit of a training that is ready to run; see `audit_training`."""
    config, mechanism = experiment.config, experiment.mechanism
    if show_progress:
        _warn_of_too_few(experiment)
    # One model a task: nothing is gained by reporting back late.
    training = ModelTrainingConfig(
        num_workers=config.workers, models_per_task=1, show_progress=show_progress
    )

    def draw(numbers: range) -> Samples:
        models = train_both_worlds(
            mechanism, experiment.pair, numbers, training, num_canaries=None, store=store
        )
        return models.with_canary, models.without

    subject = subject_of_models(
        experiment.claim,
        experiment.tester,
        title=experiment.title,
        draw=draw,
        work="training",
        check=lambda samples: check_observations(mechanism, Observations(*samples[::-1])),
        settings=experiment.settings,
        notes=experiment.notes,
        seed=config.seed,
    )
    result = run_audit(
        subject,
        config.num_models,
        config.failure_probability,
        SequentialAuditConfig(batch_models=config.batch_models) if config.sequential else None,
        show_progress=show_progress,
    )
    return with_outlook(result, experiment.claim, experiment.curve_direction)


def _warn_of_too_few(experiment: TrainingExperiment) -> None:
    config = experiment.config
    fewest = fewest_models(experiment.claim, experiment.curve_direction, config.failure_probability)
    if fewest > config.num_models:
        print(
            f"{config.num_models} models per dataset cannot refute this claim, whatever the"
            f" training does: that takes at least {fewest:,.0f}",
            file=sys.stderr,
        )


def subject_of_models(claim: Any, tester: BoundTester, **rest: Any) -> Subject:
    """Returns what is audited where models with and without a record were observed.

    Args:
      claim: the property under test.
      tester: of the claim.
      **rest: further fields of `Subject`: at least title, draw and work.
    """
    read = read_claim(claim)
    mu = read.mu if isinstance(read, GaussianDp) else None
    return Subject(
        directions=DIRECTIONS,
        claims=(TestedClaim(tester, source=describe_claim(claim)),),
        unit="models",
        describe=lambda samples: _sections(samples, mu),
        remarks=lambda samples: Observations(*samples[::-1]).notes(),
        claimed_mu=mu,
        **rest,
    )


def with_outlook(result: AuditResult, claim: Any, curve_direction: str) -> AuditResult:
    """Returns the audit with the planner's word on how many models refute its claim."""
    _, separation = _clearest_column(result.samples)
    more = outlook(result.report, claim, separation, curve_direction)
    notes = (*result.report.notes, *more)
    return dataclasses.replace(result, report=dataclasses.replace(result.report, notes=notes))


def write_training_report(result: AuditResult, directory: str) -> None:
    """Writes the report of `run_training_audit` and its pictures into an existing folder.

    Raises:
      OSError: a file cannot be written.
    """
    column, _ = _clearest_column(result.samples)
    write_report_files(result, directory, OBSERVATIONS, column)


def _sections(samples: Samples, claimed_mu: float | None) -> tuple[Section, ...]:
    with_canary, without = samples
    column, _ = _clearest_column(samples)
    sections = observation_sections(
        without[:, column], with_canary[:, column], observed=OBSERVATIONS, claimed_mu=claimed_mu
    )
    count = without.shape[1]
    if count == 1:
        return sections
    every = [Separation.of(without[:, i], with_canary[:, i]) for i in range(count)]
    rows = [
        (str(i), number(one.d_prime), number(one.standard_error)) for i, one in enumerate(every)
    ]
    return (
        *sections,
        Section(
            title="Every number of the observation",
            content={"d_prime_by_column": [one.d_prime for one in every]},
            paragraphs=(
                f"The section above, and the picture, are of number {column} of {count}, the one of"
                " the largest d-prime. The tester saw all of them.",
            ),
            table=Table(("number", "d-prime", "standard error"), rows[:_MOST_COLUMNS_SHOWN]),
        ),
    )


def _clearest_column(samples: Samples) -> tuple[int, Separation]:
    """Returns the column of the largest d-prime, the first one where there is none, and that."""
    with_canary, without = samples
    every = [Separation.of(a, b) for a, b in zip(without.T, with_canary.T, strict=True)]
    column = int(np.argmax(np.nan_to_num([one.d_prime for one in every], nan=-1.0)))
    return column, every[column]


@contextlib.contextmanager
def report_folder(report_dir: str | os.PathLike[str]) -> Iterator[str]:
    """Inside, a fresh folder; what is in it when all went well moves into `report_dir`.

    Raises:
      ValueError: `report_dir` cannot be a folder.
      OSError: it cannot be written.
    """
    with errors_that_name_argument("report_dir", report_dir):
        os.makedirs(report_dir, exist_ok=True)
    with scratch_folder(os.fspath(report_dir)) as staging:
        yield staging
        _move_report(staging, os.fspath(report_dir))


def _move_report(staging: str, report_dir: str) -> None:
    # report.json says that the others are complete: it goes first and comes last.
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(report_dir, "report.json"))
    for name in sorted(os.listdir(staging), key=lambda name: (name == "report.json", name)):
        os.replace(os.path.join(staging, name), os.path.join(report_dir, name))
