"""The growth-optimal e-process: validity from exact sums, coverage, tightness, and
every awkward input."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dvrenyi_plugin.bounds.eprocess import sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import discrete_pair, gaussian_pair
from dvrenyi_plugin.bounds.information_limit import certifiable_fraction, closest_null
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess, most_promising_order
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.critics.simple_families import PolynomialLogRatio
from dvrenyi_plugin.privacy.divergences import renyi_bernoulli, renyi_discrete, renyi_gaussian

ALPHAS = (1.01, 1.25, 2.0, 8.0, 64.0)


def linear_fit(samples_q, samples_p):
    """One family in place of six: what is tested here does not depend on the choice, and it is
    fast."""
    return fit_log_ratio(samples_q, samples_p, (PolynomialLogRatio(1),))


# Supermartingale, exactly: every sequence of binary outcomes, weighted by its probability.


@pytest.mark.parametrize(
    ("alpha", "q", "p"), [(2.0, 0.7, 0.4), (1.25, 0.9, 0.5), (8.0, 0.55, 0.45)]
)
def test_mean_e_value_over_all_sequences_is_at_most_one(alpha, q, p):
    epsilon = renyi_bernoulli(alpha, q, p)
    pairs, level = 4, 0.5
    mean, crossing, moved = 0.0, 0.0, 0
    for outcome in itertools.product((0.0, 1.0), repeat=2 * pairs):
        x, y = np.array(outcome[:pairs]), np.array(outcome[pairs:])
        process = GrowthOptimalEProcess(
            alpha, level, epsilons=np.array([epsilon]), fit=linear_fit, warm_up=2
        )
        process.update(x, y)
        probability = float(np.prod(np.where(x == 1.0, q, 1.0 - q)))
        probability *= float(np.prod(np.where(y == 1.0, p, 1.0 - p)))
        log_e = process.log_e_value(epsilon)
        mean += probability * math.exp(log_e)
        crossing += probability * (process.lower_bound > 0.0)
        moved += log_e != 0.0
    assert moved > 20  # bets were placed
    assert mean <= 1.0 + 1e-9
    assert crossing <= level


# Coverage. The claim is exactly true; at failure probability 0.1 over 200 runs, Binomial(200, 0.1)
# exceeds 34 with probability below 1e-3.

_RUNS, _LEVEL, _MOST = 200, 0.1, 34


def count_refutations(sample_q, sample_p, epsilon, alpha=2.0, fit=linear_fit, runs=_RUNS):
    refuted = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        process = GrowthOptimalEProcess(
            alpha, _LEVEL, epsilons=np.array([max(epsilon, 1e-9)]), fit=fit, warm_up=15
        )
        process.update(sample_q(rng), sample_p(rng))
        refuted += process.lower_bound > 0.0
    return refuted


def discretised(law, rng, points):
    return rng.choice(points, 100, p=np.exp(law))


def test_coverage_of_equal_laws():
    assert binomial_limit_is_right()
    refuted = count_refutations(
        lambda rng: rng.normal(size=100), lambda rng: rng.normal(size=100), 0.0
    )
    assert refuted <= _MOST


def binomial_limit_is_right():
    return stats.binom.sf(_MOST, _RUNS, _LEVEL) < 1e-3 < stats.binom.sf(_MOST - 3, _RUNS, _LEVEL)


@pytest.mark.parametrize("alpha", [1.25, 2.0])
def test_coverage_of_the_least_favourable_true_claim(alpha):
    """Under the null pair closest to Gaussians the best bets are fair games: refutations must
    happen, and not too often."""
    null = closest_null(gaussian_pair(1.5, alpha), alpha, 0.4 * alpha).null
    points = np.linspace(-10.0, 1.5 * alpha + 10.0, null.log_q.size)
    refuted = count_refutations(
        lambda rng: discretised(null.log_q, rng, points),
        lambda rng: discretised(null.log_p, rng, points),
        0.4 * alpha,
        alpha,
    )
    assert 2 <= refuted <= _MOST


def test_coverage_of_heavy_tails():
    law = stats.t(2.0)
    # The integral in t of x = tan t: smooth and bounded, dx = (1 + x^2) dt.
    x = np.tan(np.linspace(-math.pi / 2.0, math.pi / 2.0, 20_003)[1:-1])
    values = np.exp(2.0 * law.logpdf(x - 1.0) - law.logpdf(x)) * (1.0 + x**2)
    epsilon = math.log(values.sum() * math.pi / 20_002)
    refuted = count_refutations(
        lambda rng: rng.standard_t(2.0, 100) + 1.0, lambda rng: rng.standard_t(2.0, 100), epsilon
    )
    assert refuted <= _MOST


def test_coverage_with_ties_all_families_and_unequal_counts():
    q, p = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.35, 0.4])
    refuted = count_refutations(
        lambda rng: rng.choice(3, 60, p=q).astype(float),
        lambda rng: rng.choice(3, 170, p=p).astype(float),
        renyi_discrete(2.0, q, p),
        fit=fit_log_ratio,
        runs=100,
    )
    # Binomial(100, 0.1) exceeds 20 with probability below 1e-3.
    assert refuted <= 20


# Tightness.


@pytest.mark.parametrize(
    ("alpha", "mu", "floor"), [(2.0, 1.0, 0.75), (1.25, 2.0, 0.75), (2.0, 0.5, 0.55)]
)
def test_bounds_at_500_pairs_come_near_the_limit(alpha, mu, floor):
    divergence = renyi_gaussian(alpha, mu, 0.0)
    limit = certifiable_fraction(gaussian_pair(mu, alpha), alpha, 500, 0.05)
    fractions = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        process = GrowthOptimalEProcess(alpha, 0.05, warm_up=sample_size_warm_up(500))
        process.update(rng.normal(mu, 1.0, 500), rng.normal(0.0, 1.0, 500))
        fractions.append(process.lower_bound / divergence)
    assert np.mean(fractions) >= floor * limit
    assert np.mean(fractions) <= 1.2 * limit
    assert max(fractions) < 1.0


def test_more_certainty_costs_little():
    """At failure probability 1e-6 the bound is positive, and below that at 0.05."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(2.0, 1.0, 500), rng.normal(0.0, 1.0, 500)
    bounds = []
    for failure_probability in (0.05, 1e-6):
        process = GrowthOptimalEProcess(2.0, failure_probability, warm_up=50, fit=linear_fit)
        process.update(q, p)
        bounds.append(process.lower_bound)
    assert 0.5 < bounds[1] < bounds[0] < 4.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_every_order_gives_a_bound_that_is_positive_and_true(alpha):
    rng = np.random.default_rng(5)
    process = GrowthOptimalEProcess(alpha, 1e-3, warm_up=50, fit=linear_fit)
    process.update(rng.normal(1.0, 1.0, 800), rng.normal(0.0, 1.0, 800))
    assert 0.1 < process.lower_bound < alpha / 2.0
    assert np.isfinite(process.point_estimate())


# Batches, blocks, anytime.


def log_e_values(process, epsilons):
    return [process.log_e_value(epsilon) for epsilon in epsilons]


@pytest.mark.parametrize("splits", [[1] * 120, [40, 40, 40], [31, 1, 88], [119, 1]])
def test_equal_batches_may_be_split_anywhere(splits):
    rng = np.random.default_rng(0)
    q, p = rng.normal(1.0, 1.0, 120), rng.normal(0.0, 1.0, 120)
    epsilons = np.geomspace(0.05, 1.0, 12)
    whole = GrowthOptimalEProcess(2.0, 0.05, epsilons=epsilons, fit=linear_fit)
    whole.update(q, p)
    parts = GrowthOptimalEProcess(2.0, 0.05, epsilons=epsilons, fit=linear_fit)
    start = 0
    for size in splits:
        parts.update(q[start : start + size], p[start : start + size])
        start += size
    np.testing.assert_allclose(
        log_e_values(parts, epsilons), log_e_values(whole, epsilons), rtol=1e-12, atol=1e-12
    )
    assert parts.lower_bound == whole.lower_bound
    assert parts.num_pairs == whole.num_pairs == 120
    assert parts.num_certifying == whole.num_certifying == (90, 90)
    assert parts.log_ratio_family == "polynomial of degree 1"


def test_samples_without_a_partner_wait():
    rng = np.random.default_rng(1)
    q, p = rng.normal(1.0, 1.0, (100, 1)), rng.normal(0.0, 1.0, (100, 1))
    none = np.empty((0, 1))
    late = GrowthOptimalEProcess(2.0, 0.05, fit=linear_fit)
    late.update(q, none)
    assert late.num_pairs == 0
    assert late.num_samples == (0, 0)
    assert late.lower_bound == 0.0
    late.update(none, p)
    together = GrowthOptimalEProcess(2.0, 0.05, fit=linear_fit)
    together.update(q, p)
    assert late.lower_bound == together.lower_bound
    assert late.log_e_value(0.3) == together.log_e_value(0.3)


def test_surplus_samples_are_used_in_blocks_and_help():
    plain, richer = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        q, p = rng.normal(1.0, 1.0, 150), rng.normal(0.0, 1.0, 1200)
        for bounds, count in ((plain, 150), (richer, 1200)):
            process = GrowthOptimalEProcess(2.0, 0.05, warm_up=27, fit=linear_fit)
            process.update(q, p[:count])
            assert process.num_samples == (150, count)
            bounds.append(process.lower_bound)
    assert np.mean(richer) > np.mean(plain)
    assert max(richer) < 1.0


def test_the_bound_never_falls_and_stays_at_its_best():
    rng = np.random.default_rng(2)
    process = GrowthOptimalEProcess(2.0, 0.05, fit=linear_fit)
    bounds = [process.lower_bound]
    for batch in range(20):
        # The laws swap halfway: evidence that comes later cannot take a rejection back.
        shift = 1.5 if batch < 10 else -1.5
        process.update(rng.normal(shift, 1.0, 30), rng.normal(0.0, 1.0, 30))
        bounds.append(process.lower_bound)
    assert all(later >= earlier for earlier, later in itertools.pairwise(bounds))
    assert bounds[-1] >= bounds[10] > 0.3


def test_the_bound_is_the_fixed_sequence_one():
    epsilons = np.geomspace(0.01, 3.0, 40)
    for seed in range(6):
        process = GrowthOptimalEProcess(2.0, 0.3, epsilons=epsilons, fit=linear_fit, warm_up=5)
        rng = np.random.default_rng(seed)
        process.update(rng.normal(0.8, 1.0, 40), rng.normal(0.0, 1.0, 40))
        rejected = np.array(log_e_values(process, epsilons)) >= math.log(1.0 / 0.3)
        leading = int(np.argmin(rejected)) if not rejected.all() else rejected.size
        assert process.lower_bound == (epsilons[leading - 1] if leading else 0.0)


@pytest.mark.parametrize("claim", [0.0, 0.2, 0.37])
def test_a_claim_is_exceeded_when_its_own_null_is_rejected(claim):
    rng = np.random.default_rng(6)
    process = GrowthOptimalEProcess(
        2.0, 0.05, claims=[claim], epsilons=np.array([0.1, 0.3, 20.0]), fit=linear_fit
    )
    process.update(rng.normal(1.5, 1.0, 300), rng.normal(0.0, 1.0, 300))
    assert process.log_e_value(claim) >= math.log(20.0)
    assert process.lower_bound > claim
    assert process.lower_bound < 2.25


def test_the_default_grid_is_fine_enough():
    process = GrowthOptimalEProcess(2.0, 0.05)
    rng = np.random.default_rng(0)
    process.update(rng.normal(2.0, 1.0, 200), rng.normal(0.0, 1.0, 200))
    # Neighbouring nulls are 2% apart, so that the next one would have been within 2%.
    assert process.log_e_value(process.lower_bound) >= math.log(20.0)
    assert process.log_e_value(process.lower_bound * 1.025) < math.log(20.0)


# Awkward samples.


@pytest.mark.parametrize(
    ("q", "p"),
    [
        (np.zeros(80), np.zeros(80)),
        (np.ones(80), np.zeros(80)),
        (np.r_[np.linspace(0.0, 1.0, 79), 1e300], np.linspace(0.0, 1.0, 80)),
        (np.linspace(0.0, 1.0, 80), np.r_[-1e300, np.linspace(0.0, 1.0, 79)]),
        (np.full(80, 1e300), np.full(80, -1e300)),
        (np.linspace(1e-300, 2e-300, 80), np.linspace(0.0, 1e-300, 80)),
        (np.arange(80) % 2, np.arange(80) % 3),
        (np.zeros((80, 5)), np.zeros((80, 5))),
        (np.eye(80)[:, :5] * 1e200, -np.eye(80)[:, :5]),
        (np.ones((80, 13)), np.zeros((80, 13))),
    ],
)
def test_no_input_gives_nan_or_overflow(q, p):
    process = GrowthOptimalEProcess(2.0, 0.05, warm_up=10)
    with np.errstate(invalid="raise", over="raise"):
        process.update(q, p)
    assert math.isfinite(process.lower_bound)
    assert process.lower_bound >= 0.0
    for epsilon in (0.0, 0.1, 1.0, 50.0):
        assert not math.isnan(process.log_e_value(epsilon))
    assert process.point_estimate() >= 0.0


def test_laws_on_different_points_certify_much_and_equal_ones_nothing():
    process = GrowthOptimalEProcess(2.0, 0.05, warm_up=10)
    process.update(np.ones(200), np.zeros(200))
    assert process.lower_bound > 2.0
    process = GrowthOptimalEProcess(2.0, 0.05, warm_up=10)
    process.update(np.ones(200), np.ones(200))
    assert process.lower_bound == 0.0


@pytest.mark.parametrize("dimension", [1, 5])
def test_any_dimension(dimension):
    rng = np.random.default_rng(8)
    shift = 1.5 / math.sqrt(dimension)
    process = GrowthOptimalEProcess(2.0, 0.05, warm_up=60)
    process.update(rng.normal(shift, 1.0, (600, dimension)), rng.normal(0.0, 1.0, (600, dimension)))
    assert 0.5 < process.lower_bound < 2.25
    assert process.fitted_log_ratio()(np.zeros((3, dimension))).shape == (3,)


def test_the_point_estimate_is_near_the_truth():
    rng = np.random.default_rng(9)
    process = GrowthOptimalEProcess(2.0, 0.05, fit=linear_fit)
    process.update(rng.normal(1.0, 1.0, 5000), rng.normal(0.0, 1.0, 5000))
    assert process.point_estimate() == pytest.approx(1.0, abs=0.25)


# Orders and refusals.


def test_the_most_promising_order_is_the_one_with_the_largest_rate():
    rng = np.random.default_rng(10)
    q, p = rng.normal(2.0, 1.0, 2000), rng.normal(0.0, 1.0, 2000)
    alphas = (1.25, 2.0, 8.0)
    epsilons = [0.4 * renyi_gaussian(alpha, 2.0, 0.0) for alpha in alphas]
    rates = [
        closest_null(gaussian_pair(2.0, alpha), alpha, epsilon).rate
        for alpha, epsilon in zip(alphas, epsilons, strict=True)
    ]
    assert most_promising_order(alphas, epsilons, q, p, linear_fit) == int(np.argmax(rates))
    with pytest.raises(ValueError, match="length"):
        most_promising_order(alphas, epsilons[:2], q, p)


@pytest.mark.parametrize("pairs", [1, 10, 500, 50_000])
def test_the_warm_up_grows_like_a_square_root(pairs):
    assert sample_size_warm_up(pairs) == max(10, round(2.2 * math.sqrt(pairs)))


@pytest.mark.parametrize(
    ("settings_", "named"),
    [
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"failure_probability": 0.0}, "failure_probability"),
        ({"failure_probability": 1.0}, "failure_probability"),
        ({"claims": [-0.1]}, "claims"),
        ({"claims": [math.nan]}, "claims"),
        ({"epsilons": np.array([])}, "epsilons"),
        ({"epsilons": np.array([0.0, 1.0])}, "epsilons"),
        ({"epsilons": np.array([2.0, 1.0])}, "epsilons"),
        ({"warm_up": 1}, "warm_up"),
        ({"refit_ratio": 1.0}, "refit_ratio"),
        ({"num_cells": 1}, "num_cells"),
    ],
)
def test_bad_settings_are_named(settings_, named):
    arguments = {"alpha": 2.0, "failure_probability": 0.05} | settings_
    with pytest.raises(ValueError, match=named):
        GrowthOptimalEProcess(
            arguments.pop("alpha"), arguments.pop("failure_probability"), **arguments
        )


def test_bad_samples_are_named_and_change_nothing():
    process = GrowthOptimalEProcess(2.0, 0.05)
    with pytest.raises(ValueError, match="samples_q"):
        process.update([math.nan], [0.0])
    with pytest.raises(ValueError, match="columns"):
        process.update(np.zeros((3, 2)), np.zeros((3, 1)))
    assert process.num_samples == (0, 0)
    process.update(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="columns"):
        process.update(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="epsilon"):
        process.log_e_value(-1.0)
    with pytest.raises(ValueError, match="epsilon"):
        process.log_e_value(1e9)
    with pytest.raises(ValueError, match="at least 1 pair"):
        GrowthOptimalEProcess(2.0, 0.05).point_estimate()


def test_samples_are_not_changed():
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=50), rng.normal(size=50)
    before = q.copy(), p.copy()
    GrowthOptimalEProcess(2.0, 0.05, fit=linear_fit).update(q, p)
    assert np.array_equal(q, before[0])
    assert np.array_equal(p, before[1])


def test_discrete_pair_helper_agrees_with_the_closed_form():
    assert discrete_pair([0.7, 0.3], [0.4, 0.6]).renyi(2.0) == pytest.approx(
        renyi_bernoulli(2.0, 0.7, 0.4)
    )
