"""One-sided bounds for means: known values, round trips, coverage and tightness."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dvrenyi_plugin.bounds import bounded_means as means

LOWER_BOUNDS = (
    means.hoeffding_lower_bound,
    means.empirical_bernstein_lower_bound,
    means.betting_lower_bound,
)
UPPER_BOUNDS = (
    means.hoeffding_upper_bound,
    means.empirical_bernstein_upper_bound,
    means.betting_upper_bound,
)
BETA = 0.1
REPEATS = 200
# More misses than this in REPEATS runs at rate BETA: probability below 1e-3.
MOST_MISSES = int(binom.ppf(1.0 - 1e-3, REPEATS, BETA))


def test_clopper_pearson_at_the_ends():
    assert means.clopper_pearson_lower_bound(0, 20, 0.05) == 0.0
    assert means.clopper_pearson_upper_bound(20, 20, 0.05) == 1.0
    # k = n and k = 0 have closed forms: beta^(1/n) and its mirror
    assert means.clopper_pearson_lower_bound(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert means.clopper_pearson_upper_bound(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20))


@pytest.mark.parametrize("trials", [1, 7, 100, 20_000])
@pytest.mark.parametrize("beta", [1e-6, 0.05, 0.4])
def test_clopper_pearson_fed_back_into_the_binomial_returns_its_level(trials, beta):
    for successes in sorted({1, trials // 3 + 1, trials}):
        lower = means.clopper_pearson_lower_bound(successes, trials, beta)
        assert binom.sf(successes - 1, trials, lower) == pytest.approx(beta, rel=1e-6)
    for successes in sorted({0, trials // 3, trials - 1}):
        upper = means.clopper_pearson_upper_bound(successes, trials, beta)
        assert binom.cdf(successes, trials, upper) == pytest.approx(beta, rel=1e-6)


def test_clopper_pearson_takes_counts_not_rates():
    assert means.clopper_pearson_lower_bound(29, 100, 0.05) > means.clopper_pearson_lower_bound(
        28, 100, 0.05
    )
    with pytest.raises(ValueError, match=r"successes must be an integer.*0\.29"):
        means.clopper_pearson_lower_bound(0.29, 100, 0.05)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="successes"):
        means.clopper_pearson_upper_bound(101, 100, 0.05)


def test_hoeffding_and_empirical_bernstein_known_values():
    values = np.array([0.2, 0.4, 0.6, 0.8])
    assert means.hoeffding_lower_bound(values, 0.9) == pytest.approx(
        0.5 - math.sqrt(math.log(1 / 0.9) / 8)
    )
    # 50,000 values of variance 1/4 (n / (n - 1) unbiased): the formula of theorem 4, term by term
    coin = np.tile([0.0, 1.0], 25_000)
    log_term = math.log(2 / 0.05)
    variance = 0.25 * 50_000 / 49_999
    expected = 0.5 - math.sqrt(2 * variance * log_term / 50_000) - 7 * log_term / (3 * 49_999)
    assert means.empirical_bernstein_lower_bound(coin, 0.05) == pytest.approx(expected, rel=1e-12)


def test_betting_inverts_the_capital_process():
    values = np.random.default_rng(0).beta(2.0, 5.0, 60)
    bound = means.betting_lower_bound(values, 0.05)

    def largest_capital(mean):
        capital = largest = 1.0
        seen, squares = 0.5, 0.25
        for index, value in enumerate(values):
            variance = squares / (index + 1)
            bet = min(math.sqrt(2 * math.log(20) / (len(values) * variance)), 0.75 / mean)
            capital *= 1 + bet * (value - mean)
            largest = max(largest, capital)
            seen += value
            squares += (value - seen / (index + 2)) ** 2
        return largest

    assert largest_capital(bound - 1e-9) >= 20.0 > largest_capital(bound + 1e-9)
    grid = [largest_capital(mean) for mean in np.linspace(0.01, 0.99, 99)]
    assert np.all(np.diff(grid) <= 0.0)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("count", [1, 20, 200])
@pytest.mark.parametrize("law", ["coin", "rare", "beta", "almost constant"])
def test_bounds_miss_no_more_often_than_stated(index, count, law):
    """False-alarm rate of this test: 1e-3 a side, were the bounds exact; they are conservative."""
    rng = np.random.default_rng([index, count, len(law)])
    draw, mean = {
        "coin": (lambda: (rng.random(count) < 0.5).astype(float), 0.5),
        "rare": (lambda: (rng.random(count) < 0.03).astype(float), 0.03),
        "beta": (lambda: rng.beta(0.3, 3.0, count), 0.3 / 3.3),
        "almost constant": (lambda: 0.9 + 0.01 * rng.random(count), 0.905),
    }[law]
    samples = [draw() for _ in range(REPEATS)]
    low_misses = sum(LOWER_BOUNDS[index](values, BETA) > mean for values in samples)
    high_misses = sum(UPPER_BOUNDS[index](values, BETA) < mean for values in samples)
    assert low_misses <= MOST_MISSES
    assert high_misses <= MOST_MISSES


def test_betting_is_close_to_the_mean_and_beats_the_others_at_low_variance():
    values = np.random.default_rng(3).beta(20.0, 180.0, 1000)  # sd 0.021
    lower = [bound(values, 0.05) for bound in LOWER_BOUNDS]
    upper = [bound(values, 0.05) for bound in UPPER_BOUNDS]
    assert lower[0] < lower[1] < lower[2] < values.mean()
    assert upper[0] > upper[1] > upper[2] > values.mean()
    # 1.645 standard errors are 0.0011: what an exact normal bound would subtract
    assert values.mean() - lower[2] < 0.005
    assert upper[2] - values.mean() < 0.005


@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_constant_values(constant, count):
    values = np.full(count, constant)
    for lower, upper in zip(LOWER_BOUNDS, UPPER_BOUNDS, strict=True):
        assert 0.0 <= lower(values, 0.05) <= constant <= upper(values, 0.05) <= 1.0
    if count == 1000:
        assert means.betting_upper_bound(values, 0.05) - constant < 0.02
        assert constant - means.betting_lower_bound(values, 0.05) < 0.02


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30),
    st.floats(0.01, 0.5),
    st.floats(-5.0, 5.0),
    st.floats(0.1, 10.0),
)
def test_scaling_mirror_and_level(values, beta, low, width):
    units = np.array(values)
    # 1 + 1e-9 of slack at the top: low + width * 1.0 may round above low + width
    high = low + width * (1.0 + 1e-9)
    scaled = low + width * units
    for lower, upper in zip(LOWER_BOUNDS, UPPER_BOUNDS, strict=True):
        bound = lower(units, beta)
        assert 0.0 <= bound <= 1.0
        assert upper(1.0 - units, beta) == pytest.approx(1.0 - bound, abs=1e-9)
        assert lower(scaled, beta, low=low, high=high) == pytest.approx(
            low + width * bound, abs=1e-6 * width
        )
        assert lower(units, beta / 10.0) <= bound + 1e-12


def test_bad_arguments_are_named():
    for bound in (*LOWER_BOUNDS, *UPPER_BOUNDS):
        for beta in (-1.0, 0.0, 1.0, math.nan):
            with pytest.raises(ValueError, match="failure_probability"):
                bound([0.5], beta)
        with pytest.raises(ValueError, match=r"values must lie in \[0, 1\].*1\.5.* at index 1"):
            bound([0.5, 1.5], 0.05)
        with pytest.raises(ValueError, match="at index 2"):
            bound([0.5, 0.5, math.nan], 0.05)
        with pytest.raises(ValueError, match="values must have shape"):
            bound([], 0.05)
        with pytest.raises(ValueError, match="high must be above low"):
            bound([0.5], 0.05, low=1.0, high=1.0)
