"""The information limit and the planner: known answers, optimality conditions, and simulated
power."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dvrenyi_plugin.audits.planner import RefutationPlan, plan_refutation
from dvrenyi_plugin.bounds.eprocess import sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import GridPair, discrete_pair, gaussian_pair, laplace_pair
from dvrenyi_plugin.bounds.growth_factor import best_bets, log_factors
from dvrenyi_plugin.bounds.information_limit import (
    ClosestNull,
    certifiable_epsilon,
    certifiable_fraction,
    closest_null,
)
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.privacy.divergences import (
    kullback_leibler_from_log_masses,
    renyi_gaussian,
    renyi_laplace,
)

MUS = (0.5, 1.0, math.sqrt(2.0), 2.0, math.sqrt(10.0))


def distance(pair: GridPair, null: GridPair) -> float:
    return kullback_leibler_from_log_masses(
        pair.log_q, null.log_q
    ) + kullback_leibler_from_log_masses(pair.log_p, null.log_p)


@pytest.mark.parametrize("alpha", [1.01, 1.25, 2.0, 8.0, 64.0])
@pytest.mark.parametrize("mu", [0.1, 1.0, math.sqrt(10.0)])
def test_gaussian_grid_carries_the_divergence(alpha, mu):
    divergence = renyi_gaussian(alpha, mu, 0.0)
    assert gaussian_pair(mu, alpha).renyi(alpha) == pytest.approx(divergence, rel=1e-9)


@pytest.mark.parametrize("shift", [0.3, 1.0, 4.0])
def test_laplace_grid_carries_the_divergence(shift):
    assert laplace_pair(2.0 * shift, 2.0).renyi(2.0) == pytest.approx(
        renyi_laplace(2.0, 0.0, shift), rel=1e-5
    )


# Largest certifiable fractions of D at failure probability 0.05, computed independently (bisection
# for r at every point, root-finding over lambda) on a grid of epsilons in steps of 0.025 D and
# rounded down to it.
@pytest.mark.parametrize(
    ("num_pairs", "alpha", "fractions"),
    [
        (500, 1.25, (0.45, 0.65, 0.70, 0.67, 0.55)),
        (5_000, 1.25, (0.80, 0.87, 0.87, 0.85, 0.72)),
        (50_000, 1.25, (0.92, 0.95, 0.95, 0.92, 0.82)),
        (500, 2.0, (0.45, 0.60, 0.60, 0.52, 0.37)),
        (5_000, 2.0, (0.77, 0.82, 0.80, 0.70, 0.50)),
        (50_000, 2.0, (0.92, 0.92, 0.90, 0.82, 0.62)),
    ],
)
def test_known_limits_of_gaussians(num_pairs, alpha, fractions):
    for mu, expected in zip(MUS, fractions, strict=True):
        fraction = certifiable_fraction(gaussian_pair(mu, alpha), alpha, num_pairs, 0.05)
        assert fraction == pytest.approx(expected, abs=0.025)


def random_pair(rng: np.random.Generator, size: int) -> GridPair:
    q, p = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    return discrete_pair(q, p)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 12),
    alpha=st.sampled_from([1.01, 1.25, 2.0, 5.0, 32.0]),
    fraction=st.floats(0.001, 0.95),
)
def test_the_minimiser_is_feasible_and_satisfies_the_optimality_conditions(
    seed, size, alpha, fraction
):
    pair = random_pair(np.random.default_rng(seed), size)
    epsilon = fraction * pair.renyi(alpha)
    closest = closest_null(pair, alpha, epsilon)
    if closest.bet == 0.0:  # the rate is not a float any more
        assert alpha == 32.0
        return
    # Feasible, and on the boundary.
    assert np.exp(closest.null.log_q).sum() == pytest.approx(1.0, abs=1e-9)
    assert np.exp(closest.null.log_p).sum() == pytest.approx(1.0, abs=1e-9)
    assert closest.null.renyi(alpha) == pytest.approx(epsilon, rel=1e-5, abs=1e-9)
    # Stationary: q / q' and p / p' are the two halves at r = q' / p'.
    log_r = closest.null.log_q - closest.null.log_p
    bet, tilt = closest.bet, (alpha - 1.0) * epsilon
    first = 1.0 + bet * np.expm1((alpha - 1.0) * log_r - tilt)
    second = 1.0 - bet * (alpha - 1.0) / alpha * np.expm1(alpha * log_r - tilt)
    # Rounding of the masses is amplified by how unequal they are at high orders.
    np.testing.assert_allclose(np.exp(closest.log_first), first, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.exp(closest.log_second), second, rtol=1e-4, atol=1e-6)
    # Dual value (growth of the optimal factor) equals the primal one (distance of the laws).
    assert closest.rate == pytest.approx(distance(pair, closest.null), rel=1e-8, abs=1e-14)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([1.05, 2.0, 6.0]))
def test_no_other_null_pair_is_closer(seed, alpha):
    rng = np.random.default_rng(seed)
    pair = random_pair(rng, 5)
    epsilon = 0.4 * pair.renyi(alpha)
    closest = closest_null(pair, alpha, epsilon)
    for _ in range(8):
        # A competitor near the minimiser: mixing both laws with a common one brings it back into
        # the null.
        scale = rng.choice([0.01, 0.1, 1.0])
        log_q = closest.null.log_q + scale * rng.normal(size=5)
        log_p = closest.null.log_p + scale * rng.normal(size=5)
        q, p = np.exp(log_q) / np.exp(log_q).sum(), np.exp(log_p) / np.exp(log_p).sum()
        low, high = 0.0, 1.0
        for _ in range(25):
            weight = (low + high) / 2.0
            middle = (q + p) / 2.0
            rival = discrete_pair(q + weight * (middle - q), p + weight * (middle - p))
            low, high = (low, weight) if rival.renyi(alpha) <= epsilon else (weight, high)
        middle = (q + p) / 2.0
        rival = discrete_pair(q + high * (middle - q), p + high * (middle - p))
        assert rival.renyi(alpha) <= epsilon * (1.0 + 1e-6)
        assert distance(pair, rival) >= closest.rate * (1.0 - 1e-6)


@pytest.mark.parametrize("alpha", [1.25, 2.0, 4.0])
def test_rate_falls_to_zero_at_the_divergence_and_is_the_jensen_shannon_one_at_zero(alpha):
    pair = gaussian_pair(1.5, alpha)
    divergence = pair.renyi(alpha)
    rates = [
        closest_null(pair, alpha, f * divergence).rate for f in (0.0, 1e-6, 0.1, 0.5, 0.9, 1.0, 2.0)
    ]
    assert all(high > low for high, low in itertools.pairwise(rates[:6]))
    assert rates[5:] == [0.0, 0.0]
    middle = np.logaddexp(pair.log_q, pair.log_p) - math.log(2.0)
    assert rates[0] == pytest.approx(distance(pair, GridPair(middle, middle)), rel=1e-9)
    assert rates[1] == pytest.approx(rates[0], rel=0.01)


@pytest.mark.parametrize(("alpha", "fraction"), [(1.25, 0.5), (2.0, 0.3), (4.0, 0.2)])
def test_the_optimal_factor_is_the_one_that_the_e_process_bets_with(alpha, fraction):
    """With bets found by search and the ratio interpolated, the growth comes within 2% of the
    limit."""
    pair = gaussian_pair(1.0, alpha)
    epsilon = fraction * pair.renyi(alpha)
    closest = closest_null(pair, alpha, epsilon)
    inside = (pair.log_q > -60.0) | (pair.log_p > -60.0)
    log_ratio = (pair.log_q - pair.log_p)[inside]
    q, p = np.exp(pair.log_q[inside]), np.exp(pair.log_p[inside])
    bets, _ = best_bets(alpha, np.array([epsilon]), log_ratio, q, p)
    first, second = log_factors(alpha, np.array([epsilon]), bets, log_ratio)
    growth = float(first[0] @ q + second[0] @ p)
    assert 0.98 * closest.rate <= growth <= closest.rate * (1.0 + 1e-9)


def test_laws_with_points_of_their_own():
    pair = discrete_pair([0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0])
    assert pair.renyi(2.0) == math.inf
    for epsilon in (1e-3, 0.1, 1.0, 5.0):
        closest = closest_null(pair, 2.0, epsilon)
        assert closest.null.renyi(2.0) == pytest.approx(epsilon, rel=1e-6)
        assert closest.rate == pytest.approx(distance(pair, closest.null), rel=1e-9)
        assert closest.rate > 0.0
        assert closest.null.log_q[3] == closest.null.log_p[3] == -math.inf
    with pytest.raises(ValueError, match="finite"):
        certifiable_epsilon(pair, 2.0, 100, 0.05)


def test_the_certifiable_epsilon_is_where_the_limit_is_met():
    pair = gaussian_pair(1.0, 2.0)
    epsilon = certifiable_epsilon(pair, 2.0, 500, 0.05)
    assert 500 * closest_null(pair, 2.0, epsilon).rate == pytest.approx(math.log(20.0), rel=1e-3)
    assert certifiable_epsilon(pair, 2.0, 1, 0.05) == 0.0
    assert certifiable_fraction(discrete_pair([0.5, 0.5], [0.5, 0.5]), 2.0, 500, 0.05) == 0.0
    fractions = [certifiable_fraction(pair, 2.0, n, 0.05) for n in (50, 500, 5_000)]
    assert fractions == sorted(fractions)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GridPair(np.zeros(3), np.zeros(3)),
        lambda: GridPair(np.log([0.5, 0.5]), np.log([0.2, 0.3, 0.5])),
        lambda: GridPair(np.array([np.nan, 0.0]), np.log([0.5, 0.5])),
        lambda: GridPair(np.zeros((1, 1)), np.zeros((1, 1))),
        lambda: gaussian_pair(0.0),
        lambda: gaussian_pair(math.nan),
        lambda: laplace_pair(1.0, 0.0),
        lambda: closest_null(gaussian_pair(1.0, 2.0), 1.0, 0.5),
        lambda: closest_null(gaussian_pair(1.0, 2.0), 2.0, -0.5),
        lambda: certifiable_epsilon(gaussian_pair(1.0, 2.0), 2.0, 0, 0.05),
        lambda: certifiable_epsilon(gaussian_pair(1.0, 2.0), 2.0, 10, 1.0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


# The planner.


def simulate_oracle(closest: ClosestNull, pair: GridPair, pairs: int, repeats: int, seed: int):
    """Running maxima of the log e-value with the known log ratio, shape (repeats, pairs)."""
    rng = np.random.default_rng(seed)
    points = pair.log_q.size
    x = rng.choice(points, (repeats, pairs), p=np.exp(pair.log_q))
    y = rng.choice(points, (repeats, pairs), p=np.exp(pair.log_p))
    walk = np.cumsum(closest.log_first[x] + closest.log_second[y], axis=1)
    return np.maximum.accumulate(walk, axis=1)


@pytest.mark.parametrize(("alpha", "claim", "mu"), [(2.0, 1.0, 2.0), (1.25, 0.5, 1.0)])
def test_planned_power_is_the_simulated_power_of_the_oracle(alpha, claim, mu):
    pair = gaussian_pair(mu, alpha)
    epsilon = renyi_gaussian(alpha, claim, 0.0)
    plan = plan_refutation(pair, alpha, epsilon, 0.05, known_log_ratio=True)
    last = plan.pairs_for_power(0.9)
    walk = simulate_oracle(closest_null(pair, alpha, epsilon), pair, last, 2000, seed=1)
    for power in (0.5, 0.9):
        refuted = np.mean(walk[:, plan.pairs_for_power(power) - 1] >= plan.log_threshold)
        # Standard error 0.011; the rest is the Brownian approximation.
        assert refuted == pytest.approx(power, abs=0.08)


def test_e_values_of_the_closest_null_keep_their_promise():
    """Under the null pair itself the walk is a martingale that reaches 1 / 0.1 in at most 10% of
    runs."""
    pair = gaussian_pair(1.5, 2.0)
    closest = closest_null(pair, 2.0, 1.0)
    mean = (
        np.exp(closest.null.log_q + closest.log_first).sum()
        * np.exp(closest.null.log_p + closest.log_second).sum()
    )
    assert mean == pytest.approx(1.0, abs=1e-9)
    walk = simulate_oracle(closest, closest.null, 400, 2000, seed=2)
    crossed = np.count_nonzero(walk[:, -1] >= math.log(10.0))
    # Binomial(2000, 0.1) exceeds 242 with probability 1e-3.
    assert 60 <= crossed <= 242


def test_plans_know_what_cannot_be_refuted():
    plan = plan_refutation(gaussian_pair(1.0, 2.0), 2.0, 1.5, 0.05)
    assert plan.rate == 0.0
    assert plan.growth_pairs == math.inf
    assert plan.pairs_for_power(0.5) is None
    assert plan.probability_to_refute(10**6) == 0.0
    assert plan.is_futile(1.0, 10**6)


def test_futility_looks_at_what_is_left():
    plan = plan_refutation(gaussian_pair(2.0, 2.0), 2.0, 1.0, 0.05)
    assert not plan.is_futile(0.0, 500)
    assert plan.is_futile(0.0, 2)
    assert plan.is_futile(-40.0, 100)
    assert not plan.is_futile(-40.0, 5_000)
    assert plan.probability_to_refute(0, log_e_value=plan.log_threshold) == 1.0
    assert plan.probability_to_refute(0) == 0.0


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(1e-4, 1.0),
    variance=st.floats(1e-6, 3.0),
    failure=st.floats(1e-6, 0.5),
    pairs=st.integers(1, 10**5),
    start=st.floats(-50.0, 2.0),
)
def test_probabilities_are_monotone(rate, variance, failure, pairs, start):
    plan = RefutationPlan(2.0, 1.0, 2.0, rate, variance, failure)
    here = plan.probability_to_refute(pairs, start)
    assert 0.0 <= here <= 1.0
    assert plan.probability_to_refute(pairs + 50, start) >= here - 1e-9
    assert plan.probability_to_refute(pairs, start + 0.1) >= here - 1e-9
    wanted = plan.pairs_for_power(0.8)
    assert plan.probability_to_refute(wanted) >= 0.8
    assert wanted == 1 or plan.probability_to_refute(wanted - 1) < 0.8


def test_learning_the_log_ratio_takes_pairs():
    known = plan_refutation(gaussian_pair(2.0, 2.0), 2.0, 1.0, 0.05, known_log_ratio=True)
    learned = plan_refutation(gaussian_pair(2.0, 2.0), 2.0, 1.0, 0.05)
    for power in (0.5, 0.9):
        pairs = known.pairs_for_power(power)
        allowed = 1.25 * pairs + 4.0 * math.sqrt(pairs)
        assert learned.pairs_for_power(power) == pytest.approx(allowed, abs=3)


def test_planned_power_is_that_of_the_e_process_that_learns():
    """Binomial(40, 0.9) falls below 29 with probability under 1e-3: planning must not promise too
    much."""
    plan = plan_refutation(gaussian_pair(2.0, 2.0), 2.0, 1.0, 0.05)
    pairs = plan.pairs_for_power(0.9)
    assert pairs < 130
    refuted = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        process = GrowthOptimalEProcess(
            2.0,
            0.05,
            claims=[1.0],
            epsilons=np.geomspace(0.05, 3.0, 20),
            warm_up=sample_size_warm_up(pairs),
        )
        process.update(rng.normal(2.0, 1.0, pairs), rng.normal(0.0, 1.0, pairs))
        refuted += process.lower_bound > 1.0
    assert refuted >= 29


def test_a_walk_without_spread_arrives_on_time():
    plan = RefutationPlan(2.0, 1.0, 2.0, 0.5, 0.0, math.exp(-5.0), known_log_ratio=True)
    assert plan.probability_to_refute(9) == 0.0
    assert plan.probability_to_refute(10) == 1.0


@pytest.mark.parametrize("pair", [None, (0.5, 0.5), "pair"])
def test_what_is_no_pair_is_named(pair):
    with pytest.raises(ValueError, match="pair must be a GridPair"):
        closest_null(pair, 2.0, 0.1)
    for function in (certifiable_epsilon, certifiable_fraction):
        with pytest.raises(ValueError, match="pair must be a GridPair"):
            function(pair, 2.0, 100, 0.05)


@pytest.mark.parametrize("alpha", [8.0, 16.0, 64.0, 200.0, 1e6])
@pytest.mark.parametrize("mu", [1.0001, 1.2, 4.0, 30.0])
def test_e10_plans_at_large_orders_are_numbers_or_never(alpha, mu):
    plan = plan_refutation(gaussian_pair(mu, alpha), alpha, 0.5 * alpha, 0.025, warm_up=30)
    for power in (0.5, 0.9):
        pairs = plan.pairs_for_power(power)
        assert pairs is None or 30 < pairs <= 10**9
    for count in (0, 1, 30, 10**4, 10**18):
        assert 0.0 <= plan.probability_to_refute(count) <= 1.0


def test_e10_reflected_part_is_that_of_the_inverse_gaussian():
    """Far from the overflow the new form must give what the textbook's gives."""
    plan = RefutationPlan(2.0, 1.0, 2.0, 0.05, 0.3, 0.05, known_log_ratio=True)
    distance = plan.log_threshold + 0.583 * math.sqrt(0.3)
    for pairs in (5, 50, 500):
        spread, gain = math.sqrt(0.3 * pairs), 0.05 * pairs
        expected = stats.norm.cdf((gain - distance) / spread) + math.exp(
            2.0 * 0.05 * distance / 0.3
        ) * stats.norm.cdf(-(gain + distance) / spread)
        assert plan.probability_to_refute(pairs) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("alpha", [1.1, 1.25, 2.0, 4.0])
def test_e10_the_rate_grows_with_the_distance_of_the_laws_and_levels_off(alpha):
    """At mu = 50 the ratio q/p is beyond e^600 on both sides: the plan said "never"."""
    rates = [closest_null(gaussian_pair(mu, alpha), alpha, 0.5).rate for mu in (4, 20, 50, 200)]
    assert rates[1] > rates[0]
    assert rates[1:] == pytest.approx([rates[1]] * 3, rel=1e-6)
