"""This package's generators in DP-Auditorium's runner, and DP-Auditorium's testers in this
package's runner.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_auditorium import privacy_test_runner
from dp_auditorium.configs import (
    privacy_property,
    privacy_test_runner_config,
    property_tester_config,
)
from dp_auditorium.generators import constant_dataset_generator
from dp_auditorium.testers import histogram_tester, renyi_tester

from dvrenyi_plugin.audits.runner import PrivacyTestRunner, PrivacyTestRunnerConfig
from dvrenyi_plugin.generators.dataset_generators import (
    BoundedArrays,
    CanaryDatasetGenerator,
    EvolutionarySearchDatasetGenerator,
    EvolutionConfig,
    RandomSearchDatasetGenerator,
)
from dvrenyi_plugin.mechanisms import GaussianMechanism, GaussianMechanismConfig
from dvrenyi_plugin.testers import ThresholdAttackTester, ThresholdAttackTesterConfig

CLAIM = privacy_property.PrivacyProperty(renyi_dp=privacy_property.RenyiDp(2.0, 1.0))
SPACE = BoundedArrays(num_records=3, low=-1.0)


@pytest.mark.parametrize(
    "generator",
    [
        CanaryDatasetGenerator(np.zeros(3), [0.5, 1.0]),
        RandomSearchDatasetGenerator(SPACE),
        EvolutionarySearchDatasetGenerator(SPACE, EvolutionConfig(num_random=2)),
    ],
)
def test_our_generators_in_their_runner(generator: Any) -> None:
    runner = privacy_test_runner.PrivacyTestRunner(
        privacy_test_runner_config.PrivacyTestRunnerConfig(
            property_tester=privacy_test_runner_config.PropertyTester.RENYI_TESTER,
            max_num_trials=6,
            failure_probability=0.001,
            num_samples=2000,
            post_processing=privacy_test_runner_config.PostProcessing.NONE,
        ),
        generator,
        ThresholdAttackTester(ThresholdAttackTesterConfig(privacy_property=CLAIM)),
    )
    mechanism = GaussianMechanism(GaussianMechanismConfig(noise_scale=0.2))
    result = runner.test_privacy(mechanism, "a fifth of the noise")
    assert result.found_privacy_violation is not None
    assert max(result.lower_bound_divergence_estimates) > 1.0


def run_ours(tester: Any, mechanism: Any) -> Any:
    """With one of their generators."""
    runner = PrivacyTestRunner(
        PrivacyTestRunnerConfig(max_num_trials=2, num_samples=4000),
        constant_dataset_generator.ConstantDatasetGenerator((np.zeros(1), np.array([0.0, 1.0]))),
        tester,
    )
    return runner.test_privacy(mechanism, "gaussian")


def test_their_histogram_tester_in_our_runner() -> None:
    verdicts = []
    for noise_scale in (1.0, 0.1):
        tester = histogram_tester.HistogramTester(
            property_tester_config.HistogramPropertyTesterConfig(
                test_discrete_mechanism=False,
                histogram_size=4,
                min_value=-1.0,
                max_value=2.0,
                approximate_dp=privacy_property.ApproximateDp(1.0, 0.2),
            )
        )
        mechanism = GaussianMechanism(GaussianMechanismConfig(noise_scale=noise_scale))
        verdicts.append(run_ours(tester, mechanism).found_privacy_violation is not None)
    assert verdicts == [False, True]


def test_their_nan_stops_our_runner_and_passes_theirs() -> None:
    tester = renyi_tester.RenyiPropertyTester(
        property_tester_config.RenyiPropertyTesterConfig(
            alpha=2.0,
            training_config=property_tester_config.TrainingConfig(
                training_epochs=1,
                batch_size=1000,
                optimizer_learning_rate=0.01,
                model_output_coordinate_bound=3.0,
            ),
            privacy_property=CLAIM,
        ),
        renyi_tester.make_default_renyi_base_model(),
    )
    mechanism = GaussianMechanism(GaussianMechanismConfig(noise_scale=0.1))
    assert not tester.reject_property(math.nan)
    with pytest.raises(ValueError, match=r"in trial 0 .*would pass"):
        run_ours(tester, mechanism)
