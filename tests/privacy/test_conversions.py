"""Conversions: known answers, inverses, and agreement with independent accounting."""

import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dvrenyi_plugin.privacy import conversions
from dvrenyi_plugin.privacy.conversions import (
    ACCOUNTING_ORDERS,
    dp_sgd_epsilon,
    dp_sgd_mu,
    dp_sgd_noise_multiplier,
    dp_sgd_renyi,
    gaussian_dp_delta,
    gaussian_dp_epsilon,
    gaussian_dp_mu,
    pure_dp_epsilon_for_renyi,
    renyi_group_privacy,
    renyi_subsampled_gaussian,
    renyi_to_approximate_dp_epsilon,
    renyi_to_gaussian_dp_mu,
)
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp, renyi_pure_dp


def subsampled_by_quadrature(alpha, q, s, direction):
    """log E_base[ratio^exponent] / (alpha - 1) by adaptive quadrature, ratio = mixture / base."""
    exponent = alpha if direction == "remove" else 1.0 - alpha

    def integrand(x):
        ratio = (1.0 - q) + q * math.exp((2.0 * x - 1.0) / (2.0 * s * s))
        return norm.pdf(x, 0.0, s) * ratio**exponent

    low, high = -12.0 * s - alpha, 12.0 * s + alpha
    value, _ = quad(integrand, low, high, points=[0.0, 1.0, alpha], limit=500, epsrel=1e-11)
    return math.log(value) / (alpha - 1.0)


class TestGaussianDp:
    @pytest.mark.parametrize(
        ("mu", "epsilon"),
        [(0.5, 1.99), (1.0, 4.377178), (math.sqrt(2.0), 6.573), (2.0, 9.997), (10.0**0.5, 17.857)],
    )
    def test_known_epsilons(self, mu, epsilon):
        assert gaussian_dp_epsilon(mu, 1e-5) == pytest.approx(epsilon, abs=4e-3)

    def test_delta_by_hand(self):
        assert gaussian_dp_delta(1.0, 0.0) == pytest.approx(norm.cdf(0.5) - norm.cdf(-0.5))
        assert gaussian_dp_delta(2.0, 1.0) == pytest.approx(norm.cdf(0.5) - math.e * norm.cdf(-1.5))
        assert gaussian_dp_delta(0.0, 1.0) == 0.0

    @given(st.floats(0.05, 8.0), st.floats(1e-9, 0.3))
    def test_epsilon_and_mu_invert_delta(self, mu, delta):
        epsilon = gaussian_dp_epsilon(mu, delta)
        if epsilon == 0.0:
            assert gaussian_dp_delta(mu, 0.0) <= delta
        else:
            assert gaussian_dp_delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)
            assert gaussian_dp_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)

    def test_extremes(self):
        assert gaussian_dp_epsilon(0.0, 0.0) == 0.0
        assert gaussian_dp_epsilon(1.0, 1.0) == 0.0
        assert 30.0 < gaussian_dp_epsilon(1.0, 1e-300) < 40.0
        assert gaussian_dp_delta(100.0, 0.0) == pytest.approx(1.0)
        assert gaussian_dp_delta(1e-300, 1.0) == 0.0
        assert gaussian_dp_delta(1e100, 1e5) == 1.0

    def test_bad_arguments(self):
        for function, name in (
            (lambda: gaussian_dp_epsilon(1.0, 0.0), "delta"),
            (lambda: gaussian_dp_epsilon(1.0, 1.5), "delta"),
            (lambda: gaussian_dp_epsilon(-1.0, 0.1), "mu"),
            (lambda: gaussian_dp_delta(1.0, -0.1), "epsilon"),
            (lambda: gaussian_dp_delta(math.nan, 0.1), "mu"),
            (lambda: gaussian_dp_mu(1.0, 1.0), "delta"),
        ):
            with pytest.raises(ValueError, match=name):
                function()


class TestRenyiConversions:
    @given(st.floats(1.01, 64.0), st.floats(0.0, 6.0))
    def test_mu_inverts_the_gaussian_curve(self, alpha, mu):
        assert renyi_to_gaussian_dp_mu(alpha, renyi_gaussian_dp(alpha, mu)) == pytest.approx(mu)

    @given(st.floats(1.01, 64.0), st.floats(1e-4, 30.0))
    def test_pure_epsilon_inverts_randomised_response(self, alpha, epsilon):
        found = pure_dp_epsilon_for_renyi(alpha, renyi_pure_dp(alpha, epsilon))
        assert found == pytest.approx(epsilon, rel=1e-6, abs=1e-9)

    def test_pure_epsilon_ends(self):
        assert pure_dp_epsilon_for_renyi(2.0, 0.0) == 0.0
        assert pure_dp_epsilon_for_renyi(2.0, 1e6) == pytest.approx(1e6, rel=1e-5)

    def test_gaussian_curve_gives_at_least_the_exact_epsilon(self):
        for mu in (0.5, 1.0, 2.0):
            curve = [renyi_gaussian_dp(order, mu) for order in ACCOUNTING_ORDERS]
            converted = renyi_to_approximate_dp_epsilon(ACCOUNTING_ORDERS, curve, 1e-5)
            exact = gaussian_dp_epsilon(mu, 1e-5)
            assert exact <= converted < 1.15 * exact
            classical = min(
                value + math.log(1e5) / (order - 1.0)
                for order, value in zip(ACCOUNTING_ORDERS, curve, strict=True)
            )
            assert converted < classical

    def test_never_negative_and_orders_without_a_bound(self):
        assert renyi_to_approximate_dp_epsilon([1.5, 2.0], [1e-6, 1e-6], 0.5) == 0.0
        assert renyi_to_approximate_dp_epsilon([2.0, 3.0], [0.0, 0.0], 1e-5) == 0.0
        alone = renyi_to_approximate_dp_epsilon([3.0], [1.0], 1e-5)
        assert renyi_to_approximate_dp_epsilon([2.0, 3.0], [math.inf, 1.0], 1e-5) == alone
        assert renyi_to_approximate_dp_epsilon([2.0], [math.inf], 1e-5) == math.inf
        for arguments, name in (
            (([2.0], [1.0, 2.0], 1e-5), "one length"),
            (([], [], 1e-5), "length"),
            (([1.0], [1.0], 1e-5), "alphas"),
            (([2.0], [-1.0], 1e-5), "epsilons"),
            (([2.0], [1.0], 0.0), "delta"),
        ):
            with pytest.raises(ValueError, match=name):
                renyi_to_approximate_dp_epsilon(*arguments)

    def test_group_privacy(self):
        assert renyi_group_privacy(8.0, 0.1, 2) == (2.0, pytest.approx(0.9))
        assert renyi_group_privacy(1.25, 0.1, 0) == (1.25, 0.1)
        for alpha, doublings in ((7.9, 2), (1e15, 2000)):
            with pytest.raises(ValueError, match=r"alpha must be at least 2\^\(doublings"):
                renyi_group_privacy(alpha, 0.1, doublings)
        with pytest.raises(ValueError, match="doublings"):
            renyi_group_privacy(8.0, 0.1, 1.0)


class TestSubsampledGaussian:
    def test_large_orders_are_finite(self):
        assert renyi_subsampled_gaussian(2000.0, 0.01, 1.0) == pytest.approx(995.3925, abs=1e-4)
        leading = 1030.0 / 2.0 + 1030.0 / 1029.0 * math.log(0.01)  # the last binomial term
        assert renyi_subsampled_gaussian(1030.0, 0.01, 1.0) == pytest.approx(leading, rel=1e-6)

    @pytest.mark.parametrize(("alpha", "value"), [(1.1, 0.15613), (1.5, 0.235158), (2.5, 0.51056)])
    def test_fractional_orders(self, alpha, value):
        assert renyi_subsampled_gaussian(alpha, 0.5, 1.0) == pytest.approx(value, rel=1e-5)

    def test_directions(self):
        assert renyi_subsampled_gaussian(8.0, 0.5, 1.0, "remove") == pytest.approx(
            3.20888, rel=1e-5
        )
        assert renyi_subsampled_gaussian(8.0, 0.5, 1.0, "add") == pytest.approx(0.375976, rel=1e-5)
        assert renyi_subsampled_gaussian(8.0, 0.5, 1.0) == pytest.approx(3.20888, rel=1e-5)

    @pytest.mark.parametrize("alpha", [1.1, 2.0, 3.7, 12.0])
    @pytest.mark.parametrize(("q", "s"), [(0.01, 0.8), (0.3, 2.0), (0.9, 1.0)])
    @pytest.mark.parametrize("direction", ["remove", "add"])
    def test_against_quadrature(self, alpha, q, s, direction):
        expected = subsampled_by_quadrature(alpha, q, s, direction)
        value = renyi_subsampled_gaussian(alpha, q, s, direction)
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-10)

    @pytest.mark.parametrize("alpha", [2, 5, 16])
    def test_against_the_binomial_sum_of_integer_orders(self, alpha):
        q, s = 0.05, 1.1
        terms = [
            math.comb(alpha, k)
            * (1 - q) ** (alpha - k)
            * q**k
            * math.exp(k * (k - 1) / (2 * s * s))
            for k in range(alpha + 1)
        ]
        expected = math.log(sum(terms)) / (alpha - 1)
        assert renyi_subsampled_gaussian(alpha, q, s) == pytest.approx(expected, rel=1e-10)

    @given(
        st.floats(1.05, 60.0),
        st.floats(0.0, 1.0),
        st.floats(0.3, 5.0),
        st.sampled_from(["add", "remove"]),
    )
    def test_between_nothing_and_the_unsampled_gaussian(self, alpha, q, s, direction):
        value = renyi_subsampled_gaussian(alpha, q, s, direction)
        assert 0.0 <= value <= alpha / (2.0 * s * s) * (1.0 + 1e-9)

    def test_ends_and_errors(self):
        assert renyi_subsampled_gaussian(3.0, 0.0, 1.0) == 0.0
        assert renyi_subsampled_gaussian(3.0, 1.0, 2.0) == pytest.approx(3.0 / 8.0)
        for arguments, name in (
            ((3.0, 1.5, 1.0), "sample_rate"),
            ((3.0, 0.5, 0.0), "noise_multiplier"),
            ((3.0, 0.5, 0.001), "noise_multiplier"),
            ((3.0, 0.5, 1.0, "sideways"), "direction"),
        ):
            with pytest.raises(ValueError, match=name):
                renyi_subsampled_gaussian(*arguments)


class TestDpSgd:
    def test_unsampled_single_step_is_exact(self):
        assert dp_sgd_epsilon(1e-5, 1, 1.0) == pytest.approx(4.377178, abs=1e-6)

    def test_nothing_to_lose_is_zero_and_never_negative(self):
        assert dp_sgd_epsilon(0.5, 1, 10.0, 0.01) == 0.0
        assert dp_sgd_epsilon(1e-3, 1, 1.0, 105 / 100_000) == 0.0
        assert dp_sgd_epsilon(1e-5, 0, 1.0, 0.1) == 0.0
        assert dp_sgd_epsilon(1e-5, 0, 1.0) == 0.0
        assert dp_sgd_epsilon(1e-5, 10, 1.0, 0.0) == 0.0
        assert dp_sgd_mu(0, 1.0) == 0.0
        assert dp_sgd_renyi(2.0, 0, 1.0, 0.5) == 0.0

    def test_zero_only_where_the_exact_delta_allows_it(self):
        q, s = 0.00105, 1.0
        exact = q * (norm.cdf(0.5) - norm.cdf(-0.5))  # total variation of one step
        assert exact == pytest.approx(4.02e-4, abs=1e-6)
        assert dp_sgd_epsilon(exact * 1.001, 1, s, q) == 0.0
        assert dp_sgd_epsilon(exact * 0.999, 1, s, q) > 0.0
        # Several steps lose more than one.
        assert dp_sgd_epsilon(exact * 1.001, 2, s, q) > 0.0
        assert dp_sgd_epsilon(exact * 2.001, 2, s, q) == 0.0

    def test_steps_are_integers(self):
        assert int(1 / (1 / 93)) == 92  # the trap
        assert dp_sgd_mu(93, 1.0) == pytest.approx(math.sqrt(93.0))
        for function in (
            lambda steps: dp_sgd_mu(steps, 1.0),
            lambda steps: dp_sgd_renyi(2.0, steps, 1.0),
            lambda steps: dp_sgd_epsilon(1e-5, steps, 1.0),
        ):
            for steps in (1 / (1 / 93), 93.0, -1, True):
                with pytest.raises(ValueError, match="num_steps"):
                    function(steps)

    def test_calibration_of_many_unsampled_steps(self):
        noise = dp_sgd_noise_multiplier(100, gaussian_dp_mu(0.1, 1e-5))
        assert noise == pytest.approx(307.5, abs=0.01)
        assert dp_sgd_epsilon(1e-5, 100, noise) == pytest.approx(0.1, rel=1e-6)

    @given(st.integers(1, 10_000), st.floats(0.1, 50.0))
    def test_noise_inverts_mu(self, steps, mu):
        assert dp_sgd_mu(steps, dp_sgd_noise_multiplier(steps, mu)) == pytest.approx(mu)

    def test_composition_adds(self):
        one = renyi_subsampled_gaussian(4.0, 0.1, 1.5)
        assert dp_sgd_renyi(4.0, 250, 1.5, 0.1) == pytest.approx(250 * one)

    def test_sampled_agrees_with_the_accounting_library(self):
        from dp_accounting import dp_event

        orders = [order for order in ACCOUNTING_ORDERS if 2.0 <= order <= 64.0]
        accountant = rdp_privacy_accountant.RdpAccountant(orders)
        step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.2))
        accountant.compose(step, 500)
        # Rényi orders give an upper bound, some 11% above; half of it would be far off.
        epsilon = dp_sgd_epsilon(1e-5, 500, 1.2, 0.02)
        assert 0.85 * accountant.get_epsilon(1e-5) < epsilon < accountant.get_epsilon(1e-5)

    def test_sampling_amplifies(self):
        epsilons = [dp_sgd_epsilon(1e-5, 10, 1.0, q) for q in (0.01, 0.1, 0.5)]
        assert np.all(np.diff(epsilons) > 0.0)
        assert epsilons[-1] < conversions.gaussian_dp_epsilon(dp_sgd_mu(10, 1.0), 1e-5) * 1.1
