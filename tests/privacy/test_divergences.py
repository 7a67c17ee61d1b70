"""Closed forms against known answers, quadrature and each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import expon, laplace, norm

from dvrenyi_plugin.privacy.divergences import (
    hockey_stick_from_log_masses,
    kullback_leibler_from_log_masses,
    renyi_bernoulli,
    renyi_bounded_range,
    renyi_discrete,
    renyi_exponential,
    renyi_from_log_masses,
    renyi_gaussian,
    renyi_gaussian_dp,
    renyi_laplace,
    renyi_pure_dp,
)

ORDERS = (1.1, 1.25, 1.5, 2.0, 3.7, 8.0)


def by_quadrature(alpha, law1, law2, low, high, points=None):
    """D_alpha(law1 || law2) by adaptive quadrature of p^alpha q^(1 - alpha), in the log domain."""
    value, _ = quad(
        lambda x: math.exp(alpha * law1.logpdf(x) + (1.0 - alpha) * law2.logpdf(x)),
        low,
        high,
        points=points,
        limit=500,
        epsabs=0.0,
        epsrel=1e-11,
    )
    return math.log(value) / (alpha - 1.0)


class TestGaussian:
    def test_order_scales_the_equal_variance_form(self):
        assert renyi_gaussian(2.0, 0.0, 1.0) == 1.0  # alpha mu^2 / 2, not mu^2 / 2
        assert renyi_gaussian(1.25, 0.0, math.sqrt(10.0)) == pytest.approx(6.25)
        assert renyi_gaussian(8.0, 3.0, 1.0, 2.0, 2.0) == pytest.approx(8.0 * 4.0 / 8.0)
        assert renyi_gaussian_dp(2.0, 1.0) == 1.0

    @pytest.mark.parametrize("alpha", ORDERS)
    @pytest.mark.parametrize("stds", [(1.0, 1.0), (0.7, 1.3), (1.02, 1.0)])
    def test_against_quadrature(self, alpha, stds):
        expected = by_quadrature(
            alpha, norm(0.4, stds[0]), norm(-0.3, stds[1]), -40, 40, [-3, 0, 6]
        )
        assert renyi_gaussian(alpha, 0.4, -0.3, *stds) == pytest.approx(expected, rel=1e-8)

    def test_infinite_from_the_order_where_the_tail_wins(self):
        # std1 = 2, std2 = 1: alpha + 4 (1 - alpha) <= 0 from alpha = 4/3 on.
        assert math.isfinite(renyi_gaussian(1.333, 0.0, 0.0, 2.0, 1.0))
        assert renyi_gaussian(1.334, 0.0, 0.0, 2.0, 1.0) == math.inf
        assert math.isfinite(renyi_gaussian(50.0, 0.0, 0.0, 1.0, 2.0))

    @given(st.floats(0.0, 5.0), st.sampled_from(ORDERS))
    def test_curve_is_the_gaussian_pair(self, mu, alpha):
        assert renyi_gaussian_dp(alpha, mu) == pytest.approx(renyi_gaussian(alpha, mu, 0.0))


class TestLaplace:
    @pytest.mark.parametrize("alpha", ORDERS)
    @pytest.mark.parametrize("scale", [0.5, 2.0])
    def test_against_quadrature(self, alpha, scale):
        laws = laplace(0.3, scale), laplace(1.0, scale)
        expected = by_quadrature(alpha, *laws, -60, 60, [0.3, 1.0])
        assert renyi_laplace(alpha, 0.3, 1.0, scale) == pytest.approx(expected, rel=1e-8)
        assert renyi_laplace(alpha, 1.0, 0.3, scale) == renyi_laplace(alpha, 0.3, 1.0, scale)

    def test_tends_to_the_pure_loss_and_never_overflows(self):
        assert renyi_laplace(1e6, 0.0, 3.0) == pytest.approx(3.0, rel=1e-5)
        assert renyi_laplace(64.0, 0.0, 1000.0) == pytest.approx(1000.0, rel=1e-3)
        assert renyi_laplace(2.0, 1.0, 1.0) == 0.0


class TestExponential:
    def test_known_answers(self):
        assert renyi_exponential(1.1, 7.0, 3.0) == pytest.approx(0.583711, abs=1e-6)
        assert renyi_exponential(1.5, 7.0, 3.0) == pytest.approx(1.349927, abs=1e-6)

    @pytest.mark.parametrize("alpha", [1.1, 1.5, 1.7])
    def test_against_quadrature_in_both_directions(self, alpha):
        for first, second in ((7.0, 3.0), (3.0, 7.0)):
            expected = by_quadrature(
                alpha, expon(scale=first), expon(scale=second), 0, 6000, [5, 50, 200, 1000]
            )
            assert renyi_exponential(alpha, first, second) == pytest.approx(expected, rel=1e-7)

    def test_infinite_when_the_numerator_tail_is_heavier(self):
        assert renyi_exponential(1.76, 7.0, 3.0) == math.inf  # alpha / 7 = (alpha - 1) / 3 at 1.75
        assert math.isfinite(renyi_exponential(1.74, 7.0, 3.0))


class TestDiscrete:
    @given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.sampled_from(ORDERS))
    def test_bernoulli_is_its_formula(self, p, q, alpha):
        moment = p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)
        expected = max(0.0, math.log(moment)) / (alpha - 1.0)
        assert renyi_bernoulli(alpha, p, q) == pytest.approx(expected, rel=1e-9, abs=1e-12)

    def test_missing_mass(self):
        assert renyi_bernoulli(2.0, 1.0, 0.5) == pytest.approx(math.log(2.0))
        assert renyi_bernoulli(2.0, 0.5, 1.0) == math.inf
        assert renyi_bernoulli(2.0, 1.0, 1.0) == 0.0
        assert renyi_discrete(3.0, [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]) == pytest.approx(
            math.log(2.0)
        )

    def test_log_domain_holds_far_below_the_smallest_float(self):
        log_p = np.log(np.array([0.5, 0.5]))
        log_q = np.array([-5000.0, 0.0])
        expected = (2.0 * math.log(0.5) + 5000.0) / 1.0
        assert renyi_from_log_masses(2.0, log_p, log_q) == pytest.approx(expected)
        assert renyi_from_log_masses(64.0, log_p, log_q) == pytest.approx(
            (64.0 * math.log(0.5) + 63.0 * 5000.0) / 63.0
        )

    def test_grid_of_gaussians_is_the_closed_form(self):
        x = np.linspace(-25.0, 25.0, 20_001)
        log_cell = math.log(x[1] - x[0])
        log_p, log_q = norm.logpdf(x, 1.0) + log_cell, norm.logpdf(x, 0.0) + log_cell
        for alpha in ORDERS:
            assert renyi_from_log_masses(alpha, log_p, log_q) == pytest.approx(
                alpha / 2.0, rel=1e-9
            )
        assert kullback_leibler_from_log_masses(log_p, log_q) == pytest.approx(0.5, rel=1e-9)
        delta = norm.cdf(-1.0 + 0.5) - math.e * norm.cdf(-1.0 - 0.5)
        assert hockey_stick_from_log_masses(1.0, log_p, log_q) == pytest.approx(delta, rel=1e-3)

    def test_kullback_leibler_and_hockey_stick_by_hand(self):
        log_p, log_q = np.log([0.5, 0.5]), np.log([0.25, 0.75])
        assert kullback_leibler_from_log_masses(log_p, log_q) == pytest.approx(
            0.5 * math.log(2.0) + 0.5 * math.log(2.0 / 3.0)
        )
        assert hockey_stick_from_log_masses(0.0, log_p, log_q) == pytest.approx(0.25)
        assert hockey_stick_from_log_masses(1.0, log_p, log_q) == 0.0
        assert kullback_leibler_from_log_masses([0.0, -math.inf], [-math.inf, 0.0]) == math.inf
        assert hockey_stick_from_log_masses(3.0, [0.0, -math.inf], [-math.inf, 0.0]) == 1.0

    @given(
        st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
        st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6),
    )
    def test_divergence_grows_with_the_order_between_its_limits(self, first, second):
        p = np.array(first) / np.sum(first)
        q = np.array(second[: p.size]) / np.sum(second[: p.size])
        values = [renyi_discrete(alpha, p, q) for alpha in (1.0 + 1e-9, *ORDERS, 500.0)]
        assert (np.diff(values) >= -1e-9).all()
        divergence = kullback_leibler_from_log_masses(np.log(p), np.log(q))
        assert values[0] == pytest.approx(divergence, abs=1e-7)
        assert values[-1] <= np.log(p / q).max() + 1e-12

    def test_bad_masses(self):
        with pytest.raises(ValueError, match="sum to 1"):
            renyi_discrete(2.0, [0.5, 0.4], [0.5, 0.5])
        with pytest.raises(ValueError, match="p must hold finite"):
            renyi_discrete(2.0, [1.5, -0.5], [0.5, 0.5])
        with pytest.raises(ValueError, match="same shape"):
            renyi_discrete(2.0, [0.5, 0.5], [1.0])
        for function in (
            lambda p, q: renyi_from_log_masses(2.0, p, q),
            kullback_leibler_from_log_masses,
            lambda p, q: hockey_stick_from_log_masses(1.0, p, q),
        ):
            # A NaN compares as False: dropped silently it would read as "no divergence".
            with pytest.raises(ValueError, match=r"log_p .*nan at index 1"):
                function([0.0, math.nan], [-1.0, -1.0])
            with pytest.raises(ValueError, match=r"log_q .*inf"):
                function([-1.0, -1.0], [math.inf, -1.0])
            with pytest.raises(ValueError, match="shape"):
                function([-1.0, -1.0], [-1.0])
            with pytest.raises(ValueError, match="some mass"):
                function([-math.inf], [0.0])


class TestPureDp:
    def test_known_answer(self):
        assert renyi_pure_dp(2.0, 0.1) == pytest.approx(0.0099586, rel=1e-5)

    @given(st.floats(1.01, 64.0), st.floats(0.001, 20.0))
    def test_attained_by_randomised_response_and_below_both_bounds(self, alpha, epsilon):
        log_p = np.array(
            [-math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))]
        )
        value = renyi_pure_dp(alpha, epsilon)
        assert value == pytest.approx(renyi_from_log_masses(alpha, log_p, log_p[::-1]), rel=1e-7)
        assert 0.0 < value <= min(epsilon, alpha * epsilon**2 / 2.0) * (1.0 + 1e-12)

    @given(st.floats(1.1, 20.0), st.floats(0.01, 5.0))
    def test_is_the_formula_of_hyperbolic_sines(self, alpha, epsilon):
        ratio = (math.sinh(alpha * epsilon) - math.sinh((alpha - 1) * epsilon)) / math.sinh(epsilon)
        assert renyi_pure_dp(alpha, epsilon) == pytest.approx(
            math.log(ratio) / (alpha - 1.0), rel=1e-6, abs=1e-10
        )

    def test_ends(self):
        assert renyi_pure_dp(2.0, 0.0) == 0.0
        assert renyi_pure_dp(64.0, 1e4) == pytest.approx(1e4, rel=1e-3)
        assert renyi_pure_dp(1000.0, 1e-9) == pytest.approx(1000.0 * 1e-18 / 2.0, rel=1e-6)

    def test_continuous_where_the_evaluation_changes(self):
        for alpha in (1.5, 3.0):
            edge = 1.0 / (alpha - 1.0)
            below, above = renyi_pure_dp(alpha, edge * (1 - 1e-12)), renyi_pure_dp(alpha, edge)
            assert below == pytest.approx(above, rel=1e-10)

    def test_bounded_range(self):
        assert renyi_bounded_range(2.0, 1.0) == 0.25
        assert renyi_bounded_range(64.0, 1.0) == 1.0
        # Log ratios -1/2 and 1/2 have width 1: randomised response at epsilon = 1/2.
        assert renyi_pure_dp(2.0, 0.5) <= renyi_bounded_range(2.0, 1.0)


@pytest.mark.parametrize(
    ("divergence", "limit"),
    [
        (lambda a: renyi_gaussian(a, 0.0, 1.0, 1.0, 2.0), math.log(2.0) + 2.0 / 8.0 - 0.5),
        (lambda a: renyi_laplace(a, 0.0, 1.0), math.exp(-1.0)),
        (lambda a: renyi_exponential(a, 7.0, 3.0), math.log(3.0 / 7.0) + 7.0 / 3.0 - 1.0),
        (
            lambda a: renyi_bernoulli(a, 0.3, 0.6),
            0.3 * math.log(0.5) + 0.7 * math.log(0.7 / 0.4),
        ),
        (lambda a: renyi_pure_dp(a, 0.5), 0.5 * math.tanh(0.25)),
    ],
)
def test_order_near_one_is_the_kullback_leibler_divergence(divergence, limit):
    for gap in (1e-6, 1e-9, 1e-12, 1e-15):
        assert divergence(1.0 + gap) == pytest.approx(limit, abs=10.0 * gap + 1e-12)


@pytest.mark.parametrize("alpha", [1.0, 0.5, -2.0, math.nan, math.inf, None, "2", True])
def test_bad_orders(alpha):
    for function in (
        lambda: renyi_gaussian(alpha, 0.0, 1.0),
        lambda: renyi_laplace(alpha, 0.0, 1.0),
        lambda: renyi_exponential(alpha, 1.0, 2.0),
        lambda: renyi_bernoulli(alpha, 0.5, 0.4),
        lambda: renyi_pure_dp(alpha, 1.0),
        lambda: renyi_gaussian_dp(alpha, 1.0),
        lambda: renyi_bounded_range(alpha, 1.0),
    ):
        with pytest.raises(ValueError, match="alpha must be a finite number > 1"):
            function()


def test_bad_parameters_are_named():
    for function, name in (
        (lambda: renyi_gaussian(2.0, 0.0, math.nan), "mean2"),
        (lambda: renyi_gaussian(2.0, 0.0, 0.0, 0.0), "std1"),
        (lambda: renyi_laplace(2.0, 0.0, 0.0, -1.0), "scale"),
        (lambda: renyi_exponential(2.0, 0.0, 1.0), "scale1"),
        (lambda: renyi_bernoulli(2.0, 1.2, 0.5), "p must"),
        (lambda: renyi_pure_dp(2.0, -0.1), "epsilon"),
        (lambda: renyi_gaussian_dp(2.0, -1.0), "mu"),
        (lambda: renyi_bounded_range(2.0, math.inf), "width"),
    ):
        with pytest.raises(ValueError, match=name):
            function()


def test_huge_arguments_give_inf_and_no_overflow_error():
    assert renyi_gaussian(2.0, 0.0, 1e308) == math.inf
    assert renyi_gaussian(2.0, 0.0, 1.0, 1e308, 1e308) == 0.0
    assert renyi_gaussian(2.0, 0.0, 1.0, 1e308, 1e-308) == math.inf
    assert renyi_gaussian_dp(2.0, 1e200) == math.inf
    assert renyi_bounded_range(2.0, 1e300) == 1e300


@pytest.mark.parametrize(
    "bad", ["0.5", None, {}, [True, False], [0.5 + 0j, 0.5], [object()], [[1], [1, 2]]]
)
def test_vectors_that_hold_no_numbers_are_named(bad):
    with pytest.raises(ValueError, match="q must"):
        renyi_discrete(2.0, [0.5, 0.5], bad)
    with pytest.raises(ValueError, match="log_p must"):
        renyi_from_log_masses(2.0, bad, [-0.7, -0.7])
