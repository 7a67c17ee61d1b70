"""Tests a mechanism on many pairs of neighbouring datasets, with one failure probability for
everything it looks at.

The call shape is DP-Auditorium's: `PrivacyTestRunner(config, dataset_generator,
property_tester).test_privacy(...)`.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from typing import Any

from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    FailureProbability,
    Function,
    Switch,
)
from dvrenyi_plugin._internal.user_code import call_user_code
from dvrenyi_plugin.audits.directions import DATASETS as DIRECTIONS
from dvrenyi_plugin.audits.directions import estimate_both_directions
from dvrenyi_plugin.audits.runner_state import RunnerState, SavedTrial
from dvrenyi_plugin.audits.sample_checks import (
    RepeatedSampleGuard,
    check_estimate,
    check_no_nan,
    check_pair,
    check_rows,
    check_verdict,
    datasets_digest,
    describe,
    without_addresses,
)
from dvrenyi_plugin.interfaces import DatasetGenerator, Mechanism, PropertyTester

_OWN_MECHANISMS = "dvrenyi_plugin.mechanisms."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyTestRunnerConfig(CheckedSettings):
    """How much is looked at, and how sure the statement is to be.

    Attributes:
      max_num_trials: pairs of datasets that may be inspected, >= 1.
      num_samples: outputs of the mechanism a dataset, >= 1.
      failure_probability: of the whole test, in (0, 1). Every bound gets
        failure_probability / (2 max_num_trials): two directions a trial.
      stop_on_refutation: False goes on to the last trial, to see every bound.
      post_processing: applied to samples of shape (num_samples, k) before the tester sees them;
        None leaves them alone. It must turn each row into one row, by a function that does not
        depend on the samples of the test: then it can only lower a divergence.
      state_path: file that holds every finished trial, written after each; a test that finds it
        goes on from there. None keeps nothing.
    """

    max_num_trials: Count
    num_samples: Count
    failure_probability: FailureProbability = 0.05
    stop_on_refutation: Switch = True
    post_processing: Function | None = None
    state_path: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        path = self.state_path
        if path is not None and not (isinstance(path, (str, os.PathLike)) and os.fspath(path)):
            raise ValueError(f"state_path must be a file's path or None, got {path!r}")

    @property
    def failure_probability_of_each_bound(self) -> float:
        """What one direction of one trial may spend."""
        return self.failure_probability / (2 * self.max_num_trials)


class TerminationReason(enum.Enum):
    """Why a test ended. Names and values are DP-Auditorium's."""

    TRIAL_LIMIT_REACHED = 1
    FOUND_PRIVACY_VIOLATION = 2


@dataclasses.dataclass(frozen=True)
class FoundPrivacyViolation:
    """Where the claim was refuted.

    Attributes:
      trial: number of the first trial that refuted, from 0.
      direction: one of `DIRECTIONS`.
      lower_bound: of that direction.
      failure_probability: of the whole test.
    """

    trial: int
    direction: str
    lower_bound: float
    failure_probability: float


@dataclasses.dataclass(frozen=True)
class Trial:
    """One pair of datasets and what the tester said of it.

    Attributes:
      datasets: the neighbouring datasets.
      lower_bounds: in the order of `DIRECTIONS`, each at `failure_probability`, never NaN.
      refuted: whether each of them refutes the claim.
      failure_probability: of each bound.
    """

    datasets: tuple[Any, Any]
    lower_bounds: tuple[float, float]
    refuted: tuple[bool, bool]
    failure_probability: float

    @property
    def estimate(self) -> float:
        """The larger bound: what the dataset generator is told next."""
        return max(self.lower_bounds)


@dataclasses.dataclass(frozen=True)
class PrivacyTestRunnerResults:
    """A finished test. Field and property names are DP-Auditorium's where it has them.

    Attributes:
      mechanism_name: as given.
      privacy_property: the tester's.
      max_num_trials: trials that the failure probability was divided over.
      failure_probability: of the whole test: that anything refuted here holds after all.
      trials: every trial made, in order.
      num_resumed_trials: how many of them were read from the state file.
    """

    mechanism_name: str
    privacy_property: Any
    max_num_trials: int
    failure_probability: float
    trials: tuple[Trial, ...]
    num_resumed_trials: int = 0

    @property
    def lower_bound_divergence_estimates(self) -> list[float]:
        """The larger bound of every trial."""
        return [trial.estimate for trial in self.trials]

    @property
    def num_inspected_trials(self) -> int:
        """Trials made."""
        return len(self.trials)

    @property
    def lower_bound(self) -> float:
        """The largest bound of all: one-sided, on the largest divergence over the inspected pairs
        and directions.
        """
        return max(self.lower_bound_divergence_estimates)

    @property
    def found_privacy_violation(self) -> FoundPrivacyViolation | None:
        """The first refutation, or None: no refutation is no proof of the claim."""
        for number, trial in enumerate(self.trials):
            for direction, bound, refuted in zip(
                DIRECTIONS, trial.lower_bounds, trial.refuted, strict=True
            ):
                if refuted:
                    return FoundPrivacyViolation(number, direction, bound, self.failure_probability)
        return None

    @property
    def termination_reason(self) -> TerminationReason:
        """Whether a violation was found."""
        if self.found_privacy_violation is not None:
            return TerminationReason.FOUND_PRIVACY_VIOLATION
        return TerminationReason.TRIAL_LIMIT_REACHED

    @property
    def failure_probability_note(self) -> str:
        """One sentence on how the failure probability was divided."""
        each = self.failure_probability / (2 * self.max_num_trials)
        return (
            f"{self.failure_probability:g} in total, divided over {self.max_num_trials} trials and"
            f" 2 directions:"
            f" {each:g} for each bound"
        )


class PrivacyTestRunner:
    """Tests a mechanism on the pairs of datasets that a generator proposes.

    Each trial draws fresh samples, bounds both directions, tells the generator the larger bound
    (None before the first trial) and stops at the first refutation. A bound exceeds its divergence
    with probability at most failure_probability / (2 max_num_trials) given everything before it, so
    the probability that a kept claim is refuted anywhere is at most failure_probability, however
    the generator chooses (union bound).

    Mechanism, tester, generator and post-processing get copies, and what they return is copied:
    nothing that they do to their arguments, or later to what they returned, reaches another part of
    the test.

    Args:
      config: see `PrivacyTestRunnerConfig`.
      dataset_generator: called with the last estimate; ours (`dataset_generators`) or
        DP-Auditorium's.
      property_tester: ours or DP-Auditorium's.
    """

    def __init__(
        self,
        config: PrivacyTestRunnerConfig,
        dataset_generator: DatasetGenerator,
        property_tester: PropertyTester,
    ) -> None:
        self._config = config
        self._generator = dataset_generator
        self._tester = property_tester

    def test_privacy(self, mechanism: Mechanism, mechanism_name: str) -> PrivacyTestRunnerResults:
        """Returns every trial of a test of the tester's privacy property.

        With a state file, finished trials are read from it. The generator is asked for them again,
        with the feedback
        it had, and so is the mechanism, so that both are where they were: a generator or mechanism
        that is random must have been built with the seed it had. Mechanisms of this package are
        asked for one sample only, because their c-th call depends on c and not on what was drawn
        before; others for all of them.

        Args:
          mechanism: called as mechanism(dataset, num_samples); must return independent rows, and
            fresh ones at every call.
          mechanism_name: recorded in the result, and checked against the state file.

        Raises:
          ValueError: the tester returned NaN or no number (in either direction), the mechanism
            another number of samples, NaN, or the same samples twice; or the state file belongs to
            another test.
          Exception: what the user's code raised, with a note that says which part it was.
          OSError: the state file cannot be written; noticed before the first trial.
        """
        config = self._config
        state = RunnerState.open(config.state_path, self._identity(mechanism, mechanism_name))
        guard = RepeatedSampleGuard()
        trials: list[Trial] = []
        for saved in state.trials:
            trials.append(self._replay(mechanism, saved, len(trials), _feedback(trials)))
        num_resumed = len(trials)
        while len(trials) < config.max_num_trials:
            if config.stop_on_refutation and any(any(trial.refuted) for trial in trials):
                break
            datasets = self._propose(_feedback(trials))
            digest = datasets_digest(datasets)
            samples = [self._sample(mechanism, dataset, guard) for dataset in datasets]
            trial = self._trial(datasets, samples, len(trials))
            trials.append(trial)
            state.append(SavedTrial(trial.lower_bounds, trial.refuted, digest))
        return PrivacyTestRunnerResults(
            mechanism_name=mechanism_name,
            privacy_property=self._tester.privacy_property,
            max_num_trials=config.max_num_trials,
            failure_probability=config.failure_probability,
            trials=tuple(trials),
            num_resumed_trials=num_resumed,
        )

    def _trial(self, datasets: tuple[Any, Any], samples: list[NDArray[Any]], number: int) -> Trial:
        config = self._config
        bounds, refuted = estimate_both_directions(
            self._tester,
            (samples[0], samples[1]),
            config.failure_probability / config.max_num_trials,
        )
        for bound, direction in zip(bounds, DIRECTIONS, strict=True):
            check_estimate(bound, number, direction)
        return Trial(datasets, bounds, refuted, config.failure_probability_of_each_bound)

    def _propose(self, feedback: float | None) -> tuple[Any, Any]:
        return check_pair(call_user_code("dataset_generator", self._generator, feedback))

    def _sample(
        self, mechanism: Mechanism, dataset: Any, guard: RepeatedSampleGuard
    ) -> NDArray[Any]:
        count, post_processing = self._config.num_samples, self._config.post_processing
        samples = check_rows(
            "mechanism", call_user_code("mechanism", mechanism, dataset, count), count
        )
        guard.check(samples)
        if post_processing is None:
            return check_no_nan("mechanism", samples)
        processed = check_rows(
            "post_processing", call_user_code("post_processing", post_processing, samples), count
        )
        return check_no_nan("post_processing", processed)

    def _replay(
        self, mechanism: Mechanism, saved: SavedTrial, number: int, feedback: float | None
    ) -> Trial:
        datasets = self._propose(feedback)
        if saved.datasets_digest != datasets_digest(datasets):
            raise ValueError(
                f"dataset_generator must propose the datasets it proposed when"
                f" {self._config.state_path!r} was"
                f" written, got others in trial {number}: build it with the same settings and seed"
            )
        verdicts = tuple(
            check_verdict(self._tester.reject_property(bound)) for bound in saved.lower_bounds
        )
        if verdicts != saved.refuted:
            raise ValueError(
                f"property_tester must judge the bounds saved in {self._config.state_path!r} as it"
                f" did, got"
                f" {verdicts} for {saved.lower_bounds} in trial {number}, which were judged"
                f" {saved.refuted}"
            )
        own = type(mechanism).__module__.startswith(_OWN_MECHANISMS)
        for dataset in datasets:
            count = 1 if own else self._config.num_samples
            call_user_code("mechanism", mechanism, dataset, count)
        return Trial(
            datasets,
            saved.lower_bounds,
            saved.refuted,
            self._config.failure_probability_of_each_bound,
        )

    def _identity(self, mechanism: Mechanism, mechanism_name: str) -> dict[str, Any]:
        """What must not change between the parts of one test."""
        config = self._config
        return {
            "mechanism_name": str(mechanism_name),
            "mechanism": describe(mechanism),
            "privacy_property": without_addresses(repr(self._tester.privacy_property)),
            "tester": describe(self._tester),
            "post_processing": None
            if config.post_processing is None
            else describe(config.post_processing),
            "max_num_trials": int(config.max_num_trials),
            "num_samples": int(config.num_samples),
            "failure_probability": float(config.failure_probability),
        }


def _feedback(trials: list[Trial]) -> float | None:
    return trials[-1].estimate if trials else None


__all__ = [
    "DIRECTIONS",
    "FoundPrivacyViolation",
    "PrivacyTestRunner",
    "PrivacyTestRunnerConfig",
    "PrivacyTestRunnerResults",
    "TerminationReason",
    "Trial",
]
