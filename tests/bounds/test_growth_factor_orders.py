"""Every order that is accepted: the factor's mean under a null is at most 1, in exact arithmetic.

The null pairs have two points and lie exactly at the claim. The log ratios that the tables are made
for are those at which the factor's r is the pair's own density ratio, where the mean is exactly 1
but for rounding, and random ones.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dvrenyi_plugin._internal.validation import check_order
from dvrenyi_plugin.bounds.eprocess import _block_means
from dvrenyi_plugin.bounds.growth_factor import largest_bets, log_factors

LARGEST_ORDER = 1e15
ORDERS_LESS_1 = np.geomspace(2.0**-52, LARGEST_ORDER - 1.0, 60)
SLACK = 1e-12


def null_at_the_claim(
    alpha: float, epsilon: float, p: float, upper: bool
) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Returns (q, p), masses of the first of two points, with D_alpha(Q || P) = epsilon, on either
    side of q = p."""
    order, mass, claim = mpmath.mpf(alpha), mpmath.mpf(p), mpmath.mpf(epsilon)

    def divergence(q: mpmath.mpf) -> mpmath.mpf:
        terms = [
            order * mpmath.log(a) + (1 - order) * mpmath.log(b)
            for a, b in ((q, mass), (1 - q, 1 - mass))
            if a > 0
        ]
        top = max(terms)
        return (top + mpmath.log(sum(mpmath.exp(t - top) for t in terms))) / (order - 1)

    # A pair whose other end stays in the null has no solution on that side: the point mass is then
    # the null.
    near, far = mass, mpmath.mpf(1 if upper else 0)
    if divergence(far) <= claim:
        return far, mass
    for _ in range(200):
        middle = (near + far) / 2
        near, far = (middle, far) if divergence(middle) <= claim else (near, middle)
    return near, mass


def log_ratio_of(alpha: float, epsilon: float, bet: float, log_r: mpmath.mpf) -> float:
    """Returns the log ratio l whose factor has this r, 0.0 where a half would not be positive."""
    c, order = mpmath.mpf(bet), mpmath.mpf(alpha)
    scaled = log_r - mpmath.mpf(epsilon)
    first = 1 + c * mpmath.expm1((order - 1) * scaled)
    second = 1 + (order - 1) / order * c * -mpmath.expm1(
        order * log_r - (order - 1) * mpmath.mpf(epsilon)
    )
    if first <= 0 or second <= 0:
        return 0.0
    return float(log_r + mpmath.log(first) - mpmath.log(second))


def mean_of_factor(
    alpha: float, epsilon: float, bet: float, q: mpmath.mpf, p: mpmath.mpf, values: np.ndarray
) -> mpmath.mpf:
    """Returns E_Q[first half] E_P[second half] of the tables at the two log ratios, exactly."""
    first, second = log_factors(alpha, np.array([epsilon]), np.array([bet]), values)
    of_q = q * mpmath.exp(mpmath.mpf(float(first[0, 0]))) + (1 - q) * mpmath.exp(
        mpmath.mpf(float(first[0, 1]))
    )
    of_p = p * mpmath.exp(mpmath.mpf(float(second[0, 0]))) + (1 - p) * mpmath.exp(
        mpmath.mpf(float(second[0, 1]))
    )
    return of_q * of_p


@pytest.mark.parametrize("regime", ["small bets", "large bets"])
@pytest.mark.parametrize("part", range(4))
def test_e8_mean_of_a_factor_is_at_most_1_at_every_accepted_order(regime: str, part: int) -> None:
    rng = np.random.default_rng([8, part, regime == "small bets"])
    worst = mpmath.mpf(0)
    with mpmath.workdps(60), np.errstate(divide="ignore"):
        for less_1 in ORDERS_LESS_1[part::4]:
            alpha = 1.0 + float(less_1)
            check_order(alpha)
            for _ in range(6):
                epsilon = float(10.0 ** rng.uniform(-6.0, 1.7))
                largest = float(largest_bets(alpha, np.array([epsilon]))[0])
                if regime == "small bets":
                    bet = float(10.0 ** rng.uniform(-6.0, 0.0))
                elif largest > 1.0:
                    bet = 1.0 + (largest - 1.0) * float(rng.uniform(0.0, 1.0))
                else:
                    continue
                mass = float(10.0 ** rng.uniform(-9.0, math.log10(0.999)))
                q, p = null_at_the_claim(alpha, epsilon, mass, bool(rng.integers(2)))
                own = [
                    log_ratio_of(alpha, epsilon, bet, mpmath.log(a) - mpmath.log(b))
                    if a > 0
                    else -50.0
                    for a, b in ((q, p), (1 - q, 1 - p))
                ]
                for values in (own, rng.normal(0.0, 5.0, 2)):
                    table = np.array(values)
                    worst = max(worst, mean_of_factor(alpha, epsilon, bet, q, p, table))
    assert 0.999 < worst <= 1.0 + SLACK


def test_e8_blocks_of_means_keep_the_mean_at_most_1() -> None:
    # A block's factor is the product of two means of halves, so its mean is that of one pair,
    # whatever its sizes.
    table = np.log(np.array([[0.5, 2.0, 1.5, 0.25]]))
    means = np.exp(_block_means(table, np.arange(4), np.array([0, 3])))
    np.testing.assert_allclose(means, [[4.0 / 3.0, 0.25]], rtol=1e-15)


def test_e8_orders_beyond_those_checked_are_refused() -> None:
    assert check_order(LARGEST_ORDER) == LARGEST_ORDER
    with pytest.raises(ValueError, match="alpha must be a finite number <= 1e\\+15"):
        check_order(np.nextafter(LARGEST_ORDER, np.inf))
