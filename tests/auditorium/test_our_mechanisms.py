"""Every mechanism of this package under DP-Auditorium's four testers, inside its runner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dp_auditorium import privacy_test_runner
from dp_auditorium.configs import (
    privacy_property,
    privacy_test_runner_config,
    property_tester_config,
)
from dp_auditorium.generators import constant_dataset_generator
from dp_auditorium.testers import (
    histogram_tester,
    hockey_stick_tester,
    mmd_tester,
    renyi_tester,
)

from dvrenyi_plugin.interfaces import GaussianDp, PureDp, RenyiDp, read_claim
from dvrenyi_plugin.mechanisms import (
    BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig,
    CircularMeanLoss,
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
    ExponentialMechanism,
    ExponentialMechanismConfig,
    GaussianMechanism,
    GaussianMechanismConfig,
    LangevinMechanism,
    LangevinMechanismConfig,
    LaplaceMechanism,
    LaplaceMechanismConfig,
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
    TrainingMechanism,
    TrainingMechanismConfig,
    random_weights,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon

ALPHA = 1.25
DELTA = 1e-3
NUM_SAMPLES = 2000
RUNNER = privacy_test_runner_config


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism with claims so weak that its outputs on a pair of neighbours are almost
    disjoint.
    """

    mechanism: Any
    pair: tuple[Any, Any]

    @property
    def renyi_epsilon(self) -> float:
        claims = map(read_claim, self.mechanism.claimed_privacy)
        return next(c.epsilon for c in claims if isinstance(c, RenyiDp) and c.alpha == ALPHA)

    @property
    def epsilon_at_delta(self) -> float:
        """What the mechanism claims: pure DP, which is (epsilon, 0)-DP, or Gaussian DP."""
        claims = list(map(read_claim, self.mechanism.claimed_privacy))
        for claim in claims:
            if isinstance(claim, PureDp):
                return claim.epsilon
        (mu,) = (claim.mu for claim in claims if isinstance(claim, GaussianDp))
        return gaussian_dp_epsilon(mu, DELTA)


def gaussian() -> Case:
    config = GaussianMechanismConfig(noise_multiplier=0.125, alpha=ALPHA)
    return Case(GaussianMechanism(config), (np.zeros((0, 1)), np.ones((1, 1))))


def laplace() -> Case:
    config = LaplaceMechanismConfig(epsilon=10.0, alpha=ALPHA)
    return Case(LaplaceMechanism(config), (np.zeros((0, 1)), np.ones((1, 1))))


# The circular mean of one record, which is 0 in one dataset and pi in the other, at a low
# temperature.
CIRCLE = {"loss": CircularMeanLoss(num_records=1), "inverse_temperature": 10.0, "alphas": (ALPHA,)}
CIRCLE_PAIR = (np.array([[0.0]]), np.array([[math.pi]]))


def exponential() -> Case:
    return Case(ExponentialMechanism(ExponentialMechanismConfig(**CIRCLE)), CIRCLE_PAIR)


def shk() -> Case:
    config = ShkExponentialMechanismConfig(**CIRCLE, run_time=4.0)
    return Case(ShkExponentialMechanism(config), CIRCLE_PAIR)


def langevin() -> Case:
    return Case(LangevinMechanism(LangevinMechanismConfig(**CIRCLE, run_time=4.0)), CIRCLE_PAIR)


def birth_death_langevin() -> Case:
    config = BirthDeathLangevinMechanismConfig(
        **CIRCLE, run_time=1.5, num_particles=20, step_size=0.05
    )
    return Case(BirthDeathLangevinMechanism(config), CIRCLE_PAIR)


# One clipped gradient step on the canary, or on nothing.
DP_SGD = {
    "model": "logistic",
    "initial_weights": random_weights("logistic", (3,), 2, seed=0),
    "canary": (np.ones(3), 1),
    "num_classes": 2,
    "num_steps": 1,
    "noise_multiplier": 0.125,
    "learning_rate": 1.0,
}
DP_SGD_PAIR = (
    (np.zeros((0, 3)), np.zeros(0, dtype=int)),
    (np.ones((1, 3)), np.ones(1, dtype=int)),
)


def ensemble_dp_sgd() -> Case:
    return Case(EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**DP_SGD)), DP_SGD_PAIR)


def opacus_dp_sgd() -> Case:
    return Case(OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**DP_SGD)), DP_SGD_PAIR)


def training() -> Case:
    claims = [
        privacy_property.PrivacyProperty(renyi_dp=privacy_property.RenyiDp(ALPHA, 10.0)),
        privacy_property.PrivacyProperty(pure_dp=privacy_property.PureDp(10.0)),
    ]
    config = TrainingMechanismConfig(
        train=lambda data, seed: np.sum(data) + np.random.default_rng(seed).laplace(scale=0.1),
        observe=lambda total: total,
        claimed_privacy=claims,
    )
    return Case(TrainingMechanism(config), (np.zeros(0), np.ones(1)))


CASES = (
    gaussian,
    laplace,
    exponential,
    shk,
    langevin,
    birth_death_langevin,
    ensemble_dp_sgd,
    opacus_dp_sgd,
    training,
)


class Recorded:
    """Draws once for each dataset and hands the same outputs to every tester, which makes the tests
    quick.
    """

    def __init__(self, mechanism: Any) -> None:
        self.claimed_privacy = mechanism.claimed_privacy
        self._mechanism = mechanism
        self._outputs: dict[int, np.ndarray] = {}

    def __call__(self, dataset: Any, num_samples: int) -> np.ndarray:
        if id(dataset) not in self._outputs:
            self._outputs[id(dataset)] = self._mechanism(dataset, num_samples)
        return self._outputs[id(dataset)].copy()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param()
    return dataclasses.replace(made, mechanism=Recorded(made.mechanism))


@pytest.fixture(autouse=True)
def _seed_of_their_networks() -> None:
    tf.keras.utils.set_random_seed(0)


def approximate_dp(epsilon: float) -> privacy_property.ApproximateDp:
    return privacy_property.ApproximateDp(epsilon=epsilon, delta=DELTA)


def hockey_stick(epsilon: float) -> Any:
    return hockey_stick_tester.HockeyStickPropertyTester(
        property_tester_config.HockeyStickPropertyTesterConfig(
            training_config=property_tester_config.TrainingConfig(
                training_epochs=2, batch_size=50, optimizer_learning_rate=1e-2
            ),
            approximate_dp=approximate_dp(epsilon),
        ),
        hockey_stick_tester.make_default_hs_base_model(),
    )


def histogram(epsilon: float) -> Any:
    return histogram_tester.HistogramTester(
        property_tester_config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=False,
            histogram_size=9,
            min_value=-math.pi,
            max_value=math.pi,
            approximate_dp=approximate_dp(epsilon),
        )
    )


def mmd(epsilon: float) -> Any:
    return mmd_tester.MMDPropertyTester(
        property_tester_config.MMDPropertyTesterConfig(
            kernel=property_tester_config.Kernel.KERNEL_RBF,
            bandwidth=2.0,
            approximate_dp=approximate_dp(epsilon),
        )
    )


def renyi(epsilon: float) -> Any:
    return renyi_tester.RenyiPropertyTester(
        property_tester_config.RenyiPropertyTesterConfig(
            alpha=ALPHA,
            training_config=property_tester_config.TrainingConfig(
                training_epochs=15,
                batch_size=250,
                optimizer_learning_rate=1e-2,
                # exp(2 ALPHA 0.5) is 3.5: a bound that exists at this number of samples
                model_output_coordinate_bound=0.5,
            ),
            privacy_property=privacy_property.PrivacyProperty(
                renyi_dp=privacy_property.RenyiDp(alpha=ALPHA, epsilon=epsilon)
            ),
        ),
        renyi_tester.make_default_renyi_base_model(),
    )


def run(tester: Any, case: Case) -> Any:
    config = RUNNER.PrivacyTestRunnerConfig(
        property_tester=RUNNER.PropertyTester.UNSPECIFIED_TESTER,
        max_num_trials=1,
        failure_probability=0.025,
        num_samples=NUM_SAMPLES,
        post_processing=RUNNER.PostProcessing.NONE,
    )
    generator = constant_dataset_generator.ConstantDatasetGenerator(case.pair)
    runner = privacy_test_runner.PrivacyTestRunner(config, generator, tester)
    return runner.test_privacy(case.mechanism, "mechanism")


@pytest.mark.parametrize("make_tester", [histogram, mmd])
def test_the_claim_is_kept(case: Case, make_tester: Callable[[float], Any]) -> None:
    kept = run(make_tester(case.epsilon_at_delta), case)
    assert kept.termination_reason == RUNNER.TerminationReason.TRIAL_LIMIT_REACHED
    assert kept.lower_bound_divergence_estimates[0] <= DELTA


@pytest.mark.parametrize("make_tester", [hockey_stick, histogram, mmd])
def test_a_smaller_approximate_dp_claim_is_refuted(
    case: Case, make_tester: Callable[[float], Any]
) -> None:
    refuted = run(make_tester(0.1), case)
    assert refuted.termination_reason == RUNNER.TerminationReason.FOUND_PRIVACY_VIOLATION
    assert DELTA < refuted.lower_bound_divergence_estimates[0] <= 1.0


def test_a_smaller_renyi_claim_is_refuted_and_the_claim_is_kept(case: Case) -> None:
    refuted = run(renyi(0.1), case)
    assert refuted.termination_reason == RUNNER.TerminationReason.FOUND_PRIVACY_VIOLATION
    # A bound at this order: above the claim of 0.1, and not above what the mechanism really claims.
    assert 0.1 < refuted.lower_bound_divergence_estimates[0] <= case.renyi_epsilon
