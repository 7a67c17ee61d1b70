"""Closed-form and tabulated Rényi divergences: the known answers everything else is tested against.

D_alpha(P || Q) = log E_Q[(dP/dQ)^alpha] / (alpha - 1), alpha > 1, natural logarithms, in nats.
The first law named in a signature is always the numerator P. Values may be `inf`, never NaN.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._validation import check_epsilon, check_numbers, check_order, check_real


def renyi_gaussian(
    alpha: float, mean1: float, mean2: float, std1: float = 1.0, std2: float = 1.0
) -> float:
    """Returns D_alpha(N(mean1, std1^2) || N(mean2, std2^2)).

    Infinite when alpha std2^2 + (1 - alpha) std1^2 <= 0. With equal variances it is
    alpha (mean1 - mean2)^2 / (2 std^2). Source: Gil, Alajaji and Linder (2013), table 2.
    """
    alpha = check_order(alpha)
    mean1, mean2 = check_real("mean1", mean1), check_real("mean2", mean2)
    std1, std2 = check_real("std1", std1, above=0.0), check_real("std2", std2, above=0.0)
    # log1p of a difference, because near order 1 the quotient below is 0 / 0.
    ratio, shift = (
        std1 / std2,
        (mean1 - mean2) / std2,
    )  # products of them overflow to inf, powers raise
    excess = (alpha - 1.0) * (1.0 - ratio) * (1.0 + ratio)
    if excess <= -1.0:
        return math.inf
    shape = math.log(std2) - math.log(std1) - math.log1p(excess) / (2.0 * (alpha - 1.0))
    return max(0.0, shape + alpha * shift * shift / (2.0 * (1.0 + excess)))


def renyi_gaussian_dp(alpha: float, mu: float) -> float:
    """Returns alpha mu^2 / 2, the tight Rényi curve of mu-Gaussian DP."""
    alpha, mu = check_order(alpha), check_real("mu", mu, at_least=0.0)
    return alpha * mu * mu / 2.0


def renyi_laplace(alpha: float, location1: float, location2: float, scale: float = 1.0) -> float:
    """Returns D_alpha between two Laplace laws of one scale (Mironov 2017, proposition 6)."""
    alpha = check_order(alpha)
    scale = check_real("scale", scale, above=0.0)
    shift = abs(check_real("location1", location1) - check_real("location2", location2)) / scale
    near, far = alpha / (2.0 * alpha - 1.0), (alpha - 1.0) / (2.0 * alpha - 1.0)  # they sum to 1
    if (alpha - 1.0) * shift < 1.0:
        excess = near * math.expm1((alpha - 1.0) * shift) + far * math.expm1(-alpha * shift)
        return max(0.0, math.log1p(excess) / (alpha - 1.0))
    terms = [math.log(near) + (alpha - 1.0) * shift, math.log(far) - alpha * shift]
    return max(0.0, float(logsumexp(terms)) / (alpha - 1.0))


def renyi_exponential(alpha: float, scale1: float, scale2: float) -> float:
    """Returns D_alpha between exponential laws with means `scale1` (numerator) and `scale2`.

    Infinite when alpha / scale1 + (1 - alpha) / scale2 <= 0. Source: Gil et al. (2013), table 2.
    """
    alpha = check_order(alpha)
    rate1 = 1.0 / check_real("scale1", scale1, above=0.0)
    rate2 = 1.0 / check_real("scale2", scale2, above=0.0)
    mixed_rate = alpha * rate1 + (1.0 - alpha) * rate2
    if mixed_rate <= 0.0:
        return math.inf
    shape = math.log1p((alpha - 1.0) * (1.0 - rate2 / rate1)) / (alpha - 1.0)
    return max(0.0, math.log(rate1 / rate2) - shape)


def renyi_bernoulli(alpha: float, p: float, q: float) -> float:
    """Returns D_alpha(Bernoulli(p) || Bernoulli(q)); infinite where p has mass that q lacks."""
    p = check_real("p", p, at_least=0.0, at_most=1.0)
    q = check_real("q", q, at_least=0.0, at_most=1.0)
    return renyi_discrete(alpha, [p, 1.0 - p], [q, 1.0 - q])


def renyi_discrete(alpha: float, p: ArrayLike, q: ArrayLike) -> float:
    """Returns D_alpha between two probability vectors of shape (k,) on the same support points."""
    p_vector, q_vector = _probability_vector("p", p), _probability_vector("q", q)
    if p_vector.shape != q_vector.shape:
        raise ValueError(
            f"p and q must have the same shape, got {p_vector.shape} and {q_vector.shape}"
        )
    with np.errstate(divide="ignore"):
        return renyi_from_log_masses(alpha, np.log(p_vector), np.log(q_vector))


def renyi_from_log_masses(alpha: float, log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Returns D_alpha from log masses of shape (k,); -inf marks a point without mass.

    Log densities on a grid of equal cells need `+ log(cell volume)` first. Stays in the log domain, so
    masses far below the smallest float are fine. The masses must sum to one: the caller's task.
    """
    alpha = check_order(alpha)
    p, q = _log_mass_pair(log_p, log_q)
    carried = p > -np.inf
    if np.any(q[carried] == -np.inf):
        return math.inf
    p, q = p[carried], q[carried]
    powers = (alpha - 1.0) * (p - q)
    if powers.size and np.abs(powers).max() < 1.0:
        # Near order 1 the log below is that of 1 + tiny, divided by tiny.
        return max(0.0, math.log1p(float(np.exp(p) @ np.expm1(powers))) / (alpha - 1.0))
    return max(0.0, float(logsumexp(p + powers)) / (alpha - 1.0))


def kullback_leibler_from_log_masses(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Returns KL(P || Q) = sum p log(p / q) from log masses of shape (k,), -inf for no mass."""
    p, q = _log_mass_pair(log_p, log_q)
    carried = p > -np.inf
    if np.any(q[carried] == -np.inf):
        return math.inf
    p, q = p[carried], q[carried]
    return max(0.0, float(np.sum(np.exp(p) * (p - q))))


def hockey_stick_from_log_masses(epsilon: float, log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Returns sum max(0, p - e^epsilon q), the smallest delta of (epsilon, delta)-indistinguishability
    of P from Q (one direction), from log masses of shape (k,)."""
    epsilon = check_epsilon(epsilon)
    p, q = _log_mass_pair(log_p, log_q)
    above = p > q + epsilon
    return float(np.sum(np.exp(p[above]) - np.exp(q[above] + epsilon)))


def renyi_pure_dp(alpha: float, epsilon: float) -> float:
    """Returns the largest D_alpha that pure epsilon-DP allows, attained by randomised response.

    log[(sinh(alpha epsilon) - sinh((alpha - 1) epsilon)) / sinh(epsilon)] / (alpha - 1), evaluated as
    log[cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)] / (alpha - 1) without overflow or cancellation. Never above min(epsilon, alpha epsilon^2 / 2). Source: Bun and Steinke (2016), proposition 3.3 and its
    proof; the half-angle form is the sum-to-product identity.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    step, half = (alpha - 1.0) * epsilon, epsilon / 2.0
    if step < 1.0:
        # cosh(half + step) / cosh(half) - 1: small orders or epsilons leave nothing but rounding in the logs.
        excess = 2.0 * math.sinh(step / 2.0) ** 2 + math.sinh(step) * math.tanh(half)
        return math.log1p(excess) / (alpha - 1.0)
    return (_log_cosh(half + step) - _log_cosh(half)) / (alpha - 1.0)


def renyi_bounded_range(alpha: float, width: float) -> float:
    """Returns min(width, alpha width^2 / 8): an upper bound on D_alpha when log dP/dQ lies in an interval
    of length `width` (Dong, Durfee and Rogers 2020; Cesar and Rogers 2021)."""
    alpha, width = check_order(alpha), check_real("width", width, at_least=0.0)
    return min(width, alpha * width * width / 8.0)


def _log_cosh(x: float) -> float:
    return x + math.log1p(math.exp(-2.0 * x)) - math.log(2.0)


def _log_mass_pair(
    log_p: ArrayLike, log_q: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p, q = check_numbers("log_p", log_p), check_numbers("log_q", log_q)
    if p.shape != q.shape or p.ndim != 1 or p.size == 0:
        raise ValueError(
            f"log_p and log_q must have one shape (k,), k >= 1, got {p.shape} and {q.shape}"
        )
    for name, values in (("log_p", p), ("log_q", q)):
        bad = np.isnan(values) | (values == np.inf)
        if bad.any():
            raise ValueError(
                f"{name} must hold finite numbers or -inf, got {values[bad][0]} at index"
                f" {int(np.flatnonzero(bad)[0])}"
            )
        if np.all(values == -np.inf):
            raise ValueError(f"{name} must hold some mass, got -inf everywhere")
    return p, q


def _probability_vector(name: str, values: ArrayLike) -> NDArray[np.float64]:
    vector = check_numbers(name, values)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"{name} must have shape (k,), k >= 1, got shape {vector.shape}")
    if not np.all(np.isfinite(vector)) or np.any(vector < 0.0):
        raise ValueError(f"{name} must hold finite probabilities >= 0, got {vector}")
    if abs(vector.sum() - 1.0) > 1e-9:
        raise ValueError(f"{name} must sum to 1, got a sum of {vector.sum()!r}")
    return vector
