"""The known-log-ratio tester against laws whose divergence is known."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dvrenyi_plugin.bounds.paper_theorems import bounded_loss_lower_bound, markov_lower_bound
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.privacy.divergences import renyi_bernoulli, renyi_laplace, renyi_pure_dp
from dvrenyi_plugin.testers.likelihood_ratio_tester import (
    LikelihoodRatioTester,
    LikelihoodRatioTesterConfig,
)

RENYI = PrivacyProperty(renyi_dp=RenyiDp(1.25, 0.5))


def laplace_log_ratio(samples):
    """log of Laplace(1, 1) over Laplace(0, 1)."""
    return np.abs(samples[:, 0]) - np.abs(samples[:, 0] - 1.0)


def laplace_pair(seed, n):
    rng = np.random.default_rng(seed)
    return rng.laplace(1.0, 1.0, n), rng.laplace(0.0, 1.0, n)


def build(claim=RENYI, log_ratio=laplace_log_ratio, **settings):
    return LikelihoodRatioTester(
        LikelihoodRatioTesterConfig(privacy_property=claim, log_ratio=log_ratio, **settings)
    )


def test_bounds_are_the_theorems_at_samples2():
    first, second = laplace_pair(0, 1000)
    logs = laplace_log_ratio(second[:, np.newaxis])
    markov = build().audit(first, second, 0.05)
    assert markov.lower_bound == markov_lower_bound(1.25, logs, 0.05)
    assert "upper_bound" not in markov.details
    bounded = build(bound_method="bounded", largest_log_ratio=1.0).audit(first, second, 0.05)
    assert bounded.lower_bound == bounded_loss_lower_bound(1.25, logs, 1.0, 0.05)
    assert bounded.point_estimate == markov.point_estimate
    assert bounded.num_certify == (0, 1000)
    assert bounded.critic_range == (-math.inf, 1.0)
    assert "B.3" in bounded.method and "3.1" in markov.method


def test_interval_closes_in_on_the_truth_in_the_right_direction():
    # D(law 1 || law 2) of unequal laws, and the other way round with the negated log ratio.
    p, q, n = 0.6, 0.3, 200_000
    logs = {
        (p, q): lambda s: np.where(s[:, 0] == 1.0, math.log(p / q), math.log((1 - p) / (1 - q))),
        (q, p): lambda s: np.where(s[:, 0] == 1.0, math.log(q / p), math.log((1 - q) / (1 - p))),
    }
    rng = np.random.default_rng(0)
    values = {}
    for (first, second), log_ratio in logs.items():
        tester = build(
            PrivacyProperty(renyi_dp=RenyiDp(3.0, 1.0)),
            log_ratio,
            bound_method="bounded",
            largest_log_ratio=math.log(2.0),
            absolutely_continuous=True,
        )
        result = tester.audit(rng.binomial(1, first, n), rng.binomial(1, second, n), 0.05)
        truth = renyi_bernoulli(3.0, first, second)
        assert 0.95 * truth < result.lower_bound < truth
        assert truth < result.details["upper_bound"] < 1.05 * truth
        values[first] = result.lower_bound
    assert abs(values[p] - values[q]) > 0.01  # the two directions differ and are told apart


@pytest.mark.parametrize("bound_method", ["markov", "bounded"])
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_coverage_at_the_claim(bound_method, beta):
    repeats, alpha = 1000, 2.0
    truth = renyi_laplace(alpha, 1.0, 0.0)
    tester = build(
        PrivacyProperty(renyi_dp=RenyiDp(alpha, truth)),
        bound_method=bound_method,
        largest_log_ratio=1.0,
        absolutely_continuous=True,
    )
    rng = np.random.default_rng(1)
    below = above = 0
    for _ in range(repeats):
        result = tester.audit(rng.laplace(1.0, 1.0, 50), rng.laplace(0.0, 1.0, 50), beta)
        below += result.refuted
        above += result.details["upper_bound"] < truth
    # One-sided binomial tests at 1e-3 each.
    assert below <= binom.ppf(1.0 - 1e-3, repeats, beta)
    assert above <= binom.ppf(1.0 - 1e-3, repeats, beta)


def test_refutes_a_false_claim():
    tester = build(
        PrivacyProperty(renyi_dp=RenyiDp(1.25, 0.1)), bound_method="bounded", largest_log_ratio=1.0
    )
    result = tester.audit(*laplace_pair(2, 20_000), 0.05)
    assert result.refuted
    assert tester.reject_property(result.lower_bound)
    assert not tester.reject_property(0.1)
    with pytest.raises(ValueError, match="lower_bound"):
        tester.reject_property(math.nan)


@pytest.mark.parametrize(
    ("claim", "alpha", "threshold"),
    [
        (PrivacyProperty(pure_dp=PureDp(0.1)), 2.0, 0.0099586),
        (PrivacyProperty(gaussian_dp=GaussianDp(0.5)), 2.0, 0.25),
        (PrivacyProperty(zero_concentrated_dp=ZeroConcentratedDp(0.3)), 2.0, 0.6),
        (RENYI, 1.25, 0.5),
    ],
)
def test_claims_without_an_order_use_two(claim, alpha, threshold):
    result = build(claim).audit(*laplace_pair(0, 10), 0.05)
    assert result.alpha == alpha
    assert result.claimed_limit == pytest.approx(threshold, rel=1e-5)


def test_order_can_be_set_for_claims_without_one():
    result = build(PrivacyProperty(pure_dp=PureDp(1.0)), alpha=5.0).audit(
        *laplace_pair(0, 10), 0.05
    )
    assert (result.alpha, result.claimed_limit) == (5.0, renyi_pure_dp(5.0, 1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"claim": PrivacyProperty(approximate_dp=ApproximateDp(1.0, 1e-5))}, "no Rényi bound"),
        ({"log_ratio": 3.0}, "log_ratio must be callable"),
        ({"bound_method": "chernoff"}, "bound_method"),
        ({"bound_method": "bounded"}, "largest_log_ratio"),
        ({"largest_log_ratio": -1.0}, "largest_log_ratio"),
        ({"alpha": 2.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        build(**settings)


@pytest.mark.parametrize(
    ("log_ratio", "message"),
    [
        (lambda s: s, r"shape \(10,\)"),
        (lambda s: np.zeros(3), r"shape \(10,\)"),
        (lambda s: np.full(len(s), np.nan), "NaN, got 10 of 10"),
        (lambda s: np.full(len(s), np.inf), "inf"),
    ],
)
def test_bad_log_ratio_values(log_ratio, message):
    with pytest.raises(ValueError, match=message):
        build(log_ratio=log_ratio).audit(*laplace_pair(0, 10), 0.05)


def test_assumption_broken_by_the_data_is_an_error():
    tester = build(bound_method="bounded", largest_log_ratio=0.5)
    with pytest.raises(ValueError, match="bounded-loss assumption"):
        tester.audit(*laplace_pair(0, 100), 0.05)


def test_caller_arrays_are_untouched_even_by_a_careless_log_ratio():
    def careless(samples):
        samples += 1.0
        return samples[:, 0] * 0.0

    first, second = laplace_pair(0, 10)
    kept = second.copy()
    build(log_ratio=careless).audit(first, second, 0.05)
    assert (second == kept).all()


def test_no_mass_under_law_one_certifies_nothing():
    tester = build(log_ratio=lambda s: np.full(len(s), -np.inf))
    result = tester.audit(*laplace_pair(0, 10), 0.05)
    assert result.lower_bound == 0.0
    assert result.point_estimate == 0.0


@pytest.mark.parametrize("bound_method", ["markov", "bounded"])
def test_either_order_keeps_the_weaker_bound_of_the_two_signs(bound_method):
    settings = {
        "bound_method": bound_method,
        "largest_log_ratio": 1.0,
        "absolutely_continuous": True,
    }
    samples = laplace_pair(3, 4000)
    for first, second in (samples, samples[::-1]):
        signs = [
            build(log_ratio=ratio, **settings).audit(first, second, 0.05)
            for ratio in (laplace_log_ratio, lambda s: -laplace_log_ratio(s))
        ]
        both = build(either_order=True, **settings).audit(first, second, 0.05)
        assert both.lower_bound == min(sign.lower_bound for sign in signs)
        assert both.point_estimate == min(sign.point_estimate for sign in signs)
        assert both.details["upper_bound"] == max(sign.details["upper_bound"] for sign in signs)


def test_either_order_is_right_where_one_sign_is_wrong():
    # A mechanism at its claim whose two directions differ: the wrong sign refutes it, either order
    # does not.
    p, q, n = 0.6, 0.3, 20_000
    logs = np.log([(1 - p) / (1 - q), p / q])
    rng = np.random.default_rng(0)
    law1, law2 = (rng.random(n) < p).astype(float), (rng.random(n) < q).astype(float)
    truth = max(renyi_bernoulli(1.25, p, q), renyi_bernoulli(1.25, q, p))
    claim = PrivacyProperty(renyi_dp=RenyiDp(1.25, truth))
    settings = {
        "log_ratio": lambda s: logs[s[:, 0].astype(int)],
        "bound_method": "bounded",
        "largest_log_ratio": float(np.abs(logs).max()),
    }
    assert build(claim, **settings).audit(law2, law1, 0.05).refuted
    either = build(claim, either_order=True, **settings)
    for first, second in ((law1, law2), (law2, law1)):
        result = either.audit(first, second, 0.05)
        assert not result.refuted
        assert result.lower_bound > 0.5 * truth


def test_either_order_where_law_one_has_no_mass_has_one_sign():
    values = np.array([-np.inf, 0.5])
    tester = build(log_ratio=lambda s: values[s[:, 0].astype(int)], either_order=True)
    plain = build(log_ratio=lambda s: values[s[:, 0].astype(int)])
    first, second = np.ones(50), np.repeat([0.0, 1.0], 25)
    assert tester.audit(first, second, 0.05).point_estimate == (
        plain.audit(first, second, 0.05).point_estimate
    )


def test_f11_either_order_where_law_two_has_no_mass_has_the_other_sign():
    values = np.array([np.inf, 0.5])
    tester = build(log_ratio=lambda s: values[s[:, 0].astype(int)], either_order=True)
    negative = build(log_ratio=lambda s: -values[s[:, 0].astype(int)])
    samples = np.array([0.0, 1.0, 0.0])
    assert tester.audit(samples, samples, 0.05) is not None
    assert tester.estimate_lower_bound(samples, samples, 0.05) == negative.estimate_lower_bound(
        samples, samples, 0.05
    )
    result = tester.audit(samples, samples, 0.05)
    assert result.details["largest_log_ratio_seen"] == -0.5
    both = np.array([np.inf, -np.inf])
    with pytest.raises(ValueError, match="2 infinite values of both signs"):
        build(log_ratio=lambda s: both[s[:, 0].astype(int)], either_order=True).audit(
            samples[:2], samples[:2], 0.05
        )


def test_e7_a_log_ratio_that_looks_at_other_rows_is_refused():
    samples = np.random.default_rng(0).standard_normal(50)
    with pytest.raises(ValueError, match="log_ratio must treat rows one by one"):
        build(log_ratio=lambda s: s[:, 0] - s[:, 0].mean()).audit(samples, samples, 0.05)


def test_e1_a_log_ratio_may_change_its_argument():
    def in_place(samples):
        samples *= 0.5
        return samples[:, 0]

    samples = np.random.default_rng(0).standard_normal(50)
    pure = build(log_ratio=lambda s: 0.5 * s[:, 0]).audit(samples, samples, 0.05)
    assert build(log_ratio=in_place).audit(samples, samples, 0.05).lower_bound == pure.lower_bound


def test_either_order_must_be_a_truth_value():
    with pytest.raises(ValueError, match="either_order must be True or False, got 1"):
        build(either_order=1)


def test_g1_an_upper_bound_needs_the_word_that_law_1_has_no_mass_elsewhere():
    def log_ratio(samples):
        x = samples[:, 0]
        return np.where(x <= 1.0, -math.log(2.0), math.inf)

    rng = np.random.default_rng(2)
    first = np.where(rng.random(500) < 0.5, rng.random(500), 2.0 + rng.random(500))
    second = rng.random(500)  # D = inf: half of law 1 lies in [2, 3]
    claim = PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0))
    result = build(claim, log_ratio, largest_log_ratio=0.0).audit(first, second, 0.05)
    assert result.details["upper_bound"] == math.inf
    signed = build(claim, log_ratio, largest_log_ratio=0.0, absolutely_continuous=True)
    with pytest.raises(ValueError, match="absolutely_continuous must be False"):
        signed.audit(first, second, 0.05)
    # Where the word is true the bound is finite.
    result = signed.audit(second[:100], second, 0.05)
    assert 0.0 <= result.details["upper_bound"] < 1.0
