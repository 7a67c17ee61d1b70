"""The growth-optimal factor: mean at most 1, and bets that grow for false nulls."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.growth_factor import (
    best_bets,
    interpolate_bets,
    largest_bets,
    log_factors,
)
from dvrenyi_plugin.privacy.divergences import renyi_discrete

ALPHAS = (1.01, 1.25, 2.0, 8.0, 64.0)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 10),
    alpha=st.sampled_from(ALPHAS),
    share=st.floats(1e-6, 1.0 - 1e-6),
    slack=st.floats(1.0, 3.0),
    spread=st.sampled_from([0.1, 1.0, 10.0, 45.0]),
)
def test_mean_factor_is_at_most_one_for_every_null_pair_and_every_estimate(
    seed, size, alpha, share, slack, spread
):
    rng = np.random.default_rng(seed)
    q, p = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    epsilon = np.array([renyi_discrete(alpha, q, p) * slack])
    bet = share * largest_bets(alpha, epsilon)
    first, second = log_factors(alpha, epsilon, bet, rng.normal(0.0, spread, size))
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    log_mean = math.log(np.exp(first[0]) @ q) + math.log(np.exp(second[0]) @ p)
    assert log_mean <= 1e-9


@pytest.mark.parametrize(
    ("alpha", "bet"),
    [(1.05, 0.3), (1.05, 0.999), (1.05, 1.001), (1.05, 4.0), (1.25, 0.9), (2.0, 0.5), (8.0, 0.01)],
)
def test_mean_factor_is_one_where_hoelders_inequality_is_an_equality(alpha, bet):
    """With r = dQ/dP and D_alpha(Q || P) = epsilon nothing is given away: the bound cannot be
    improved."""
    q, p = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    epsilon = renyi_discrete(alpha, q, p)
    log_r = np.log(q / p)
    tilt = (alpha - 1.0) * epsilon
    first = np.log1p(bet * np.expm1((alpha - 1.0) * log_r - tilt))
    second = np.log1p(-bet * (alpha - 1.0) / alpha * np.expm1(alpha * log_r - tilt))
    # The estimate at which the factor uses just this r.
    tabulated = log_factors(alpha, np.array([epsilon]), np.array([bet]), log_r + first - second)
    np.testing.assert_allclose(tabulated[0][0], first, atol=0.02)
    np.testing.assert_allclose(tabulated[1][0], second, atol=0.02)
    mean = (np.exp(tabulated[0][0]) @ q) * (np.exp(tabulated[1][0]) @ p)
    assert 1.0 - 1e-3 <= mean <= 1.0 + 1e-9


def test_halves_are_monotone_in_the_log_ratio_and_shapes_are_kept():
    first, second = log_factors(
        2.0, np.array([0.5, 1.0]), np.array([0.2, 0.7]), np.linspace(-30.0, 30.0, 101)
    )
    assert first.shape == second.shape == (2, 101)
    assert np.all(np.diff(first, axis=1) >= 0.0)
    assert np.all(np.diff(second, axis=1) <= 0.0)


def test_bets_grow_for_false_nulls_only_and_interpolation_keeps_them_legal():
    pair = gaussian_pair(1.0, 2.0)
    inside = pair.log_q > -40.0
    log_ratio = (pair.log_q - pair.log_p)[inside]
    epsilons = np.array([0.1, 0.3, 0.55, 3.0])
    alpha = 1.1
    bets, growth = best_bets(
        alpha, epsilons, log_ratio, np.exp(pair.log_q[inside]), np.exp(pair.log_p[inside])
    )
    assert np.all((bets > 0.0) & (bets < largest_bets(alpha, epsilons)))
    assert bets[0] > 1.0  # near order 1 the best bets are
    assert growth[0] > growth[1] > 0.0
    assert np.all(growth[2:] <= 1e-12)
    fine = np.geomspace(0.1, 3.0, 40)
    between = interpolate_bets(alpha, fine, epsilons, bets)
    assert np.all((between > 0.0) & (between < largest_bets(alpha, fine)))
