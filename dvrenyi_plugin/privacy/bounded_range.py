"""What a bounded range of the log likelihood ratio implies, exactly.

Let log dP/dQ lie in an interval of width w (a w-bounded-range pair). The mean of dP/dQ under Q is
1, so for a convex function of dP/dQ the worst pair has two values of the ratio, e^t and e^{t-w}
with t in [0, w]; the best t below is the zero of a derivative. The values are attained, hence
cannot be improved without further knowledge of the pair. Source of the class and of the two-point
argument: Dong, Durfee and Rogers (2020), "Optimal Differential Privacy Composition for Exponential
Mechanisms". Both directions have the same value: the class is symmetric.
"""

from __future__ import annotations

import math

import numpy as np

from dvrenyi_plugin._internal.ranges import check_size
from dvrenyi_plugin._internal.validation import check_epsilon, check_order, check_real
from dvrenyi_plugin.privacy.divergences import renyi_bounded_range

# Gauss-Legendre on [0, 1]; eight points are exact to rounding on intervals a few times shorter than
# their ends.
_NODES, _WEIGHTS = (values / 2.0 for values in np.polynomial.legendre.leggauss(8))
_NODES = _NODES + 0.5


def renyi_of_range(alpha: float, width: float) -> float:
    """Returns the largest D_alpha of a pair whose log ratio lies in an interval of `width`,
    attained.

    `divergences.renyi_bounded_range` is the simpler upper bound min(w, a w^2 / 8).

    With r = e^{-w}, B = (1 - r^a) / (1 - r) and x = (a-1)/a (1 - r^a) / (r - r^a), the maximum over
    e^t of E_Q[(dP/dQ)^a] is x^{a-1} B / a, at e^t = x. With h = w / 2, b = a - 1 and S(y) =
    log(sinh(y) / y) its logarithm over b is
        S(a h) - S(b h) + (S(a h) - S(h)) / b = h (mean of S' over [b h, a h] + mean of S' over [h,
        a h]),
    a sum of positive terms that keeps its digits at every order and width.

    Args:
      alpha: order > 1.
      width: w in [0, 1e100].
    """
    alpha, width = check_order(alpha), check_size("width", width)
    half = width / 2.0
    lower_ends = ((alpha - 1.0) * half, half)
    value = half * sum(_mean_slope(low, alpha * half) for low in lower_ends)
    return min(renyi_bounded_range(alpha, width), value)


def _mean_slope(low: float, high: float) -> float:
    """Mean over [low, high] of the derivative of S(y) = log(sinh(y) / y)."""
    if high - low < high / 4.0 or high < 1.0:
        return float(
            sum(w * _slope(low + (high - low) * x) for x, w in zip(_NODES, _WEIGHTS, strict=True))
        )
    return (_log_sinh_ratio(high) - _log_sinh_ratio(low)) / (high - low)


def _slope(y: float) -> float:
    """coth(y) - 1 / y, by a series of positive terms where those two cancel."""
    if y >= 1.0:
        return 1.0 / math.tanh(y) - 1.0 / y
    if y == 0.0:
        return 0.0
    # (y cosh y - sinh y) / (y sinh y)
    numerator = sum(2 * k * y ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 10))
    return numerator / math.sinh(y)


def _log_sinh_ratio(y: float) -> float:
    """log(sinh(y) / y), by a series of positive terms for small y."""
    if y >= 1.0:
        return y + math.log(-math.expm1(-2.0 * y)) - math.log(2.0 * y)
    return math.log1p(sum(y ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 10)))


def kullback_leibler_of_range(width: float) -> float:
    """Returns w^2 / 8 (or w if smaller), an upper bound on KL in both directions.

    Hoeffding's lemma: K(c) = log E_Q[(dP/dQ)^c] has K(0) = K(1) = 0 and K'' <= w^2 / 4, and
    KL(P||Q) = K'(1).
    """
    width = check_real("width", width, at_least=0.0)
    return min(width, width * width / 8.0)


def total_variation_of_range(width: float) -> float:
    """Returns tanh(w / 4), the largest total variation distance: `delta_of_range` at epsilon 0."""
    return math.tanh(check_real("width", width, at_least=0.0) / 4.0)


def delta_of_range(epsilon: float, width: float) -> float:
    """Returns the smallest delta such that every w-bounded-range pair is (epsilon,
    delta)-indistinguishable.

    (1 - e^{-(w - epsilon)/2})^2 / (1 - e^{-w}), at t = (epsilon + w) / 2; 0 for epsilon >= w.
    """
    epsilon, width = check_epsilon(epsilon), check_real("width", width, at_least=0.0)
    if epsilon >= width:
        return 0.0
    return math.expm1(-(width - epsilon) / 2.0) ** 2 / -math.expm1(-width)


def delta_of_pure_dp(own_epsilon: float, epsilon: float) -> float:
    """Returns the smallest delta of (epsilon, delta)-DP implied by pure own_epsilon-DP.

    (e^{own} - e^{epsilon}) / (1 + e^{own}), attained by randomised response; 0 for epsilon >=
    own_epsilon.
    """
    own_epsilon = check_epsilon(own_epsilon, "own_epsilon")
    epsilon = check_epsilon(epsilon)
    if epsilon >= own_epsilon:
        return 0.0
    return -math.expm1(epsilon - own_epsilon) / (1.0 + math.exp(-own_epsilon))


__all__ = [
    "delta_of_pure_dp",
    "delta_of_range",
    "kullback_leibler_of_range",
    "renyi_of_range",
    "total_variation_of_range",
]
