"""The paper's theorems: formulas by hand, exact coverage on finite laws, and what is not
offered."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from dvrenyi_plugin.bounds import event_probabilities
from dvrenyi_plugin.bounds import paper_theorems as theorems
from dvrenyi_plugin.bounds.paper_theorems import (
    bounded_loss_lower_bound,
    bounded_loss_upper_bound,
    empirical_renyi_divergence,
    largest_rejected_epsilon,
    largest_rejected_in_sequence,
    markov_lower_bound,
    uniform_band_lower_bound,
    uniform_band_radius,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon
from dvrenyi_plugin.privacy.divergences import renyi_bernoulli, renyi_gaussian_dp

BAND = {
    "critic_bound": 0.5,
    "num_parameters": 3,
    "parameter_radius": 2.0,
    "lipschitz_constant": 1.5,
    "num_numerator": 1000,
    "num_denominator": 1000,
    "failure_probability": 0.05,
    "covering_radius": 0.01,
}


def randomised_response(epsilon):
    """P(1), Q(1) and the two log ratios log P/Q at outcomes 0 and 1."""
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    return p, 1.0 - p, (-epsilon, epsilon)


class TestKnownLogRatio:
    def test_point_estimate_by_hand(self):
        # mean of e^{2 L} over L = 0, log 2, log 3 is (1 + 4 + 9) / 3.
        logs = [0.0, math.log(2.0), math.log(3.0)]
        assert empirical_renyi_divergence(2.0, logs) == pytest.approx(math.log(14.0 / 3.0))

    def test_markov_subtracts_what_the_theorem_says(self):
        logs = np.full(10, 8.0)
        difference = empirical_renyi_divergence(1.25, logs) - markov_lower_bound(1.25, logs, 0.05)
        assert difference == pytest.approx(11.98, abs=0.005)
        assert markov_lower_bound(3.0, logs, 0.05) == pytest.approx(12.0 - math.log(20.0) / 2.0)

    def test_markov_is_valid_and_cannot_be_improved_by_a_constant(self):
        # One sample; Q gives the large ratio with probability just under the failure probability.
        beta, q = 0.05, 0.049
        p = 1.0 - 1e-9
        divergence = renyi_bernoulli(2.0, p, q)
        assert (
            markov_lower_bound(2.0, [math.log(p / q)], beta) > divergence
        )  # wrong with probability q
        assert markov_lower_bound(2.0, [math.log((1.0 - p) / (1.0 - q))], beta) <= divergence
        assert q <= beta < 1.05 * q

    def test_bounded_loss_bounds_by_hand(self):
        logs = [0.0, math.log(2.0), math.log(3.0)]
        radius = 3.0**2 * math.sqrt(math.log(1.0 / 0.5) / 6.0)
        lower = bounded_loss_lower_bound(2.0, logs, math.log(3.0), 0.5)
        assert lower == pytest.approx(math.log(14.0 / 3.0 - radius))
        radius = 3.0**2 * math.sqrt(math.log(2.0 / 0.5) / 6.0)
        upper = bounded_loss_upper_bound(2.0, logs, math.log(3.0), 0.5, absolutely_continuous=True)
        assert upper == pytest.approx(math.log(14.0 / 3.0 + radius))

    def test_lower_bound_is_zero_where_the_mean_is_below_one(self):
        assert bounded_loss_lower_bound(2.0, [-1.0, -2.0], 1.0, 0.05) == 0.0
        assert bounded_loss_lower_bound(2.0, [-math.inf, -math.inf], 1.0, 0.05) == 0.0
        assert markov_lower_bound(2.0, [-math.inf], 0.05) == 0.0

    @pytest.mark.parametrize("epsilon", [0.5, 1.0])
    @pytest.mark.parametrize("alpha", [1.25, 2.0, 4.0])
    @pytest.mark.parametrize("beta", [0.01, 0.05, 0.2])
    def test_exact_coverage_on_randomised_response(self, epsilon, alpha, beta):
        n = 400
        p, q, (log0, log1) = randomised_response(epsilon)
        truth = renyi_bernoulli(alpha, p, q)
        probabilities = binom.pmf(np.arange(n + 1), n, q)
        wrong = dict.fromkeys(("markov", "lower", "upper"), 0.0)
        for count in np.flatnonzero(probabilities > 1e-9):
            logs = np.repeat([log0, log1], [n - count, count])
            lower = bounded_loss_lower_bound(alpha, logs, epsilon, beta)
            upper = bounded_loss_upper_bound(alpha, logs, epsilon, beta, absolutely_continuous=True)
            wrong["markov"] += probabilities[count] * (
                markov_lower_bound(alpha, logs, beta) > truth
            )
            wrong["lower"] += probabilities[count] * (lower > truth)
            wrong["upper"] += probabilities[count] * (upper < truth)
        assert all(probability <= beta for probability in wrong.values()), wrong

    @pytest.mark.parametrize("alpha", [1.25, 2.0])
    def test_bounded_loss_closes_in_on_the_truth(self, alpha):
        n, epsilon = 1_000_000, 1.0
        p, q, (log0, log1) = randomised_response(epsilon)
        truth = renyi_bernoulli(alpha, p, q)
        expected_count = round(n * q)
        logs = np.repeat([log0, log1], [n - expected_count, expected_count])
        lower = bounded_loss_lower_bound(alpha, logs, epsilon, 0.05)
        upper = bounded_loss_upper_bound(alpha, logs, epsilon, 0.05, absolutely_continuous=True)
        assert 0.95 * truth < lower < truth < upper < 1.05 * truth

    def test_no_overflow_at_large_orders(self):
        logs = np.array([0.0, 10.0, 20.0])
        for bound in (
            bounded_loss_lower_bound(64.0, logs, 20.0, 0.05),
            bounded_loss_upper_bound(64.0, logs, 20.0, 0.05, absolutely_continuous=True),
            markov_lower_bound(64.0, logs, 0.05),
        ):
            assert math.isfinite(bound)
        assert bounded_loss_upper_bound(
            64.0, logs, 20.0, 0.05, absolutely_continuous=True
        ) == pytest.approx((1280.0 + math.log(1 / 3 + math.sqrt(math.log(40.0) / 6.0))) / 63.0)

    def test_refuted_assumption_is_an_error(self):
        with pytest.raises(ValueError, match=r"1 larger entries of 2, up to 1\.5"):
            bounded_loss_lower_bound(2.0, [0.0, 1.5], 1.0, 0.05)

    @pytest.mark.parametrize(
        ("logs", "message"),
        [
            ([], "shape"),
            ([[0.0]], "shape"),
            ([0.0, math.nan], "1 NaN"),
            ([math.inf, 0.0], "index 0"),
        ],
    )
    def test_bad_log_ratios(self, logs, message):
        with pytest.raises(ValueError, match=message):
            markov_lower_bound(2.0, logs, 0.05)

    @pytest.mark.parametrize("beta", [-1.0, 0.0, 1.0, math.nan])
    def test_bad_failure_probability(self, beta):
        for bound in (
            lambda: markov_lower_bound(2.0, [0.0], beta),
            lambda: bounded_loss_lower_bound(2.0, [0.0], 1.0, beta),
            lambda: bounded_loss_upper_bound(2.0, [0.0], 1.0, beta, absolutely_continuous=True),
            lambda: uniform_band_radius(2.0, **(BAND | {"failure_probability": beta})),
        ):
            with pytest.raises(ValueError, match="failure_probability"):
                bound()

    @given(
        st.lists(st.floats(-30.0, 3.0), min_size=1, max_size=30),
        st.floats(1.01, 40.0),
        st.floats(0.001, 0.999),
    )
    def test_order_of_the_bounds(self, logs, alpha, beta):
        estimate = empirical_renyi_divergence(alpha, logs)
        lower = bounded_loss_lower_bound(alpha, logs, 3.0, beta)
        upper = bounded_loss_upper_bound(alpha, logs, 3.0, beta, absolutely_continuous=True)
        assert 0.0 <= lower <= max(0.0, estimate) <= upper + 1e-12
        assert 0.0 <= markov_lower_bound(alpha, logs, beta) <= max(0.0, estimate)


class TestUniformBand:
    def test_formula_by_hand(self):
        constant = (math.e - 1.0) / 1.0 + (math.exp(2.0) - 1.0) / 2.0  # alpha = 2, M = 1/2
        root = math.sqrt((3.0 * math.log(600.0) + math.log(80.0)) / 2000.0)
        assert uniform_band_radius(2.0, **BAND) == pytest.approx(constant * root + 0.06)

    def test_unequal_counts_use_each_its_own(self):
        equal = uniform_band_radius(2.0, **BAND)
        more = uniform_band_radius(2.0, **(BAND | {"num_denominator": 4000}))
        root = math.sqrt((3.0 * math.log(600.0) + math.log(80.0)) / 2000.0)
        assert equal - more == pytest.approx((math.exp(2.0) - 1.0) / 2.0 * root / 2.0)

    def test_cover_is_continuous_where_its_form_changes_and_never_negative(self):
        at = uniform_band_radius(
            2.0, **(BAND | {"covering_radius": 2.0, "lipschitz_constant": 0.0})
        )
        beyond = uniform_band_radius(
            2.0, **(BAND | {"covering_radius": 2.0 + 1e-9, "lipschitz_constant": 0.0})
        )
        far = uniform_band_radius(
            2.0, **(BAND | {"covering_radius": 1e9, "lipschitz_constant": 0.0})
        )
        assert at == pytest.approx(beyond, rel=1e-8)
        assert 0.0 < far < at

    def test_consistent_and_vacuous_where_it_should_be(self):
        free = {key: value for key, value in BAND.items() if key != "covering_radius"}
        radii = [
            uniform_band_radius(1.25, **(free | {"num_numerator": n, "num_denominator": n}))
            for n in (10**3, 10**6, 10**9)
        ]
        assert radii[0] > 20.0 * radii[1] > 400.0 * radii[2]
        network = free | {"num_parameters": 10_401, "critic_bound": 2.0, "num_numerator": 500}
        assert uniform_band_radius(2.0, **network) > 100.0

    def test_overflow_is_infinity_and_certifies_nothing(self):
        huge = BAND | {"critic_bound": 100.0}
        assert uniform_band_radius(64.0, **huge) == math.inf
        assert uniform_band_lower_bound(64.0, 5.0, **huge) == 0.0

    def test_rdp_test_is_on_the_divergence_scale(self):
        radius = uniform_band_radius(2.0, **BAND)
        assert uniform_band_lower_bound(2.0, radius + 0.3, **BAND) == pytest.approx(0.6)
        assert uniform_band_lower_bound(2.0, radius - 0.3, **BAND) == 0.0

    def test_band_covers_a_whole_class_and_certifies_its_best_member(self):
        # Critics theta z, |theta| <= 1/2, on z in {-1, 0, 1}; the population objective is a finite
        # sum.
        alpha, n = 1.25, 100_000
        values = np.array([-1.0, 0.0, 1.0])
        law_q, law_p = np.array([0.05, 0.15, 0.8]), np.array([0.8, 0.15, 0.05])
        thetas = np.linspace(-0.5, 0.5, 101)[:, np.newaxis]
        band = {
            "critic_bound": 0.5,
            "num_parameters": 1,
            "parameter_radius": 0.5,
            "lipschitz_constant": 1.0,
            "num_numerator": n,
            "num_denominator": n,
            "failure_probability": 0.05,
        }

        def objective(weights_q, weights_p):
            first = np.log(np.exp((alpha - 1.0) * thetas * values) @ weights_q) / (alpha - 1.0)
            return first - np.log(np.exp(alpha * thetas * values) @ weights_p) / alpha

        radius = uniform_band_radius(alpha, **band)
        truth = objective(law_q, law_p)
        rng = np.random.default_rng(0)
        for _ in range(200):
            seen = objective(rng.multinomial(n, law_q) / n, rng.multinomial(n, law_p) / n)
            assert np.abs(seen - truth).max() <= radius
            lower = uniform_band_lower_bound(alpha, seen.max(), **band)
            assert 0.5 * alpha * truth.max() < lower <= alpha * truth.max()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("critic_bound", 0.0),
            ("num_parameters", 0),
            ("num_parameters", 2.5),
            ("parameter_radius", -1.0),
            ("lipschitz_constant", -0.1),
            ("num_numerator", 0),
            ("num_denominator", 10.0),
            ("covering_radius", 0.0),
        ],
    )
    def test_bad_assumptions_are_named(self, name, value):
        with pytest.raises(ValueError, match=name):
            uniform_band_radius(2.0, **(BAND | {name: value}))
        with pytest.raises(ValueError, match="alpha"):
            uniform_band_radius(0.5, **BAND)


class TestNoApproximateDpFromARenyiBound:
    """Corollary B.5's second statement would refute what is true."""

    def test_the_gaussian_counterexample(self):
        mu, delta = 1.0, 1e-5
        divergence = renyi_gaussian_dp(2.0, mu)
        assert divergence == 1.0
        would_refute_below = divergence + math.log(1.0 / delta)  # alpha = 2
        assert would_refute_below == pytest.approx(12.5, abs=0.02)
        holds_from = gaussian_dp_epsilon(mu, delta)
        assert holds_from == pytest.approx(4.377178, abs=1e-6)
        # Every epsilon between the two holds, so no attack may refute it, however good: exact
        # rates, all thresholds.
        thresholds = np.linspace(-8.0, 12.0, 4001)
        refuted = event_probabilities.epsilon_from_rates(
            norm.sf(thresholds - mu), norm.sf(thresholds), delta
        )
        assert holds_from - 1e-3 < refuted.max() <= holds_from + 1e-9
        assert holds_from < would_refute_below

    def test_no_such_function_exists(self):
        offered = [name for name in dir(theorems) if not name.startswith("_")]
        assert not [name for name in offered if "delta" in name or "approximate" in name]


class TestLargestRejected:
    def test_bisection_returns_a_rejected_value_within_tolerance(self):
        for truth in (0.3, 1.7, 9.999):
            found = largest_rejected_epsilon(lambda e, t=truth: e <= t, 10.0, tolerance=1e-4)
            assert truth - 1e-4 <= found <= truth

    def test_bisection_ends(self):
        assert largest_rejected_epsilon(lambda e: False, 5.0) == 0.0
        assert largest_rejected_epsilon(lambda e: True, 5.0) == 5.0
        third = 1.0 / 3.0
        assert largest_rejected_epsilon(lambda e: e <= third, 1.0, tolerance=1e-300) == third

    def test_inverts_the_markov_test_to_the_markov_bound(self):
        logs = np.random.default_rng(0).normal(3.0, 1.0, 50)
        alpha, beta = 2.0, 0.05

        def rejects(epsilon):
            # Reject when the empirical mean exceeds the null's mean by the factor 1/beta.
            log_mean = (alpha - 1.0) * empirical_renyi_divergence(alpha, logs)
            return log_mean >= (alpha - 1.0) * epsilon + math.log(1.0 / beta)

        found = largest_rejected_epsilon(rejects, 100.0, tolerance=1e-9)
        assert found == pytest.approx(markov_lower_bound(alpha, logs, beta), abs=1e-8)

    def test_sequence_stops_at_the_first_that_is_not_rejected(self):
        rejected = {0.0, 0.1, 0.2, 0.9}
        grid = [0.0, 0.1, 0.2, 0.3, 0.9]
        assert largest_rejected_in_sequence(rejected.__contains__, grid) == 0.2
        assert largest_rejected_in_sequence(lambda e: False, grid) == 0.0
        assert largest_rejected_in_sequence(lambda e: True, grid) == 0.9

    def test_sequence_keeps_its_level_with_unrelated_tests_and_the_largest_does_not(self):
        # Independent level-0.05 tests at every grid point: nothing is nested.
        grid = np.linspace(0.0, 2.0, 21)
        truth, beta, repeats = 0.45, 0.05, 2000
        rng = np.random.default_rng(0)
        wrong_sequence = wrong_largest = 0
        for _ in range(repeats):
            outcome = {
                epsilon: bool(epsilon < truth or rng.random() < beta) for epsilon in grid.tolist()
            }
            wrong_sequence += largest_rejected_in_sequence(outcome.__getitem__, outcome) > truth
            wrong_largest += max(e for e, rejected in outcome.items() if rejected) > truth
        # One-sided binomial test at 1e-3.
        assert wrong_sequence <= binom.ppf(1.0 - 1e-3, repeats, beta)
        assert wrong_largest > 0.4 * repeats

    def test_bad_grids_and_limits(self):
        with pytest.raises(ValueError, match="increasing"):
            largest_rejected_in_sequence(lambda e: True, [0.2, 0.1])
        with pytest.raises(ValueError, match="epsilons"):
            largest_rejected_in_sequence(lambda e: True, [-0.1])
        with pytest.raises(ValueError, match="upper_limit"):
            largest_rejected_epsilon(lambda e: True, math.inf)
        with pytest.raises(ValueError, match="tolerance"):
            largest_rejected_epsilon(lambda e: True, 1.0, tolerance=0.0)


def test_what_is_no_test_or_no_grid_is_named():
    with pytest.raises(ValueError, match="rejects must be a function"):
        largest_rejected_epsilon(0.5, 1.0)
    with pytest.raises(ValueError, match="rejects must be a function"):
        largest_rejected_in_sequence(None, [0.1])
    with pytest.raises(ValueError, match="epsilons must be an increasing sequence"):
        largest_rejected_in_sequence(lambda _: True, 0.5)
