"""The neural Donsker-Varadhan tester: valid on true claims, not vacuous on false ones, firm at the
door."""

from __future__ import annotations

import copy
import dataclasses
import math
import types

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    TrainingConfig,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.privacy.divergences import renyi_exponential, renyi_pure_dp
from dvrenyi_plugin.testers import (
    BoundResult,
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
)

torch.set_num_threads(1)
# A short training changes how tight a bound is, never whether it holds.
QUICK = TrainingConfig(training_epochs=8, batch_size=1000)
CLAIM = PrivacyProperty(renyi_dp=RenyiDp(alpha=2.0, epsilon=1.0))


def make_tester(privacy_property=CLAIM, base_model=None, **settings):
    settings = {"training_config": QUICK, **settings}
    return DvRenyiPropertyTester(
        DvRenyiPropertyTesterConfig(privacy_property=privacy_property, **settings), base_model
    )


def gaussians(seed, mu, count):
    rng = np.random.default_rng([seed, count])
    return rng.normal(mu, 1.0, count), rng.normal(0.0, 1.0, count)


@pytest.fixture(scope="module")
def result_at_5000():
    """mu = 1, alpha = 2, D = 1, with the default training."""
    return DvRenyiPropertyTester(
        DvRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.55)))
    ).audit(*gaussians(0, 1.0, 5000), 0.05)


def test_bound_at_5000_samples_is_tight_and_below_the_divergence(result_at_5000):
    assert 0.6 <= result_at_5000.lower_bound <= 1.0
    assert result_at_5000.refuted
    assert result_at_5000.point_estimate == pytest.approx(1.0, abs=0.25)
    assert result_at_5000.lower_bound < result_at_5000.point_estimate


def test_bound_is_on_the_divergence_scale_not_the_variational_one(result_at_5000):
    # R_2 = D_2 / 2 = mu^2 / 2 = 0.5 could never be exceeded on the other scale
    assert result_at_5000.lower_bound > 0.5


def test_result_keeps_what_decided_it(result_at_5000):
    assert isinstance(result_at_5000, BoundResult)
    assert result_at_5000.num_fit == (2000, 2000)
    assert result_at_5000.num_certify == (3000, 3000)
    assert result_at_5000.alpha == 2.0
    assert result_at_5000.claimed_limit == 0.55
    assert result_at_5000.failure_probability == 0.05
    assert "eprocess" in result_at_5000.method
    low, high = result_at_5000.critic_range
    assert low < high
    # a claim is refuted exactly when its e-value reaches 1 / failure probability
    assert result_at_5000.details["log_e_value_of_claim"] >= math.log(1 / 0.05)


def test_betting_certificate_is_a_function_of_its_two_means():
    result = make_tester(bound_method="betting").audit(*gaussians(3, 1.5, 500), 0.05)
    details = result.details
    assert details["failure_probability_of_each_mean"] == 0.025
    assert 0.5 < result.lower_bound < 2.25
    assert result.lower_bound == pytest.approx(
        2.0 * math.log(details["numerator_mean_lower_bound"])
        - math.log(details["denominator_mean_upper_bound"])
    )


@pytest.mark.parametrize("bound_method", ["betting", "eprocess"])
@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_true_claims_are_seldom_refuted(mu, bound_method):
    """20 pairs exactly at the claim, failure probability 0.2; false-alarm rate of this test below
    1e-3."""
    claim = PrivacyProperty(renyi_dp=RenyiDp(2.0, mu**2))
    refuted = [
        make_tester(claim, seed=seed, bound_method=bound_method)
        .audit(*gaussians(seed, mu, 120), 0.2)
        .refuted
        for seed in range(20)
    ]
    assert sum(refuted) <= binom.ppf(1.0 - 1e-3, 20, 0.2)


def test_false_claim_is_refuted_at_500_samples():
    samples = gaussians(1, 2.0, 500)
    bound = make_tester().estimate_lower_bound(*samples, 0.05)
    assert make_tester().reject_property(bound)
    assert bound <= 4.0


def test_g10_several_critics_share_one_certificate_and_average_their_estimates():
    pair = gaussians(0, 1.5, 300)
    one, three = (make_tester(num_critics=count).audit(*pair, 0.05) for count in (1, 3))
    assert three.lower_bound == one.lower_bound
    each = three.details["point_estimates"]
    assert each[0] == pytest.approx(one.point_estimate) and len(set(each)) == 3
    assert three.point_estimate == pytest.approx(np.mean(each))
    assert "point_estimates" not in one.details


def test_both_directions_of_an_asymmetric_pair():
    """Exponential laws with means 7 and 3; the numerator is the first sample."""
    rng = np.random.default_rng(0)
    long, short = rng.exponential(7.0, 4000), rng.exponential(3.0, 4000)
    claim = PrivacyProperty(renyi_dp=RenyiDp(1.5, 0.5))
    forward = make_tester(claim).estimate_lower_bound(long, short, 0.05)
    backward = make_tester(claim).estimate_lower_bound(short, long, 0.05)
    assert renyi_exponential(1.5, 7.0, 3.0) == pytest.approx(1.349927, abs=1e-6)
    assert 0.4 < forward <= 1.349927
    assert 0.1 < backward <= renyi_exponential(1.5, 3.0, 7.0) < forward


@pytest.mark.parametrize("mu", [0.0, 0.05, -0.05])
def test_weak_or_negative_evidence_gives_zero(mu):
    bound = make_tester().estimate_lower_bound(*gaussians(3, mu, 200), 0.05)
    assert type(bound) is float
    assert bound == 0.0


def test_no_certificate_is_zero_where_a_chernoff_radius_is_not_a_number():
    # 402 certifying samples, critic range 1, alpha 2: log((1 + g) / (1 - g)) has g > 1
    config = TrainingConfig(training_epochs=8, batch_size=1000, model_output_coordinate_bound=1.0)
    samples = gaussians(0, 0.0, 670)
    result = make_tester(training_config=config).audit(*samples, 0.05)
    assert result.num_certify == (402, 402)
    assert result.lower_bound == 0.0
    assert not result.refuted


def test_smallest_samples_and_failure_probabilities_certify_nothing():
    for failure_probability in (1e-100, 0.5):
        result = make_tester().audit(np.arange(8.0) + 100.0, np.arange(8.0), failure_probability)
        assert 0.0 <= result.lower_bound < math.inf
    assert make_tester().estimate_lower_bound(np.arange(8.0), np.arange(8.0), 1e-100) == 0.0


def test_high_order_in_float32_does_not_overflow():
    claim = PrivacyProperty(renyi_dp=RenyiDp(64.0, 1.0))
    config = TrainingConfig(training_epochs=8, batch_size=1000, model_output_coordinate_bound=2.0)
    first, second = (part.astype(np.float32) for part in gaussians(0, 1.0, 800))
    result = make_tester(claim, training_config=config).audit(first, second, 0.05)
    # any order's divergence is at least the KL divergence 0.5, and D_64 is 32
    assert 0.1 < result.lower_bound <= 32.0
    assert math.isfinite(result.point_estimate)


def test_strongly_separated_laws_give_a_large_finite_bound():
    rng = np.random.default_rng(0)
    result = make_tester().audit(rng.normal(50.0, 1.0, 400), rng.normal(0.0, 1.0, 400), 0.05)
    # 240 certifying samples without one error: about 2 log(240 / log 40) nats at best
    assert 2.5 < result.lower_bound < 10.0


def test_several_columns_use_all_of_them():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.7, 1.0, (1500, 4)), rng.normal(0.0, 1.0, (1500, 4))
    bound = make_tester().estimate_lower_bound(first, second, 0.05)
    assert 0.7**2 < bound <= 4 * 0.7**2  # more than any one column allows


def test_pure_dp_threshold_is_that_of_randomised_response():
    claim = PrivacyProperty(pure_dp=PureDp(0.1))
    unit = make_tester(claim, alpha=2.0)
    assert renyi_pure_dp(2.0, 0.1) == pytest.approx(0.0099586, abs=1e-7)
    assert unit.reject_property(0.00996)
    assert not unit.reject_property(0.00995)


@pytest.mark.parametrize(
    ("claim", "threshold"),
    [
        (PrivacyProperty(gaussian_dp=GaussianDp(2.0)), 1.5 * 2.0**2 / 2.0),
        (PrivacyProperty(zero_concentrated_dp=ZeroConcentratedDp(0.5)), 1.5 * 0.5),
        (PrivacyProperty(pure_dp=PureDp(0.0)), 0.0),
        (PrivacyProperty(renyi_dp=RenyiDp(1.5, 0.3)), 0.3),
    ],
)
def test_thresholds_of_claims_at_the_order_of_the_config(claim, threshold):
    unit = make_tester(claim, alpha=1.5)
    assert unit.audit(*gaussians(0, 0.0, 20), 0.05).claimed_limit == pytest.approx(threshold)
    assert unit.reject_property(threshold + 1e-6)
    assert not unit.reject_property(threshold)


def test_claims_it_cannot_refute_are_refused():
    with pytest.raises(ValueError, match="approximate_dp"):
        make_tester(PrivacyProperty(approximate_dp=ApproximateDp(1.0, 1e-5)))
    with pytest.raises(ValueError, match=r"alpha must be the claim's own order 2\.0, got 3"):
        make_tester(CLAIM, alpha=3.0)


def test_objects_of_another_package_are_accepted_by_shape_and_handed_back():
    claim = types.SimpleNamespace(
        renyi_dp=types.SimpleNamespace(alpha=2.0, epsilon=1.0), pure_dp=None, approximate_dp=None
    )
    training = types.SimpleNamespace(
        training_epochs=8,
        batch_size=1000,
        optimizer_learning_rate=1e-3,
        model_output_coordinate_bound=None,
        verbose=0,
    )
    before = copy.deepcopy((claim, training))
    theirs = make_tester(claim, training_config=training)
    samples = gaussians(0, 1.5, 100)
    bound = theirs.estimate_lower_bound(*samples, 0.05)
    assert theirs.privacy_property is claim
    assert (claim, training) == before
    assert bound == make_tester().estimate_lower_bound(*samples, 0.05) > 0.0


def test_testers_that_share_model_and_config_do_not_interact():
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    weights = copy.deepcopy(model.state_dict())
    config = DvRenyiPropertyTesterConfig(CLAIM, QUICK)
    samples = gaussians(0, 3.0, 200)
    alone = DvRenyiPropertyTester(config, copy.deepcopy(model)).audit(*samples, 0.05)
    first, second = DvRenyiPropertyTester(config, model), DvRenyiPropertyTester(config, model)
    given = copy.deepcopy(samples)
    results = [unit.audit(*samples, 0.05) for unit in (first, second, first)]
    assert {result.lower_bound for result in results} == {alone.lower_bound}
    assert {result.point_estimate for result in results} == {alone.point_estimate}
    assert len(model) == 3
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert config == DvRenyiPropertyTesterConfig(CLAIM, QUICK)
    assert all(np.array_equal(*pair) for pair in zip(given, samples, strict=True))


def test_split_is_random_and_follows_the_seed():
    samples = gaussians(0, 2.0, 200)
    first, again, other = (make_tester(seed=seed).audit(*samples, 0.05) for seed in (0, 0, 1))
    assert first == again
    # not the bounds: they lie on a grid of nulls, and two splits may end at the same one
    assert first.point_estimate != other.point_estimate
    # sorted outputs: a split by position would certify on laws the critic has never seen
    ordered = [np.sort(part) for part in samples]
    assert make_tester().estimate_lower_bound(*ordered, 0.05) > 0.5


def test_shapes_dtypes_lists_and_unequal_counts():
    first, second = gaussians(0, 3.0, 200)
    expected = make_tester().estimate_lower_bound(first, second, 0.05)
    assert expected > 0.5
    assert make_tester().estimate_lower_bound(first[:, None], second, 0.05) == expected
    assert make_tester().estimate_lower_bound(first.tolist(), second.tolist(), 0.05) == expected
    for dtype in (np.float16, np.float32, np.int8):
        bound = make_tester().estimate_lower_bound(first.astype(dtype), second.astype(dtype), 0.05)
        assert 0.5 < bound < 9.0
    result = make_tester().audit(first, second[:120], 0.05)
    assert result.lower_bound > 0.3
    assert result.num_fit == (80, 48)
    assert result.num_certify == (120, 72)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 1.0),
        ("alpha", math.nan),
        ("alpha", math.inf),
        ("seed", -1),
        ("fit_fraction", 0.0),
        ("fit_fraction", 1.0),
        ("bound_method", "hope"),
        ("training_config", object()),
        ("privacy_property", object()),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        DvRenyiPropertyTesterConfig(**{"privacy_property": CLAIM, field: value})


def test_config_is_frozen_and_epsilon_zero_is_a_legal_claim():
    config = DvRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.0)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]
    assert DvRenyiPropertyTester(config).reject_property(1e-9)
    assert not DvRenyiPropertyTester(config).reject_property(0.0)
