"""Every tester of this package inside DP-Auditorium's runner, with DP-Auditorium's generators and
objects.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_auditorium import privacy_test_runner
from dp_auditorium.configs import (
    dataset_generator_config,
    privacy_property,
    privacy_test_runner_config,
    property_tester_config,
)
from dp_auditorium.generators import (
    classification_dataset_generator,
    constant_dataset_generator,
    vizier_dataset_generator,
)
from dp_auditorium.testers import renyi_tester

from dvrenyi_plugin.mechanisms import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
    GaussianMechanism,
    GaussianMechanismConfig,
    TrainingMechanism,
    TrainingMechanismConfig,
    random_weights,
)
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    LikelihoodRatioTester,
    LikelihoodRatioTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
    TradeOffPropertyTester,
    TradeOffPropertyTesterConfig,
)

DOCS = Path(__file__).parents[2] / "docs" / "dp_auditorium.md"
# One trial and two directions: 0.01 in all.
FAILURE_PROBABILITY = 0.005
RUNNER = privacy_test_runner_config


def renyi_dp(alpha: float, epsilon: float) -> privacy_property.PrivacyProperty:
    return privacy_property.PrivacyProperty(
        renyi_dp=privacy_property.RenyiDp(alpha=alpha, epsilon=epsilon)
    )


def training_config() -> property_tester_config.TrainingConfig:
    return property_tester_config.TrainingConfig(
        training_epochs=60,
        batch_size=200,
        optimizer_learning_rate=2e-3,
        model_output_coordinate_bound=3.0,
    )


def run(tester: Any, mechanism: Any, generator: Any, num_samples: int = 1000) -> Any:
    config = RUNNER.PrivacyTestRunnerConfig(
        property_tester=RUNNER.PropertyTester.UNSPECIFIED_TESTER,
        max_num_trials=1,
        failure_probability=FAILURE_PROBABILITY,
        num_samples=num_samples,
        post_processing=RUNNER.PostProcessing.NONE,
    )
    runner = privacy_test_runner.PrivacyTestRunner(config, generator, tester)
    return runner.test_privacy(mechanism, "mechanism")


def sequential(claim: Any) -> Any:
    return SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(claim))


def donsker_varadhan(claim: Any) -> Any:
    return DvRenyiPropertyTester(DvRenyiPropertyTesterConfig(claim, training_config()))


def threshold_attack(claim: Any) -> Any:
    return ThresholdAttackTester(ThresholdAttackTesterConfig(claim))


def gdp_baseline(claim: Any) -> Any:
    return GdpBaselineTester(GdpBaselineTesterConfig(claim, held_out_threshold=True))


def trade_off(claim: Any) -> Any:
    return TradeOffPropertyTester(TradeOffPropertyTesterConfig(claim))


TESTERS = (sequential, donsker_varadhan, threshold_attack, gdp_baseline, trade_off)


# In every setting below the two laws are at D_alpha = alpha / 2 exactly: N(mu, 1) against N(0, 1)
# with mu = 1, as whitened outputs. So the claim (2, 1.0) is true and (2, 0.25) is false.
def gaussian() -> GaussianMechanism:
    return GaussianMechanism(GaussianMechanismConfig(noise_multiplier=1.0))


def constant_pair() -> Any:
    return constant_dataset_generator.ConstantDatasetGenerator((np.ones(2), np.ones(3)))


def vizier_pairs(study_name: str) -> Any:
    """Pairs of 2 and 3 records in [1, 2], all of which the mechanism clips to 1."""
    return vizier_dataset_generator.VizierScalarDataAddRemoveGenerator(
        dataset_generator_config.VizierDatasetGeneratorConfig(
            study_name=study_name,
            study_owner="tests",
            num_vizier_parameters=3,
            data_type=dataset_generator_config.DataType.DATA_TYPE_FLOAT,
            min_value=1.0,
            max_value=2.0,
            search_algorithm="QUASI_RANDOM_SEARCH",
            metric_name="lower_bound",
        )
    )


def classification_pairs(study_name: str) -> Any:
    """Pairs of 4 and 3 records with 3 features; `num_classes` is really the largest label.

    The first pair of a grid search is always the same one; Vizier's random searches take no seed.
    """
    return classification_dataset_generator.ClassificationDatasetGenerator(
        dataset_generator_config.ClassificationDatasetGeneratorConfig(
            study_name=study_name,
            study_owner="tests",
            min_value=-1.0,
            max_value=1.0,
            search_algorithm="GRID_SEARCH",
            metric_name="lower_bound",
            sample_dim=3,
            num_samples=4,
            num_classes=1,
        )
    )


def one_dp_sgd_step() -> EnsembleDpSgdMechanism:
    """Every gradient is longer than the clipping norm, so one record moves the weights by exactly
    that.
    """
    return EnsembleDpSgdMechanism(
        EnsembleDpSgdMechanismConfig(
            model="logistic",
            initial_weights=random_weights("logistic", (3,), 2, seed=0),
            canary=(np.ones(3), 1),
            num_classes=2,
            num_steps=1,
            noise_multiplier=1.0,
            clip_norm=0.1,
            learning_rate=1.0,
            observe="weights",
        )
    )


def noisy_count() -> TrainingMechanism:
    """Number of records plus standard normal noise."""
    return TrainingMechanism(
        TrainingMechanismConfig(
            train=lambda data, seed: len(data[1]) + np.random.default_rng(seed).standard_normal(),
            observe=lambda count: count,
            claimed_privacy=[renyi_dp(2.0, 1.0)],
        )
    )


def assert_true_claim_kept_and_false_claim_refuted(
    make_tester: Callable[[Any], Any],
    make_mechanism: Callable[[], Any],
    make_generator: Callable[[], Any],
    num_samples: int = 1000,
) -> None:
    true_claim, false_claim = renyi_dp(2.0, 1.0), renyi_dp(2.0, 0.25)
    kept = run(make_tester(true_claim), make_mechanism(), make_generator(), num_samples)
    assert kept.termination_reason == RUNNER.TerminationReason.TRIAL_LIMIT_REACHED
    assert kept.found_privacy_violation is None
    assert kept.privacy_property is true_claim
    (bound,) = kept.lower_bound_divergence_estimates
    assert type(bound) is float and 0.25 < bound <= 1.0
    refuted = run(make_tester(false_claim), make_mechanism(), make_generator(), num_samples)
    assert refuted.termination_reason == RUNNER.TerminationReason.FOUND_PRIVACY_VIOLATION
    assert refuted.found_privacy_violation.failure_probability == FAILURE_PROBABILITY


@pytest.mark.parametrize("make_tester", TESTERS)
def test_with_the_constant_generator(make_tester: Callable[[Any], Any]) -> None:
    assert_true_claim_kept_and_false_claim_refuted(make_tester, gaussian, constant_pair)


@pytest.mark.parametrize("make_tester", TESTERS)
def test_with_the_vizier_generator(
    make_tester: Callable[[Any], Any], new_study: Callable[[], str]
) -> None:
    assert_true_claim_kept_and_false_claim_refuted(
        make_tester, gaussian, lambda: vizier_pairs(new_study())
    )


@pytest.mark.parametrize("make_tester", TESTERS)
def test_f14_with_the_classification_generator(
    make_tester: Callable[[Any], Any], new_study: Callable[[], str]
) -> None:
    """f14: outputs have eight columns, so a score must be found, for which 1,000 samples are too
    few.

    Over random directions of the shift the threshold attack's bound, the weakest of the four, had
    mean 0.28 and standard deviation 0.064 at 1,000 samples, a third of the bounds below the 0.25
    that is asked for; at 8,000 samples mean 0.50 and standard deviation 0.034: below 0.25 with
    probability under 1e-6. Pair, noise and testers are seeded.
    """
    assert_true_claim_kept_and_false_claim_refuted(
        make_tester,
        one_dp_sgd_step,
        lambda: classification_pairs(new_study()),
        num_samples=8000,
    )


# Sums are N(2, 1) and N(3, 1) with the first two generators; counts are N(4, 1) and N(3, 1) with
# the third.
@pytest.mark.parametrize(
    ("setting", "mean1", "mean2"),
    [("constant", 2.0, 3.0), ("vizier", 2.0, 3.0), ("classification", 4.0, 3.0)],
)
def test_known_log_ratio_with_every_generator(
    setting: str, mean1: float, mean2: float, request: pytest.FixtureRequest
) -> None:
    def log_ratio(samples: np.ndarray) -> np.ndarray:
        return ((samples[:, 0] - mean2) ** 2 - (samples[:, 0] - mean1) ** 2) / 2.0

    def pairs() -> Any:
        if setting == "constant":
            return constant_pair()
        name = request.getfixturevalue("new_study")()
        return vizier_pairs(name) if setting == "vizier" else classification_pairs(name)

    # Markov's inequality costs log(1 / failure probability) / (alpha - 1), so the order is a high
    # one: D_8 = 4.
    for epsilon, violated in ((4.0, False), (0.25, True)):
        tester = LikelihoodRatioTester(
            LikelihoodRatioTesterConfig(renyi_dp(8.0, epsilon), log_ratio, either_order=True)
        )
        mechanism = noisy_count() if setting == "classification" else gaussian()
        result = run(tester, mechanism, pairs(), num_samples=4000)
        (bound,) = result.lower_bound_divergence_estimates
        assert 0.25 < bound <= 4.0
        assert (result.found_privacy_violation is not None) == violated


PROPERTIES = {
    "renyi_dp": renyi_dp(1.5, 0.75),
    "pure_dp": privacy_property.PrivacyProperty(pure_dp=privacy_property.PureDp(epsilon=1.0)),
    "approximate_dp": privacy_property.PrivacyProperty(
        approximate_dp=privacy_property.ApproximateDp(epsilon=1.0, delta=1e-3)
    ),
}
REFUSED = {
    ("sequential", "approximate_dp"),
    ("donsker_varadhan", "approximate_dp"),
    ("known_log_ratio", "approximate_dp"),
    ("gdp_baseline", "pure_dp"),
}


def known_log_ratio(claim: Any) -> Any:
    return LikelihoodRatioTester(
        LikelihoodRatioTesterConfig(claim, lambda samples: samples[:, 0] - 0.5)
    )


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("make_tester", [*TESTERS, known_log_ratio])
def test_property_objects_are_read_by_shape_and_handed_back(
    make_tester: Callable[[Any], Any], name: str
) -> None:
    claim = copy.deepcopy(PROPERTIES[name])
    if (make_tester.__name__, name) in REFUSED:
        with pytest.raises(ValueError, match=f"privacy_property must .*got {name}"):
            make_tester(claim)
        return
    tester = make_tester(claim)
    rng = np.random.default_rng(0)
    samples1, samples2 = rng.normal(1.0, size=(100, 1)), rng.normal(0.0, size=(100, 1))
    copies = samples1.copy(), samples2.copy()
    bound = tester.estimate_lower_bound(samples1, samples2, 0.05)
    assert bound >= 0.0 and tester.reject_property(bound) in (True, False)
    assert tester.reject_property(math.inf) and not tester.reject_property(0.0)
    assert tester.privacy_property is claim and claim == PROPERTIES[name]
    np.testing.assert_array_equal(samples1, copies[0])
    np.testing.assert_array_equal(samples2, copies[1])


@pytest.mark.parametrize(("epsilon", "violated"), [(3.5, False), (1.0, True)])
def test_trade_off_tester_on_their_approximate_dp_in_their_runner(
    epsilon: float, violated: bool
) -> None:
    """N(3, 1) against N(2, 1) is (epsilon, 0.001)-DP from epsilon 3.14 on."""
    claim = privacy_property.PrivacyProperty(
        approximate_dp=privacy_property.ApproximateDp(epsilon=epsilon, delta=1e-3)
    )
    result = run(trade_off(claim), gaussian(), constant_pair(), num_samples=2000)
    assert (result.found_privacy_violation is not None) == violated


def test_training_config_is_read_and_left_alone() -> None:
    theirs = training_config()
    config = DvRenyiPropertyTesterConfig(renyi_dp(2.0, 1.0), theirs)
    rng = np.random.default_rng(0)
    result = DvRenyiPropertyTester(config).audit(
        rng.normal(1.0, size=400), rng.normal(0.0, size=400), 0.05
    )
    low, high = result.critic_range
    assert -3.0 <= low < high <= 3.0  # model_output_coordinate_bound
    assert config.training_config is theirs and theirs == training_config()


@pytest.mark.parametrize("alpha", [1.25, 2.0])
def test_where_their_renyi_tester_is_nan_ours_bounds_the_same_samples(alpha: float) -> None:
    """At 500 samples and a critic bound of 2 the radius of their bound does not exist."""
    rng = np.random.default_rng(0)
    samples1, samples2 = rng.normal(1.0, size=(500, 1)), rng.normal(0.0, size=(500, 1))
    claim = renyi_dp(alpha, 0.1)
    theirs = renyi_tester.RenyiPropertyTester(
        property_tester_config.RenyiPropertyTesterConfig(
            alpha=alpha,
            training_config=property_tester_config.TrainingConfig(
                training_epochs=5,
                batch_size=400,
                optimizer_learning_rate=1e-3,
                model_output_coordinate_bound=2.0,
            ),
            privacy_property=claim,
        ),
        base_model=renyi_tester.make_default_renyi_base_model(),
    )
    with np.errstate(invalid="ignore"):
        their_bound = float(theirs.estimate_lower_bound(samples1, samples2, 0.05))
    assert math.isnan(their_bound) and not theirs.reject_property(their_bound)
    truth = alpha / 2.0
    for ours in (sequential(claim), donsker_varadhan(claim)):
        bound = ours.estimate_lower_bound(samples1, samples2, 0.05)
        assert 0.25 * truth < bound <= truth
        assert ours.reject_property(bound)


def test_the_documented_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(compile(example.group(1), str(DOCS), "exec"), names)
    result = names["result"]
    assert result.termination_reason == RUNNER.TerminationReason.FOUND_PRIVACY_VIOLATION
    assert 1.0 < result.lower_bound_divergence_estimates[0] <= 16.0  # claimed and true D_2
    assert "FoundPrivacyViolation" in capsys.readouterr().out
