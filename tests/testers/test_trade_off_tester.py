"""TradeOffPropertyTester: every kind of claim, bounds on the claim's own scale, and what it must
refuse."""

import math

import numpy as np
import pytest

from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    BoundedRangeDp,
    GaussianDp,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    as_privacy_property,
    claim_level,
)
from dvrenyi_plugin.testers import TradeOffPropertyTester, TradeOffPropertyTesterConfig

# N(2, 1) against N(0, 1) breaks all of these, N(0.3, 1) none.
CLAIMS = (
    GaussianDp(1.0),
    PureDp(1.5),
    ApproximateDp(1.5, 1e-3),
    RenyiDp(2.0, 1.0),
    ZeroConcentratedDp(0.5),
    SubsampledGaussianDp(0.8, 0.5, 1),
    BoundedRangeDp(2.5),
)


def new_tester(claim, **settings):
    config = TradeOffPropertyTesterConfig(as_privacy_property(claim), **settings)
    return TradeOffPropertyTester(config)


def shifted(mu, n, m=None, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(mu, 1.0, n), rng.normal(0.0, 1.0, m or n)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: type(claim).__name__)
def test_false_claims_are_refuted_and_true_ones_kept(claim):
    tester = new_tester(claim)
    broken = tester.audit(*shifted(2.0, 300), 0.05)
    kept = tester.audit(*shifted(0.3, 300), 0.05)
    assert broken.refuted and tester.reject_property(broken.lower_bound)
    assert not kept.refuted and not tester.reject_property(kept.lower_bound)
    assert broken.claimed_limit == claim_level(claim)
    assert broken.details["log_e_value_of_claim"] >= math.log(20.0)
    parameters = ("mu", "epsilon", "rho", "1 / noise multiplier", "width")
    assert broken.details["family"] and broken.details["parameter"] in parameters
    assert broken.details["one_order_tests_both"] and broken.alpha is None


def test_bounds_are_on_the_scale_of_the_claim():
    laws = shifted(2.0, 500)
    mu = new_tester(GaussianDp(1.0)).estimate_lower_bound(*laws, 0.05)
    assert 1.5 < mu < 2.0
    rng = np.random.default_rng(1)
    laplace = rng.laplace(1.0, 1.0, 1000), rng.laplace(0.0, 1.0, 1000)
    assert 0.65 < new_tester(PureDp(0.2)).estimate_lower_bound(*laplace, 0.05) < 1.0
    at_delta = new_tester(ApproximateDp(0.2, 0.05)).estimate_lower_bound(*laplace, 0.05)
    assert 0.4 < at_delta < 1.0
    rho = new_tester(ZeroConcentratedDp(0.5)).estimate_lower_bound(*laws, 0.05)
    assert 0.5 < rho < 0.5 + 1e-6


def subsampled(rng, n):
    """One release with noise 0.5 on a sum that a quarter of the runs sees the record of."""
    return rng.normal(rng.random(n) < 0.25, 0.5), rng.normal(0.0, 0.5, n)


@pytest.mark.parametrize(("direction", "order"), [("remove", 1), ("add", -1), ("both", 1)])
def test_subsampled_claims_are_kept_and_broken_in_either_direction(direction, order):
    """False alarms: more than 5 of 40 have a chance of 1.4% at 5% per run; seeds are fixed."""
    kept, broken = (
        new_tester(SubsampledGaussianDp(noise, 0.25, 1), direction=direction)
        for noise in (0.5, 1.0)
    )
    alarms = 0
    for seed in range(40):
        laws = subsampled(np.random.default_rng(seed), 200)[::order]
        alarms += kept.audit(*laws, 0.05).refuted
    assert alarms <= 5
    result = broken.audit(*subsampled(np.random.default_rng(0), 1000)[::order], 0.05)
    assert result.refuted and 1.0 < result.lower_bound < 1.0 + 1e-6
    assert math.isnan(result.point_estimate)


def test_a_wider_claim_has_the_bound_of_a_narrow_one():
    """The claim only adds a null of its own: where it lies in between, the bound is the
    family's."""
    laws = shifted(2.0, 400)
    bounds = [new_tester(GaussianDp(mu)).estimate_lower_bound(*laws, 0.05) for mu in (0.5, 8.0)]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.02)


def test_results_depend_on_the_samples_and_the_seed_alone():
    tester, laws = new_tester(GaussianDp(1.0), seed=3), shifted(1.5, 200, 500)
    first = tester.audit(*laws, 0.05)
    assert tester.audit(*laws, 0.05).lower_bound == first.lower_bound
    assert first.seed == 3 and first.num_fit[0] < 200 and first.num_certify[1] > 0


def test_few_samples_say_how_many_it_takes():
    result = new_tester(PureDp(1.5)).audit(*shifted(2.0, 6), 0.05)
    assert not result.refuted and result.fewest_samples > 6
    vacuous = new_tester(ApproximateDp(1.0, 1.0)).audit(*shifted(2.0, 20), 0.05)
    assert vacuous.fewest_samples == math.inf and vacuous.lower_bound == 0.0


def test_samples_may_arrive_in_batches():
    process = new_tester(GaussianDp(1.0)).start(0.05)
    laws = shifted(2.0, 200)
    for start in range(0, 200, 10):
        process.update(*(s[start : start + 10, np.newaxis] for s in laws))
        if process.lower_bound > 1.0:
            break
    assert 1.0 < process.lower_bound < 2.0
    assert process.num_pairs < 200


def test_vectors_and_the_network():
    rng = np.random.default_rng(5)
    q, p = rng.normal(0.0, 1.0, (2, 300, 3))
    bound = new_tester(GaussianDp(1.0)).estimate_lower_bound(q + np.array([2.0, 0.0, 0.0]), p, 0.05)
    assert 1.0 < bound < 2.0
    by_network = new_tester(GaussianDp(1.0), log_ratio="network")
    assert by_network.audit(q[:60], p[:60], 0.05).lower_bound < 1.0


def test_zero_claims_are_refuted_by_any_difference():
    for claim in (GaussianDp(0.0), PureDp(0.0), ZeroConcentratedDp(0.0)):
        assert new_tester(claim).audit(*shifted(2.0, 100), 0.05).refuted


@pytest.mark.parametrize(
    ("claim", "settings", "message"),
    [
        (GaussianDp(1e3), {}, "mu must be"),
        (PureDp(1e4), {}, "epsilon must be"),
        (GaussianDp(1.0), {"log_ratio": "best"}, "log_ratio must be"),
        (GaussianDp(1.0), {"warm_up": 1}, "warm_up must be"),
        (GaussianDp(1.0), {"seed": -1}, "seed must be"),
    ],
)
def test_bad_settings(claim, settings, message):
    with pytest.raises(ValueError, match=message):
        new_tester(claim, **settings)
