"""What the tests of the runner share: scripted testers, generators and mechanisms."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.audits.runner import (
    PrivacyTestRunner,
    PrivacyTestRunnerConfig,
)
from dvrenyi_plugin.generators.dataset_generators import (
    ConstantDatasetGenerator,
)
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp

PAIR = ConstantDatasetGenerator((np.zeros(1), np.array([0.0, 1.0])))
CLAIM = PrivacyProperty(renyi_dp=RenyiDp(alpha=2.0, epsilon=1.0))


@dataclasses.dataclass
class ScriptedTester:
    """Returns given values in turn and remembers what it was asked."""

    values: list[Any]
    threshold: float = 1.0
    privacy_property: Any = CLAIM
    asked: list[float] = dataclasses.field(default_factory=list)

    def estimate_lower_bound(self, samples1: Any, samples2: Any, failure_probability: float) -> Any:
        self.asked.append(failure_probability)
        return self.values[len(self.asked) - 1]

    def reject_property(self, lower_bound: float) -> bool:
        return lower_bound > self.threshold


class ExactLevelTester:
    """Errs with exactly the failure probability it is given, on uniform samples: the sharpest valid
    test.
    """

    privacy_property = CLAIM

    def estimate_lower_bound(
        self, samples1: Any, samples2: Any, failure_probability: float
    ) -> float:
        # A function of both samples that is uniform, and independent of the other direction's.
        return float((samples1[0, 0] + 2.0 * samples2[0, 0]) % 1.0 < failure_probability)

    def reject_property(self, lower_bound: float) -> bool:
        return lower_bound > 0.5


@dataclasses.dataclass
class RememberingGenerator:
    feedback: list[float | None] = dataclasses.field(default_factory=list)

    def __call__(self, divergence: float | None) -> Any:
        self.feedback.append(divergence)
        return np.zeros(len(self.feedback)), np.zeros(len(self.feedback) + 1)


class UniformMechanism:
    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        return self._rng.random((num_samples, 1))


def config(**changes: Any) -> PrivacyTestRunnerConfig:
    return PrivacyTestRunnerConfig(**({"max_num_trials": 3, "num_samples": 5} | changes))


def run(tester: Any, mechanism: Any = None, generator: Any = PAIR, **changes: Any) -> Any:
    runner = PrivacyTestRunner(config(**changes), generator, tester)
    return runner.test_privacy(mechanism or UniformMechanism(0), "m")
