"""The trade-off factor, its e-process and its information limit: validity from exact sums, false
alarms, tightness.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from dvrenyi_plugin.bounds.eprocess import sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import discrete_pair, gaussian_pair
from dvrenyi_plugin.bounds.trade_off_eprocess import TradeOffEProcess
from dvrenyi_plugin.bounds.trade_off_factor import keeps_claim, log_factors, nearest_null
from dvrenyi_plugin.bounds.trade_off_limit import certifiable_parameter, trade_off_growth
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.critics.simple_families import PolynomialLogRatio
from dvrenyi_plugin.interfaces import ZeroConcentratedDp
from dvrenyi_plugin.privacy.claim_families import SingleCurveFamily
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    BoundedRangeCurve,
    GaussianCurve,
    GroupCurve,
    MinimumCurve,
    PointsCurve,
)
from dvrenyi_plugin.privacy.trade_off_claims import dp_sgd_curve, renyi_curve, trade_off_curve
from dvrenyi_plugin.privacy.trade_off_families import ApproximateDpFamily, GaussianFamily

CURVES = {
    "gaussian": GaussianCurve(1.3),
    "approximate": ApproximateDpCurve(1.0, 0.01),
    "pure": ApproximateDpCurve(0.7),
    "bounded range": BoundedRangeCurve(2.0),
    "points": PointsCurve([0.1, 0.4], [0.5, 0.8]),
    "minimum": MinimumCurve([GaussianCurve(1.0), ApproximateDpCurve(1.0)]),
    "group": GroupCurve(ApproximateDpCurve(0.4, 0.01), 3),
    "renyi": renyi_curve(2.0, 0.5),
    "zcdp": trade_off_curve(ZeroConcentratedDp(0.3)),
    "sampled": dp_sgd_curve(20, 1.0, 0.1),
}
# Limits of 500 pairs at failure probability 0.05: section "information limit" of docs/trade_off.md.
LIMITS = {1.0: 0.8357, 2.0: 1.8068}


def linear_fit(samples_q, samples_p):
    """One family in place of seven: what is tested here does not depend on the choice, and it is
    fast.
    """
    return fit_log_ratio(samples_q, samples_p, (PolynomialLogRatio(1),))


# The factor.


@pytest.mark.parametrize("name", CURVES)
def test_the_mean_factor_is_at_most_one_over_claims_kept_exactly(name):
    """20,000 pairs of laws with Q(E_k) = F(P(E_k)): beliefs, thresholds, levels and laws are all
    random.
    """
    curve, rng = CURVES[name], np.random.default_rng(1)
    means = []
    for _ in range(200):
        cells = int(rng.integers(2, 8))
        believed_q, believed_p = (rng.dirichlet(np.ones(cells)) + 1e-6 for _ in range(2))
        thresholds = np.flatnonzero(rng.random(cells - 1) < 0.7) + 1
        levels = np.sort(expit(rng.normal(0.0, 3.0, (100, thresholds.size))), axis=1)[:, ::-1]
        log_u, log_v, _ = log_factors(
            believed_q / believed_q.sum(),
            believed_p / believed_p.sum(),
            thresholds,
            levels,
            curve.power(levels),
            curve.slope(levels),
        )
        tails_p = np.sort(expit(rng.normal(0.0, 3.0, (100, cells - 1))), axis=1)[:, ::-1]
        tails_q = curve.power(tails_p)
        laws = [
            -np.diff(np.pad(t, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0))), axis=1)
            for t in (tails_q, tails_p)
        ]
        means.append((np.exp(log_u) * laws[0]).sum(axis=1) * (np.exp(log_v) * laws[1]).sum(axis=1))
    largest = float(np.max(means))
    assert 0.95 < largest <= 1.0 + 1e-12


@pytest.mark.parametrize("name", CURVES)
def test_the_nearest_null_keeps_the_claim_and_its_factor_earns_the_rate(name):
    curve, rng = CURVES[name], np.random.default_rng(2)
    for _ in range(20):
        scores = np.sort(rng.normal(0.0, 2.0, 12))
        p = rng.dirichlet(np.full(12, 3.0)) + 1e-4
        q = p * np.exp(scores)
        q, p = q / q.sum(), p / p.sum()
        if keeps_claim(q, p, curve):
            continue
        null = nearest_null(q, p, curve)
        levels = null.levels[np.newaxis]
        growth = log_factors(
            q, p, null.thresholds, levels, curve.power(levels), curve.slope(levels)
        )[2]
        assert 0.8 * null.rate - 1e-4 <= growth[0] <= 1.01 * null.rate + 1e-4


# False alarms.


def laplace(rng, n):
    return rng.laplace(1.0, 1.0, n), rng.laplace(0.0, 1.0, n)


def gaussian(rng, n):
    return rng.normal(1.0, 1.0, n), rng.normal(0.0, 1.0, n)


def randomised_response(rng, n):
    truth = math.e / (1.0 + math.e)
    return rng.random(n) < truth, rng.random(n) > truth


def tied(rng, n):
    return np.round(rng.normal(1.0, 1.0, n)), np.round(rng.normal(0.0, 1.0, n))


def equal(rng, n):
    return rng.standard_cauchy(n), rng.standard_cauchy(n)


def unequal_counts(rng, n):
    return rng.normal(1.0, 1.0, 3 * n), rng.normal(0.0, 1.0, n)


@pytest.mark.parametrize(
    ("draw", "curve"),
    [
        (gaussian, GaussianCurve(1.0)),
        (laplace, ApproximateDpCurve(1.0)),
        (randomised_response, ApproximateDpCurve(1.0)),
        (tied, GaussianCurve(1.0)),
        (equal, GaussianCurve(0.01)),
        (unequal_counts, GaussianCurve(1.0)),
    ],
)
def test_true_claims_are_rarely_refuted(draw, curve):
    """100 repeats; more alarms than this happen with probability below 1e-3 when 5% are allowed."""
    rng, alarms, repeats = np.random.default_rng(3), 0, 100
    for _ in range(repeats):
        process = TradeOffEProcess(SingleCurveFamily(curve), 0.05, fit=linear_fit, warm_up=20)
        process.update(*(np.reshape(s, (-1, 1)).astype(float) for s in draw(rng, 100)))
        alarms += process.lower_bound > 0.0
    assert alarms <= stats.binom.ppf(0.999, repeats, 0.05)


def test_the_bound_in_a_family_rarely_exceeds_the_truth():
    """60 repeats at failure probability 0.2: more than this with probability below 1e-3."""
    rng, alarms = np.random.default_rng(4), 0
    for _ in range(60):
        process = TradeOffEProcess(GaussianFamily(), 0.2, fit=linear_fit, warm_up=20)
        process.update(*(s[:, np.newaxis] for s in gaussian(rng, 150)))
        alarms += process.lower_bound > 1.0
    assert alarms <= stats.binom.ppf(0.999, 60, 0.2)


# Power.


@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_bounds_from_500_pairs_are_near_the_limit(mu):
    bounds = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        process = TradeOffEProcess(GaussianFamily(), 0.05, warm_up=sample_size_warm_up(500))
        process.update(rng.normal(mu, 1.0, (500, 1)), rng.normal(0.0, 1.0, (500, 1)))
        bounds.append(process.lower_bound)
    assert np.mean(bounds) >= 0.93 * LIMITS[mu]


def pairs_until_refuted(seed):
    rng = np.random.default_rng(seed)
    process = TradeOffEProcess(SingleCurveFamily(GaussianCurve(1.0)), 0.05, warm_up=16)
    while process.num_pairs < 200 and process.lower_bound == 0.0:
        process.update(rng.normal(2.0, 1.0, (2, 1)), rng.normal(0.0, 1.0, (2, 1)))
    return process.num_pairs


def test_half_the_noise_is_refuted_by_a_median_of_40_pairs():
    assert np.median([pairs_until_refuted(seed) for seed in range(24)]) <= 40


def test_a_subsampled_claim_is_refuted_by_twice_its_leakage():
    rng = np.random.default_rng(5)
    process = TradeOffEProcess(SingleCurveFamily(CURVES["sampled"]), 0.05)
    process.update(rng.normal(2.0, 1.0, (300, 1)), rng.normal(0.0, 1.0, (300, 1)))
    assert process.lower_bound == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_laws_far_apart_are_cut_in_the_gap_between_them(seed):
    """A cut at the outermost sample cost 6.5 nats at each new outermost one, and this claim stood
    after 1,000 pairs."""
    rng = np.random.default_rng(seed)
    process = TradeOffEProcess(ApproximateDpFamily(1e-5), 0.05, claims=[4.377], fit=linear_fit)
    process.update(rng.normal(250.0, 1.0, (300, 1)), rng.normal(0.0, 1.0, (300, 1)))
    assert process.lower_bound > 4.377


def test_unequal_counts_certify_more_than_the_rarer_count_alone():
    bounds = []
    for count in (150, 1500):
        rng = np.random.default_rng(6)
        process = TradeOffEProcess(GaussianFamily(), 0.05, claims=(0.5,), fit=linear_fit)
        process.update(rng.normal(1.0, 1.0, (150, 1)), rng.normal(0.0, 1.0, (count, 1)))
        bounds.append(process.lower_bound)
        assert process.num_samples == (150, count)
    assert 0.3 < bounds[0] < bounds[1] < 1.0


# The limit.


def test_the_information_limit():
    for mu, limit in LIMITS.items():
        pair = gaussian_pair(mu, 8.0)
        assert certifiable_parameter(pair, GaussianFamily(), 500, 0.05) == pytest.approx(
            limit, abs=2e-3
        )
        assert trade_off_growth(pair, GaussianCurve(1.01 * mu))[0] == pytest.approx(0.0, abs=1e-6)
    # One threshold: the nearest null is explicit. Q' = F(a), P' = a for the coins 0.9 and 0.1, by
    # search.
    curve, a = ApproximateDpCurve(1.0), np.linspace(0.1, 0.5, 100_001)
    b = curve.power(a)
    cost = -0.9 * np.log(b / 0.9) - 0.1 * np.log((1 - b) / 0.1)
    cost += -0.1 * np.log(a / 0.1) - 0.9 * np.log((1 - a) / 0.9)
    coins = discrete_pair([0.1, 0.9], [0.9, 0.1])
    assert trade_off_growth(coins, curve)[0] == pytest.approx(cost.min(), rel=1e-3)
    assert certifiable_parameter(coins, ApproximateDpFamily(0.0), 1, 0.05) == 0.0


def test_too_few_pairs_are_known_beforehand():
    process = TradeOffEProcess(
        ApproximateDpFamily(0.0), 0.05, claims=(2.0,), fit=linear_fit, warm_up=5
    )
    fewest = next(n for n in range(5, 200) if process.can_reject(2.0, n))
    samples = np.ones((fewest - 1, 1)), np.zeros((fewest - 1, 1))
    process.update(*samples)
    assert process.lower_bound <= 2.0
    process.update(np.ones((30, 1)), np.zeros((30, 1)))
    assert process.lower_bound > 2.0


def test_bad_input():
    with pytest.raises(ValueError, match="family must be a TradeOffFamily"):
        TradeOffEProcess(GaussianCurve(1.0), 0.05)
    with pytest.raises(ValueError, match="num_cells must be"):
        TradeOffEProcess(GaussianFamily(), 0.05, num_cells=1)
    with pytest.raises(ValueError, match="failure_probability must be"):
        TradeOffEProcess(GaussianFamily(), 1.0)
    with pytest.raises(ValueError, match="claims must be"):
        TradeOffEProcess(GaussianFamily(), 0.05, claims=(-1.0,))
    process = TradeOffEProcess(GaussianFamily(), 0.05)
    with pytest.raises(ValueError, match="mu must be"):
        process.can_reject(-1.0, 100)
    with pytest.raises(ValueError, match="at least 1 pair"):
        process.point_estimate()
    with pytest.raises(ValueError, match="num_pairs must be"):
        certifiable_parameter(gaussian_pair(1.0), GaussianFamily(), 0, 0.05)


def test_constant_samples_certify_nothing():
    process = TradeOffEProcess(GaussianFamily(), 0.05)
    process.update(np.ones((100, 2)), np.ones((100, 2)))
    assert process.lower_bound == 0.0 and process.point_estimate() == 0.0
