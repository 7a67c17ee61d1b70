"""Closed-form and tabulated Rényi divergences: the known answers everything else is tested against.

D_alpha(P || Q) = log E_Q[(dP/dQ)^alpha] / (alpha - 1), alpha > 1, natural logarithms, in nats.
The first law named in a signature is always the numerator P. Values may be `inf`, never NaN.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._internal.validation import (
    check_epsilon,
    check_numbers,
    check_order,
    check_real,
)
from dvrenyi_plugin.privacy.log_moments import log_moment_excess, log_phi, renyi_from_excess


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
    log_quotient = 2.0 * _log_quotient(std1, std2)
    spare = 1.0 - (alpha - 1.0) * _expm1(log_quotient)
    if spare <= 0.0:
        return math.inf
    shift = mean1 / std2 - mean2 / std2  # a difference of the means may overflow
    return 0.5 * _scale_divergence(alpha, log_quotient) + alpha * shift * shift / (2.0 * spare)


def renyi_gaussian_dp(alpha: float, mu: float) -> float:
    """Returns alpha mu^2 / 2, the tight Rényi curve of mu-Gaussian DP."""
    alpha, mu = check_order(alpha), check_real("mu", mu, at_least=0.0)
    return alpha * mu * mu / 2.0


def renyi_laplace(alpha: float, location1: float, location2: float, scale: float = 1.0) -> float:
    """Returns D_alpha between two Laplace laws of one scale (Mironov 2017, proposition 6)."""
    alpha = check_order(alpha)
    scale = check_real("scale", scale, above=0.0)
    shift = abs(check_real("location1", location1) - check_real("location2", location2)) / scale
    # E[f^alpha] - 1 = near phi((alpha - 1) shift) + far phi(-alpha shift) with these weights,
    # phi(y) = e^y - 1 - y.
    near, far = alpha / (2.0 * alpha - 1.0), (alpha - 1.0) / (2.0 * alpha - 1.0)
    arguments = np.array([(alpha - 1.0) * shift, -alpha * shift])
    if math.isinf(arguments[0]):
        return shift  # beyond the largest float the rest rounds away
    return float(renyi_from_excess(alpha, np.log([near, far]) + log_phi(arguments)))


def renyi_exponential(alpha: float, scale1: float, scale2: float) -> float:
    """Returns D_alpha between exponential laws with means `scale1` (numerator) and `scale2`.

    Infinite when alpha / scale1 + (1 - alpha) / scale2 <= 0. Source: Gil et al. (2013), table 2.
    """
    alpha = check_order(alpha)
    scale1 = check_real("scale1", scale1, above=0.0)
    scale2 = check_real("scale2", scale2, above=0.0)
    return _scale_divergence(alpha, _log_quotient(scale1, scale2))


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

    Log densities on a grid of equal cells need `+ log(cell volume)` first. Stays in the log domain,
    so masses far below the smallest float are fine. The masses must sum to one: the caller's task.
    """
    alpha = check_order(alpha)
    p, q = _log_mass_pair(log_p, log_q)
    carried = p > -np.inf
    if np.any(q[carried] == -np.inf):
        return math.inf
    unmatched, p, q = q[~carried], p[carried], q[carried]
    with np.errstate(over="ignore"):
        excess = log_moment_excess(alpha, p, p - q)
    excess = np.append(excess, math.log(alpha - 1.0) + _log_total(unmatched))
    return float(renyi_from_excess(alpha, excess))


def kullback_leibler_from_log_masses(log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Returns KL(P || Q) = sum p log(p / q) from log masses of shape (k,), -inf for no mass."""
    p, q = _log_mass_pair(log_p, log_q)
    carried = p > -np.inf
    if np.any(q[carried] == -np.inf):
        return math.inf
    # p log(p / q) - p + q at each point: none is negative, so that nothing cancels.
    parts = np.append(p[carried] + log_phi(q[carried] - p[carried]), _log_total(q[~carried]))
    return float(np.exp(_log_total(parts)))


def hockey_stick_from_log_masses(epsilon: float, log_p: ArrayLike, log_q: ArrayLike) -> float:
    """Returns sum max(0, p - e^epsilon q), the smallest delta of (epsilon,
    delta)-indistinguishability of P from Q (one direction), from log masses of shape (k,)."""
    epsilon = check_epsilon(epsilon)
    p, q = _log_mass_pair(log_p, log_q)
    above = p > q + epsilon
    return float(np.sum(np.exp(p[above]) * -np.expm1(q[above] + epsilon - p[above])))


def renyi_pure_dp(alpha: float, epsilon: float) -> float:
    """Returns the largest D_alpha that pure epsilon-DP allows, attained by randomised response.

    log[(sinh(alpha epsilon) - sinh((alpha - 1) epsilon)) / sinh(epsilon)] / (alpha - 1), evaluated
    as log[cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)] / (alpha - 1) without overflow or
    cancellation. Never above min(epsilon, alpha epsilon^2 / 2). Source: Bun and Steinke (2016),
    proposition 3.3 and its proof; the half-angle form is the sum-to-product identity.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    step, half = (alpha - 1.0) * epsilon, epsilon / 2.0
    if step < 1.0:
        # cosh(half + step) / cosh(half) - 1: small orders or epsilons leave nothing but rounding in
        # the logs.
        excess = 2.0 * math.sinh(step / 2.0) ** 2 + math.sinh(step) * math.tanh(half)
        return math.log1p(excess) / (alpha - 1.0)
    # log cosh y = y + log1p(e^-2y) - log 2, and the difference of the first parts is step.
    rest = math.log1p(math.exp(-2.0 * (half + step))) - math.log1p(math.exp(-2.0 * half))
    return epsilon + rest / (alpha - 1.0)


def renyi_bounded_range(alpha: float, width: float) -> float:
    """Returns min(width, alpha width^2 / 8): an upper bound on D_alpha when log dP/dQ lies in an
    interval of length `width` (Dong, Durfee and Rogers 2020; Cesar and Rogers 2021)."""
    alpha, width = check_order(alpha), check_real("width", width, at_least=0.0)
    return min(width, alpha * width * width / 8.0)


def _scale_divergence(alpha: float, log_quotient: float) -> float:
    """Returns D_alpha of two exponential laws, given the log of the quotient of their means: with y
    = e^log_quotient,

    -log y - log(1 + b (1 - y)) / b = (y - 1 - log y) + (b (1 - y) - log(1 + b (1 - y))) / b,    b =
    alpha - 1,

    two terms that are never negative. Infinite where the second logarithm's argument is not
    positive.
    """
    less = -_expm1(log_quotient)
    if (alpha - 1.0) * less <= -1.0:
        return math.inf
    first = math.exp(float(log_phi(log_quotient)))
    return first + _log1p_deficit((alpha - 1.0) * less) / (alpha - 1.0)


def _log_quotient(x: float, y: float) -> float:
    """Returns log(x / y) with its digits for x near y, and without overflow."""
    if y / 2.0 < x < 2.0 * y:
        return math.log1p((x - y) / y)
    return math.log(x) - math.log(y)


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 709.0 else math.inf


def _log1p_deficit(x: float) -> float:
    """Returns x - log(1 + x) >= 0 with its digits for small x > -1."""
    if abs(x) >= 0.1:
        return x - math.log1p(x)
    return math.fsum((-x) ** k / k for k in range(2, 18))


def _log_total(log_masses: NDArray[np.float64]) -> float:
    with np.errstate(divide="ignore"):
        return float(logsumexp(log_masses)) if log_masses.size else -math.inf


def _log_mass_pair(
    log_p: ArrayLike, log_q: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p, q = check_numbers("log_p", log_p), check_numbers("log_q", log_q)
    if p.shape != q.shape or p.ndim != 1 or p.size == 0:
        raise ValueError(
            f"log_p and log_q must have one shape (k,), k >= 1, got {p.shape} and {q.shape}"
        )
    for name, values in (("log_p", p), ("log_q", q)):
        # No probability is above 1; the rest is for rounding.
        bad = np.isnan(values) | (values > 1e-6)
        if bad.any():
            raise ValueError(
                f"{name} must hold log masses, at most 0 each or -inf, got {values[bad][0]} at"
                f" index {int(np.flatnonzero(bad)[0])}"
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
