"""Bounds on event probabilities and the claims they refute."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from dvrenyi_plugin.bounds.event_probabilities import (
    EventBounds,
    epsilon_from_rates,
    gaussian_dp_mu_from_rates,
    hockey_stick_from_rates,
    renyi_from_rates,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_delta, pure_dp_epsilon_for_renyi
from dvrenyi_plugin.privacy.divergences import renyi_bernoulli

rates = st.floats(0.0, 1.0)


class TestFromRates:
    @given(rates, rates, st.floats(1.01, 64.0))
    def test_renyi_is_the_bernoulli_divergence(self, p, q, alpha):
        value = float(renyi_from_rates(alpha, p, q))
        if p <= q:
            assert value == 0.0
        else:
            assert value == pytest.approx(renyi_bernoulli(alpha, p, q), rel=1e-9, abs=1e-9)

    def test_known_values(self):
        assert float(gaussian_dp_mu_from_rates(norm.cdf(1.0), norm.cdf(-1.0))) == pytest.approx(2.0)
        assert float(epsilon_from_rates(0.5, 0.1, 0.0)) == pytest.approx(math.log(5.0))
        assert float(epsilon_from_rates(0.5, 0.1, 0.2)) == pytest.approx(math.log(3.0))
        # The complement is the stronger event here: 0.5 / 0.1 against 0.9 / 0.5.
        assert float(epsilon_from_rates(0.9, 0.5, 0.0)) == pytest.approx(math.log(5.0))
        assert float(hockey_stick_from_rates(math.log(2.0), 0.5, 0.1)) == pytest.approx(0.3)
        assert float(renyi_from_rates(2.0, 0.5, 0.1)) == pytest.approx(
            math.log(0.25 / 0.1 + 0.25 / 0.9)
        )

    @pytest.mark.parametrize(
        "function",
        [
            lambda p, q: renyi_from_rates(2.0, p, q),
            gaussian_dp_mu_from_rates,
            lambda p, q: epsilon_from_rates(p, q, 0.0),
            lambda p, q: epsilon_from_rates(p, q, 1e-5),
            lambda p, q: epsilon_from_rates(p, q, 1.0),
            lambda p, q: hockey_stick_from_rates(1.0, p, q),
        ],
    )
    def test_never_nan_never_negative_and_monotone(self, function):
        grid = np.concatenate([[0.0, 1e-300, 1e-17], np.linspace(1e-6, 1 - 1e-6, 60), [1.0]])
        table = function(grid[:, np.newaxis], grid[np.newaxis, :])
        assert not np.isnan(table).any()
        assert (table >= 0.0).all()
        finite = np.where(np.isinf(table), 1e9, table)
        assert (np.diff(finite, axis=0) >= -1e-9).all()  # grows with the true-positive rate
        assert (np.diff(finite, axis=1) <= 1e-9).all()  # falls with the false-positive rate
        assert not np.diagonal(table).any()

    def test_evidence_against_is_zero_not_its_mirror_image(self):
        for function in (
            lambda p, q: renyi_from_rates(2.0, p, q),
            gaussian_dp_mu_from_rates,
            lambda p, q: epsilon_from_rates(p, q, 0.0),
        ):
            assert float(function(0.1, 0.9)) == 0.0
            assert float(function(0.9, 0.1)) > 1.0

    @given(st.floats(0.05, 4.0), st.floats(0.0, 5.0))
    def test_exact_gaussian_rates_reach_the_trade_off_and_never_pass_it(self, mu, epsilon):
        thresholds = np.linspace(-6.0, 12.0, 2001)
        p, q = norm.sf(thresholds - mu), norm.sf(thresholds)
        delta = gaussian_dp_delta(mu, epsilon)
        reached = hockey_stick_from_rates(epsilon, p, q).max()
        assert delta - 1e-4 <= reached <= delta + 1e-12
        inside = (q > 1e-10) & (p < 1.0 - 1e-10)
        assert gaussian_dp_mu_from_rates(p, q)[inside] == pytest.approx(mu, rel=1e-5)

    @pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
    def test_rates_outside_are_refused(self, bad):
        with pytest.raises(ValueError, match="true_positive_rate"):
            renyi_from_rates(2.0, bad, 0.5)
        with pytest.raises(ValueError, match="false_positive_rate"):
            epsilon_from_rates(0.5, bad, 0.0)
        with pytest.raises(ValueError, match="delta"):
            epsilon_from_rates(0.5, 0.4, 1.5)


class TestEventBounds:
    @pytest.mark.parametrize(("tp", "fp"), [(29, 7), (1, 99), (100, 0), (57, 57)])
    @pytest.mark.parametrize("beta", [0.01, 0.1, 0.5])
    def test_fed_back_into_the_distribution_the_bounds_return_their_level(self, tp, fp, beta):
        bounds = EventBounds(tp, 100, fp, 100, beta)
        if tp > 0:
            assert binom.sf(tp - 1, 100, bounds.true_positive_rate_lower) == pytest.approx(beta / 2)
        if fp < 100:
            assert binom.cdf(fp, 100, bounds.false_positive_rate_upper) == pytest.approx(beta / 2)

    def test_no_hits_and_all_hits(self):
        bounds = EventBounds(0, 50, 50, 50, 0.05)
        assert bounds.true_positive_rate_lower == 0.0
        assert bounds.false_positive_rate_upper == 1.0
        assert bounds.renyi_lower_bound(2.0) == 0.0
        assert bounds.gaussian_dp_mu_lower_bound() == 0.0
        assert bounds.epsilon_lower_bound(1e-5) == 0.0
        assert bounds.hockey_stick_lower_bound(0.0) == 0.0

    def test_perfect_attack_has_a_finite_bound(self):
        bounds = EventBounds(100, 100, 0, 100, 0.1)
        corner = 0.05**0.01  # P(all 100) = 0.05
        assert bounds.true_positive_rate_lower == pytest.approx(corner)
        assert bounds.false_positive_rate_upper == pytest.approx(1.0 - corner)
        expected = math.log((corner - 1e-5) / (1.0 - corner))
        assert bounds.epsilon_lower_bound(1e-5) == pytest.approx(expected)
        assert 3.0 < expected < 4.0

    def test_counts_stay_integers(self):
        assert int(0.29 * 100) == 28  # the trap
        assert EventBounds(29, 100, 1, 100, 0.05).true_positives == 29
        with pytest.raises(ValueError, match="true_positives"):
            EventBounds(29.0, 100, 1, 100, 0.05)
        with pytest.raises(ValueError, match=r"false_positives.*101"):
            EventBounds(29, 100, 101, 100, 0.05)
        with pytest.raises(ValueError, match="num_samples2"):
            EventBounds(0, 100, 0, 0, 0.05)

    @pytest.mark.parametrize("beta", [-1.0, 0.0, 1.0, math.nan])
    def test_bad_failure_probability(self, beta):
        with pytest.raises(ValueError, match="failure_probability"):
            EventBounds(5, 10, 5, 10, beta)

    def test_refuting_is_the_inequality_of_the_definition(self):
        bounds = EventBounds(450, 500, 100, 500, 0.05)
        tpr, fpr = bounds.true_positive_rate_lower, bounds.false_positive_rate_upper
        for delta in (0.0, 1e-5, 0.1):
            edge = math.log(max((tpr - delta) / fpr, (1.0 - fpr - delta) / (1.0 - tpr)))
            assert bounds.refutes_approximate_dp(edge - 1e-9, delta)
            assert not bounds.refutes_approximate_dp(edge + 1e-9, delta)
        assert bounds.refutes_pure_dp(0.0)
        assert not bounds.refutes_approximate_dp(0.0, 1.0)

    @given(st.integers(0, 200), st.integers(0, 200), st.floats(1.01, 64.0), st.floats(0.001, 0.5))
    def test_pure_dp_is_refuted_at_least_as_far_as_through_any_order(self, tp, fp, alpha, beta):
        bounds = EventBounds(tp, 200, fp, 200, beta)
        through_renyi = pure_dp_epsilon_for_renyi(alpha, bounds.renyi_lower_bound(alpha))
        # At orders near 1 the inverse is flat near 0: rounding in D moves epsilon by its square
        # root.
        assert bounds.epsilon_lower_bound(0.0) >= through_renyi - 1e-6

    @given(st.integers(0, 60), st.integers(0, 60), st.floats(1.01, 20.0))
    def test_corner_is_the_least_value_of_the_rectangle(self, tp, fp, alpha):
        bounds = EventBounds(tp, 60, fp, 60, 0.1)
        p = np.linspace(bounds.true_positive_rate_lower, 1.0, 40)[:, np.newaxis]
        q = np.linspace(0.0, bounds.false_positive_rate_upper, 40)[np.newaxis, :]
        least_true = min(
            renyi_bernoulli(alpha, float(a), float(b))
            for a in p[[0, 5, 20], 0]
            for b in q[0, [5, 20, 39]]
        )
        assert bounds.renyi_lower_bound(alpha) <= least_true + 1e-9
        assert bounds.renyi_lower_bound(alpha) <= renyi_from_rates(alpha, p, q).min() + 1e-9

    @pytest.mark.parametrize("beta", [0.01, 0.05, 0.2])
    @pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.7, 0.3), (0.1, 0.02)])
    def test_exact_joint_coverage(self, p, q, beta):
        n1, n2 = 25, 40
        p_wrong = q_wrong = 0.0
        quantities_wrong = 0.0
        truth = {
            "renyi": renyi_bernoulli(2.0, p, q),
            "mu": float(gaussian_dp_mu_from_rates(p, q)),
            "epsilon": float(epsilon_from_rates(p, q, 0.01)),
        }
        for tp in range(n1 + 1):
            for fp in range(n2 + 1):
                mass = binom.pmf(tp, n1, p) * binom.pmf(fp, n2, q)
                if mass < 1e-9:
                    continue
                bounds = EventBounds(tp, n1, fp, n2, beta)
                p_wrong += mass * (bounds.true_positive_rate_lower > p)
                q_wrong += mass * (bounds.false_positive_rate_upper < q)
                quantities_wrong += mass * (
                    bounds.renyi_lower_bound(2.0) > truth["renyi"]
                    or bounds.gaussian_dp_mu_lower_bound() > truth["mu"]
                    or bounds.epsilon_lower_bound(0.01) > truth["epsilon"]
                )
        assert p_wrong <= beta / 2.0
        assert q_wrong <= beta / 2.0
        assert quantities_wrong <= beta  # all three together

    def test_not_vacuous(self):
        bounds = EventBounds(8_000, 10_000, 2_000, 10_000, 0.05)
        assert bounds.renyi_lower_bound(2.0) > 0.9 * renyi_bernoulli(2.0, 0.8, 0.2)
        assert bounds.epsilon_lower_bound(0.0) > 0.95 * math.log(4.0)


@pytest.mark.parametrize("excess", [2.3e-16, 1e-12, 1e-6])
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.3), (0.5 + 1e-6, 0.5), (1.0, 0.5), (0.9, 1e-300)])
def test_renyi_near_order_one_is_no_rounding_error(excess, p, q):
    divergence = p * math.log(p / q) + (1.0 - p) * (
        math.log1p(-p) - math.log1p(-q) if p < 1.0 else 0.0
    )
    got = float(renyi_from_rates(1.0 + excess, p, q))
    # D_alpha increases with alpha; here by less than 1e-4 of itself.
    assert got == pytest.approx(divergence, rel=1e-4)
