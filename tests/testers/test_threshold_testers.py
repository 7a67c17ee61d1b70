"""The 0/1 attack tester and the Gaussian-DP baseline: rules, counts, bounds, and how often they are
wrong."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dvrenyi_plugin.bounds.event_probabilities import EventBounds
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon
from dvrenyi_plugin.testers.gdp_baseline_tester import GdpBaselineTester, GdpBaselineTesterConfig
from dvrenyi_plugin.testers.threshold_attack_tester import (
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)
from dvrenyi_plugin.testers.threshold_rules import (
    count_at_every_threshold,
    fit_linear_score,
)

RENYI = PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0))
CLAIMS = {
    "renyi": RENYI,
    "pure": PrivacyProperty(pure_dp=PureDp(1.0)),
    "approximate": PrivacyProperty(approximate_dp=ApproximateDp(1.0, 1e-5)),
    "gaussian": PrivacyProperty(gaussian_dp=GaussianDp(1.0)),
    "zcdp": PrivacyProperty(zero_concentrated_dp=ZeroConcentratedDp(0.5)),
}


def attack(claim=RENYI, **settings):
    return ThresholdAttackTester(ThresholdAttackTesterConfig(privacy_property=claim, **settings))


def baseline(claim=RENYI, **settings):
    return GdpBaselineTester(GdpBaselineTesterConfig(privacy_property=claim, **settings))


def gaussian_pair(seed, mu, n=500, m=500):
    rng = np.random.default_rng(seed)
    return rng.normal(mu, 1.0, n), rng.normal(0.0, 1.0, m)


def most_errors(repeats, level):
    """Rejecting above this has false-alarm rate 1e-3 for a method exactly at its level."""
    return binom.ppf(1.0 - 1e-3, repeats, level)


class TestRules:
    def test_counts_at_every_distinct_score(self):
        counts = count_at_every_threshold(np.array([1.0, 2.0, 2.0, 5.0]), np.array([0.0, 2.0, 1.0]))
        assert counts.thresholds.tolist() == [0.0, 1.0, 2.0, 5.0]
        assert counts.true_positives.tolist() == [4, 4, 3, 1]
        assert counts.false_positives.tolist() == [3, 2, 1, 0]

    def test_one_huge_outlier_leaves_every_other_threshold(self):
        scores1 = np.append(np.arange(100.0), 1e300)
        counts = count_at_every_threshold(scores1, np.arange(100.0) - 50.0)
        assert counts.thresholds.size == 151

    def test_linear_score_finds_the_direction(self):
        rng = np.random.default_rng(0)
        direction = np.array([3.0, -1.0, 0.0, 2.0])
        first = rng.normal(size=(2000, 4)) + direction / 4.0
        second = rng.normal(size=(2000, 4)) - direction / 4.0
        weights = fit_linear_score(first, second).weights
        cosine = weights @ direction / np.linalg.norm(weights) / np.linalg.norm(direction)
        assert cosine > 0.99

    def test_linear_score_survives_outliers_constants_and_huge_numbers(self):
        rng = np.random.default_rng(0)
        first = np.column_stack([rng.normal(1.0, 1.0, 300), np.ones(300), rng.integers(0, 2, 300)])
        second = np.column_stack([rng.normal(0.0, 1.0, 300), np.ones(300), rng.integers(0, 2, 300)])
        first[0] = [-1e300, 1.0, 1.0]
        score = fit_linear_score(first, second)
        far = np.array([[1e308, -1e308, 1.0], [0.0, 1.0, 0.0]])
        assert np.isfinite(score(far)).all()
        moderate = fit_linear_score(np.clip(first, -50.0, 50.0), second)
        assert moderate(first[1:]).mean() > moderate(second).mean() + 0.3


class TestThresholdAttackResult:
    def test_bound_and_details_follow_from_the_reported_counts(self):
        result = attack().audit(*gaussian_pair(0, 2.0), 0.05)
        details = result.details
        bounds = EventBounds(
            details["true_positives"],
            400,
            details["false_positives"],
            400,
            failure_probability=0.05,
        )
        assert result.num_fit == (100, 100)
        assert result.num_certify == (400, 400)
        assert details["true_positive_rate"] == details["true_positives"] / 400
        assert result.lower_bound == bounds.renyi_lower_bound(2.0)
        assert details["renyi_lower_bounds"][2.0] == result.lower_bound
        assert details["gaussian_dp_mu_lower_bound"] == bounds.gaussian_dp_mu_lower_bound()
        assert details["epsilon_lower_bound"] == bounds.epsilon_lower_bound(1e-5)
        assert details["pure_dp_epsilon_lower_bound"] == bounds.epsilon_lower_bound(0.0)
        assert result.lower_bound < result.point_estimate
        assert (result.alpha, result.claimed_limit, result.failure_probability) == (2.0, 1.0, 0.05)

    def test_threshold_and_sign_can_be_applied_by_hand(self):
        first, second = gaussian_pair(1, -2.0)  # law 1 is the lower one
        details = attack().audit(first, second, 0.05).details
        assert details["sign"] == -1
        flagged1 = np.mean(-first >= details["score_threshold"])
        flagged2 = np.mean(-second >= details["score_threshold"])
        assert flagged1 == pytest.approx(details["true_positive_rate"], abs=0.03)
        assert flagged2 == pytest.approx(details["false_positive_rate"], abs=0.03)

    @pytest.mark.parametrize(
        ("name", "scale"),
        [
            ("renyi", lambda d: d["renyi_lower_bounds"][2.0]),
            ("pure", lambda d: d["pure_dp_epsilon_lower_bound"]),
            ("approximate", lambda d: d["epsilon_lower_bound"]),
            ("gaussian", lambda d: d["gaussian_dp_mu_lower_bound"]),
            ("zcdp", lambda d: max(v / a for a, v in d["renyi_lower_bounds"].items())),
        ],
    )
    def test_each_claim_is_tested_on_its_own_scale(self, name, scale):
        tester = attack(CLAIMS[name])
        result = tester.audit(*gaussian_pair(2, 3.0), 0.05)
        assert result.lower_bound == scale(result.details)
        assert result.refuted
        assert tester.reject_property(result.lower_bound)
        assert not tester.reject_property(result.claimed_limit)
        assert type(tester.estimate_lower_bound(*gaussian_pair(2, 3.0), 0.05)) is float
        assert tester.privacy_property is CLAIMS[name]
        # Equal laws refute none of them.
        assert not tester.audit(*gaussian_pair(3, 0.0), 0.05).refuted

    def test_zcdp_reports_the_order_that_gave_the_bound(self):
        result = attack(CLAIMS["zcdp"], orders=(1.5, 2.0, 8.0)).audit(*gaussian_pair(2, 3.0), 0.05)
        curve = {a: v / a for a, v in result.details["renyi_lower_bounds"].items()}
        assert set(curve) == {1.5, 2.0, 8.0}
        assert curve[result.alpha] == max(curve.values()) == result.lower_bound
        assert "jointly" in result.details["orders"]

    def test_approximate_claim_also_reports_the_hockey_stick(self):
        result = attack(CLAIMS["approximate"]).audit(*gaussian_pair(2, 3.0), 0.05)
        assert result.details["hockey_stick_lower_bound"] > 1e-5
        assert result.details["delta"] == 1e-5
        assert result.direction == "both"

    def test_direction_of_the_numerator(self):
        # Uniform on half of the support against uniform: D_2 is log 2 one way, infinite the other.
        rng = np.random.default_rng(0)
        half, whole = rng.uniform(0.0, 0.5, 5000), rng.uniform(0.0, 1.0, 5000)
        forward = attack().estimate_lower_bound(half, whole, 0.05)
        assert 0.8 * math.log(2.0) < forward <= math.log(2.0)
        assert attack().estimate_lower_bound(whole, half, 0.05) > 3.0

    def test_perfect_separation_is_finite_and_large(self):
        claim = CLAIMS["approximate"]
        result = attack(claim).audit(np.full(200, 1.0), np.zeros(200), 0.1)
        assert result.details["true_positives"] == 160
        assert result.details["false_positives"] == 0
        assert 3.0 < result.lower_bound < 5.0

    def test_ties_only_use_thresholds_that_exist(self):
        rng = np.random.default_rng(0)
        first, second = rng.integers(0, 3, 600), rng.integers(0, 2, 600)
        result = attack().audit(first, second, 0.05)
        assert result.details["score_threshold"] in (0.0, 1.0, 2.0, -0.0, -1.0, -2.0)
        assert result.details["candidate_thresholds"] == 6
        assert result.lower_bound > 0.5  # the value 2 never happens under law 2

    def test_an_outlier_does_not_decide(self):
        first, second = gaussian_pair(5, 1.5)
        plain = attack().estimate_lower_bound(first, second, 0.05)
        first[0], second[0] = 1e300, -1e300
        assert attack().estimate_lower_bound(first, second, 0.05) == pytest.approx(plain, rel=0.2)

    def test_reproducible_and_seeded(self):
        pair = gaussian_pair(6, 1.0)
        assert attack(seed=1).audit(*pair, 0.05) == attack(seed=1).audit(*pair, 0.05)
        bounds = {attack(seed=seed).estimate_lower_bound(*pair, 0.05) for seed in range(5)}
        assert len(bounds) > 1

    def test_many_columns(self):
        rng = np.random.default_rng(0)
        first, second = rng.normal(0.5, 1.0, (1000, 10)), rng.normal(0.0, 1.0, (800, 10))
        result = attack().audit(first, second, 0.05)
        truth = 2.0 * 10 * 0.25 / 2.0
        assert 0.3 * truth < result.lower_bound < truth
        assert result.details["score"] == "linear log ratio"


@pytest.mark.parametrize("build", [attack, baseline])
class TestBothAtTheDoor:
    def test_two_samples_a_side_certify_nothing(self, build):
        assert build().estimate_lower_bound([1.0, 2.0], [-1.0, -2.0], 0.05) == 0.0

    def test_settings_are_checked(self, build):
        for name, bad in (("fit_fraction", 1.0), ("delta", 0.0), ("seed", -1)):
            with pytest.raises(ValueError, match=name):
                build(**{name: bad})
        with pytest.raises(ValueError, match="privacy_property"):
            build(None)


@pytest.mark.parametrize("config", [ThresholdAttackTesterConfig, GdpBaselineTesterConfig])
def test_configs_are_frozen(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config(RENYI).seed = 3


class TestThresholdAttackCoverage:
    @pytest.mark.parametrize("mu", [0.0, 1.0])
    def test_gaussians_at_the_claim_all_scales_at_once(self, mu):
        # Every bound is read off one rectangle: the event "any of them is wrong" must keep the
        # level.
        repeats, beta = 1000, 0.2
        claim = PrivacyProperty(renyi_dp=RenyiDp(2.0, mu * mu))
        tester = attack(claim, delta=0.01)
        true_epsilon = gaussian_dp_epsilon(mu, 0.01)
        wrong = 0
        rng = np.random.default_rng(11)
        for _ in range(repeats):
            result = tester.audit(rng.normal(mu, 1.0, 100), rng.normal(0.0, 1.0, 100), beta)
            renyi = result.details["renyi_lower_bounds"]
            wrong += (
                result.refuted
                or any(value > alpha * mu * mu / 2.0 for alpha, value in renyi.items())
                or result.details["gaussian_dp_mu_lower_bound"] > mu
                or result.details["epsilon_lower_bound"] > true_epsilon
                or (mu == 0.0 and result.details["pure_dp_epsilon_lower_bound"] > 0.0)
            )
        assert wrong <= most_errors(repeats, beta)

    def test_randomised_response_at_a_pure_claim(self):
        # The one law where the tested quantity equals the claim at the best rule.
        repeats, beta, epsilon = 1000, 0.2, 1.0
        tester = attack(PrivacyProperty(pure_dp=PureDp(epsilon)))
        p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
        rng = np.random.default_rng(12)
        wrong = sum(
            tester.audit(rng.binomial(1, p, 200), rng.binomial(1, 1.0 - p, 200), beta).refuted
            for _ in range(repeats)
        )
        assert 0 < wrong <= most_errors(repeats, beta)

    def test_many_columns_of_noise(self):
        repeats, beta = 300, 0.2
        tester = attack(PrivacyProperty(gaussian_dp=GaussianDp(0.0)))
        rng = np.random.default_rng(13)
        wrong = sum(
            tester.audit(rng.standard_t(1.5, (60, 8)), rng.standard_t(1.5, (60, 8)), beta).refuted
            for _ in range(repeats)
        )
        assert wrong <= most_errors(repeats, beta)

    @pytest.mark.parametrize(
        ("alpha", "mu", "least"), [(1.25, 1.0, 0.24), (1.25, 2.0, 0.37), (2.0, 2.0, 0.33)]
    )
    def test_tightness(self, alpha, mu, least):
        # Measured: .32, .43, .40 of the true divergence at 500 samples a side.
        truth = alpha * mu * mu / 2.0
        tester = attack(PrivacyProperty(renyi_dp=RenyiDp(alpha, truth)))
        bounds = [tester.estimate_lower_bound(*gaussian_pair(s, mu), 0.05) for s in range(50)]
        assert least < np.mean(bounds) / truth < 1.0
        assert max(bounds) <= truth

    def test_false_claims_are_refuted(self):
        tester = attack(PrivacyProperty(gaussian_dp=GaussianDp(1.0)))
        refuted = [tester.audit(*gaussian_pair(s, 2.0), 0.05).refuted for s in range(20)]
        assert all(refuted)


class TestGdpBaseline:
    def test_reproduces_the_definition(self):
        first, second = gaussian_pair(0, 1.5, 60, 40)
        expected = 0.0
        for threshold in np.concatenate([first, second]):
            false_negatives = int((first < threshold).sum())
            false_positives = int((second >= threshold).sum())
            fnr = 1.0 if false_negatives == 60 else _upper(false_negatives, 60, 0.05)
            fpr = 1.0 if false_positives == 40 else _upper(false_positives, 40, 0.05)
            expected = max(expected, norm.ppf(1.0 - fpr) - norm.ppf(fnr))
        result = baseline(score="observation").audit(first, second, 0.05)
        assert result.details["gaussian_dp_mu"] == pytest.approx(expected, rel=1e-9)
        assert result.lower_bound == pytest.approx(expected**2, rel=1e-9)  # alpha = 2
        assert result.num_fit == result.num_certify == (60, 40)

    def test_scores_and_signs(self):
        low, high = gaussian_pair(1, -2.0)
        assert baseline(score="negative_observation").estimate_lower_bound(low, high, 0.05) > 1.0
        assert baseline(score="observation").estimate_lower_bound(low, high, 0.05) == 0.0
        either = baseline().audit(low, high, 0.05)
        assert either.details["sign"] == -1
        # Strong evidence the wrong way round is 0, not its square.
        wrong_way = baseline(score="observation").audit(low, high, 0.05)
        assert wrong_way.details["gaussian_dp_mu"] == 0.0
        assert wrong_way.point_estimate == 0.0

    def test_claim_scales(self):
        pair = gaussian_pair(2, 2.0)
        mu = baseline(CLAIMS["gaussian"]).estimate_lower_bound(*pair, 0.05)
        assert baseline().estimate_lower_bound(*pair, 0.05) == pytest.approx(mu**2)
        assert baseline(CLAIMS["zcdp"]).estimate_lower_bound(*pair, 0.05) == pytest.approx(
            mu**2 / 2
        )
        epsilon = baseline(CLAIMS["approximate"]).estimate_lower_bound(*pair, 0.05)
        assert epsilon == pytest.approx(gaussian_dp_epsilon(mu, 1e-5))
        with pytest.raises(ValueError, match=r"got pure_dp \(PureDp"):
            baseline(CLAIMS["pure"])

    def test_perfect_separation_does_not_fail_silently(self):
        result = baseline(CLAIMS["approximate"]).audit(np.ones(100), np.zeros(100), 0.1)
        mu = 2.0 * norm.ppf(0.1**0.01)
        assert result.lower_bound == pytest.approx(gaussian_dp_epsilon(mu, 1e-5))
        assert result.lower_bound > 10.0

    def test_labels_say_what_is_assumed(self):
        plain = baseline().audit(*gaussian_pair(3, 1.0), 0.05)
        assert "assumes Gaussian trade-off; threshold not held out" in plain.method
        assert plain.details["assumptions"] in plain.method
        sound = baseline(held_out_threshold=True).audit(*gaussian_pair(3, 1.0), 0.05)
        assert "assumes Gaussian trade-off; threshold held out" in sound.method
        assert sound.num_fit == (100, 100)
        assert sound.num_certify == (400, 400)

    def test_false_alarms_exceed_the_level_unless_the_threshold_is_held_out(self):
        # No privacy is lost, yet the published procedure reports some in about a third of the runs.
        repeats, beta = 300, 0.05
        claim = PrivacyProperty(gaussian_dp=GaussianDp(0.0))
        plain, sound = baseline(claim), baseline(claim, held_out_threshold=True)
        one_sign = baseline(claim, score="negative_observation")
        rng = np.random.default_rng(14)
        alarms = np.zeros(3)
        for _ in range(repeats):
            pair = rng.normal(size=500), rng.normal(size=500)
            alarms += [tester.audit(*pair, beta).refuted for tester in (plain, one_sign, sound)]
        assert alarms[0] > 3.0 * beta * repeats
        assert alarms[1] > 2.0 * beta * repeats
        assert alarms[2] <= most_errors(repeats, beta)

    def test_gaussian_assumption_is_needed(self):
        # Randomised response at epsilon = 2: D_8 is below 2, the Gaussian reading of the same
        # attack is not.
        rng = np.random.default_rng(15)
        p = math.exp(2.0) / (1.0 + math.exp(2.0))
        pair = rng.binomial(1, p, 5000), rng.binomial(1, 1.0 - p, 5000)
        claim = PrivacyProperty(renyi_dp=RenyiDp(8.0, 2.0))
        assert baseline(claim, held_out_threshold=True).audit(*pair, 0.05).refuted
        assert not attack(claim).audit(*pair, 0.05).refuted

    def test_near_the_truth_on_gaussians(self):
        tester = baseline(CLAIMS["gaussian"])
        values = [tester.estimate_lower_bound(*gaussian_pair(s, 1.0), 0.05) for s in range(20)]
        assert 0.8 < np.mean(values) < 1.1


def _upper(successes, trials, beta):
    """Clopper-Pearson by bisection on the distribution function: independent of the library's."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if binom.cdf(successes, trials, middle) > beta:
            low = middle
        else:
            high = middle
    return high
