"""Conversions between privacy definitions, and what DP-SGD's noise claims.

Everything here is an upper bound on privacy loss that follows from another one, or an exact identity. None
of it turns a lower bound of one kind into a lower bound of another: use `bounds` for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp, ndtr

from dvrenyi_plugin._validation import (
    check_choice,
    check_delta,
    check_epsilon,
    check_int,
    check_order,
    check_orders,
    check_real,
)
from dvrenyi_plugin.divergences import renyi_pure_dp

DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.0 + x / 10.0 for x in range(1, 100)),
    *(float(x) for x in range(11, 65)),
    *(float(2**k) for k in range(7, 15)),
)


def gaussian_dp_delta(mu: float, epsilon: float) -> float:
    """Returns the exact delta(epsilon) of mu-Gaussian DP.

    Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), in [0, 1].
    Source: Balle and Wang (2018), theorem 8; Dong, Roth and Su (2022), corollary 2.13.
    """
    mu, epsilon = check_real("mu", mu, at_least=0.0), check_epsilon(epsilon)
    if mu == 0.0:
        return 0.0
    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0)))
    return min(1.0, max(0.0, float(ndtr(-epsilon / mu + mu / 2.0)) - second))


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Returns the smallest epsilon >= 0 with delta(epsilon) <= delta for mu-Gaussian DP.

    Raises:
      ValueError: delta outside (0, 1] (no finite epsilon exists at delta = 0 unless mu = 0).
    """
    mu = check_real("mu", mu, at_least=0.0)
    if mu == 0.0:
        check_delta(delta)
        return 0.0
    delta = check_real("delta", delta, above=0.0, at_most=1.0)
    if gaussian_dp_delta(mu, 0.0) <= delta:
        return 0.0
    upper = mu * mu + 1.0
    while gaussian_dp_delta(mu, upper) > delta:
        upper *= 2.0
    return float(brentq(lambda e: gaussian_dp_delta(mu, e) - delta, 0.0, upper, xtol=1e-12))


def gaussian_dp_mu(epsilon: float, delta: float) -> float:
    """Returns the largest mu whose mu-Gaussian DP implies (epsilon, delta)-DP (inverse in mu)."""
    epsilon = check_epsilon(epsilon)
    delta = check_real("delta", delta, above=0.0, below=1.0)
    upper = 1.0
    while gaussian_dp_delta(upper, epsilon) < delta:
        upper *= 2.0
    return float(brentq(lambda m: gaussian_dp_delta(m, epsilon) - delta, 0.0, upper, xtol=1e-12))


def renyi_to_gaussian_dp_mu(alpha: float, divergence: float) -> float:
    """Returns sqrt(2 divergence / alpha): the mu whose Gaussian pair has this D_alpha."""
    return math.sqrt(2.0 * check_real("divergence", divergence, at_least=0.0) / check_order(alpha))


def pure_dp_epsilon_for_renyi(alpha: float, divergence: float) -> float:
    """Returns the smallest pure-DP epsilon that allows this D_alpha: the inverse of `renyi_pure_dp`.

    A certified D_alpha > divergence therefore refutes every pure-DP claim up to the returned epsilon.
    """
    alpha = check_order(alpha)
    divergence = check_real("divergence", divergence, at_least=0.0, at_most=1e100)
    if divergence == 0.0:
        return 0.0
    upper = 1.0
    while renyi_pure_dp(alpha, upper) < divergence:
        upper *= 2.0
    return float(brentq(lambda e: renyi_pure_dp(alpha, e) - divergence, 0.0, upper, xtol=1e-14))


def renyi_to_approximate_dp_epsilon(
    alphas: Sequence[float], epsilons: Sequence[float], delta: float
) -> float:
    """Returns the smallest epsilon of (epsilon, delta)-DP implied by an RDP curve.

    Args:
      alphas: orders, each > 1.
      epsilons: RDP epsilons at these orders, >= 0; inf marks an order without a bound.
      delta: in (0, 1).

    Computed by dp_accounting (Canonne, Kamath and Steinke 2020, proposition 12) and cut at 0: no privacy
    loss is negative.
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    orders = check_orders(alphas, "alphas")
    if isinstance(epsilons, (str, bytes)) or not np.iterable(epsilons):
        raise ValueError(f"epsilons must be a sequence of numbers, got {epsilons!r}")
    values = [
        math.inf
        if np.ndim(epsilon) == 0 and epsilon == math.inf
        else check_epsilon(epsilon, "epsilons")
        for epsilon in epsilons
    ]
    if len(orders) != len(values) or not orders:
        raise ValueError(
            f"alphas and epsilons must have one length >= 1, got {len(orders)} and {len(values)}"
        )
    delta = check_real("delta", delta, above=0.0, below=1.0)
    if max(values) == 0.0:
        return 0.0
    epsilon, _ = rdp_privacy_accountant.compute_epsilon(orders, values, delta)
    return max(0.0, float(epsilon))


def renyi_group_privacy(alpha: float, epsilon: float, doublings: int) -> tuple[float, float]:
    """Returns (alpha / 2^c, 3^c epsilon): what (alpha, epsilon)-RDP says about 2^c records.

    Args:
      alpha: order of the claim for one record, >= 2^(c + 1).
      epsilon: claim for one record.
      doublings: c, an integer >= 0.

    Source: Mironov (2017), proposition 2; the Rényi auditing paper's B.8.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    doublings = check_int("doublings", doublings, at_least=0)
    if doublings and math.log2(alpha) < doublings + 1:
        raise ValueError(
            f"alpha must be at least 2^(doublings + 1) = 2^{doublings + 1}, got {alpha:g}"
        )
    return alpha / 2.0**doublings, 3.0**doublings * epsilon


def dp_sgd_mu(num_steps: int, noise_multiplier: float) -> float:
    """Returns sqrt(num_steps) / noise_multiplier: full-batch DP-SGD is exactly this mu-GDP.

    Holds for adding or removing one record, gradients clipped to norm C and summed, Gaussian noise of
    standard deviation noise_multiplier C per step. No steps: 0.
    """
    num_steps = check_int("num_steps", num_steps, at_least=0)
    return math.sqrt(num_steps) / check_real("noise_multiplier", noise_multiplier, above=0.0)


def dp_sgd_noise_multiplier(num_steps: int, mu: float) -> float:
    """Returns the noise multiplier that makes full-batch DP-SGD exactly mu-GDP."""
    num_steps = check_int("num_steps", num_steps, at_least=1)
    return math.sqrt(num_steps) / check_real("mu", mu, above=0.0)


def renyi_subsampled_gaussian(
    alpha: float, sample_rate: float, noise_multiplier: float, direction: str = "both"
) -> float:
    """Returns D_alpha of one step of the Poisson-subsampled Gaussian mechanism, by quadrature.

    Args:
      alpha: order > 1, integer or not.
      sample_rate: q in [0, 1].
      noise_multiplier: standard deviation s over sensitivity, > 0.
      direction: "remove" for mixture (1-q) N(0, s^2) + q N(1, s^2) over base N(0, s^2), "add" for base
        over mixture, "both" for the larger ("remove"; Mironov, Talwar and Zhang 2019, theorem 5).

    The integrand is positive, so no alternating series is summed; the trapezoid rule converges
    exponentially on it. Everything stays in the log domain: orders of thousands are fine.

    Raises:
      ValueError: an argument out of range, or a noise multiplier below 0.02 with 0 < q < 1, where the grid
        grows past memory and no mechanism is private anyway.
    """
    alpha = check_order(alpha)
    q = check_real("sample_rate", sample_rate, at_least=0.0, at_most=1.0)
    s = check_real("noise_multiplier", noise_multiplier, above=0.0)
    direction = check_choice("direction", direction, ("both", "remove", "add"))
    if q == 0.0:
        return 0.0
    if q == 1.0:
        return alpha / (2.0 * s * s)
    s = check_real("noise_multiplier", noise_multiplier, at_least=0.02)
    # The integrand is a mixture of bumps of width s centred between 0 and alpha (remove) or between 1 - alpha
    # and 0 (add); 12 s beyond either end holds all but e^-72 of it. Its branch points lie pi s^2 off the real
    # axis, so the trapezoid rule's relative error is below e^-39 at this step.
    exponent = 1.0 - alpha if direction == "add" else alpha
    low, high = min(0.0, exponent) - 12.0 * s, max(0.0, exponent) + 12.0 * s
    x = np.linspace(low, high, math.ceil((high - low) / min(s / 4.0, s * s / 2.0)) + 1)
    log_base = -(x * x) / (2.0 * s * s) - 0.5 * math.log(2.0 * math.pi * s * s)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2.0 * x - 1.0) / (2.0 * s * s))
    log_integral = float(logsumexp(log_base + exponent * log_ratio)) + math.log(x[1] - x[0])
    return max(0.0, log_integral / (alpha - 1.0))


def dp_sgd_renyi(
    alpha: float, num_steps: int, noise_multiplier: float, sample_rate: float = 1.0
) -> float:
    """Returns the RDP epsilon of Poisson-sampled (or, at rate 1, full-batch) DP-SGD at one order."""
    num_steps = check_int("num_steps", num_steps, at_least=0)
    return num_steps * renyi_subsampled_gaussian(alpha, sample_rate, noise_multiplier)


def dp_sgd_epsilon(
    delta: float, num_steps: int, noise_multiplier: float, sample_rate: float = 1.0
) -> float:
    """Returns an epsilon of (epsilon, delta)-DP for DP-SGD: exact at rate 1, by RDP below."""
    num_steps = check_int("num_steps", num_steps, at_least=0)
    delta = check_real("delta", delta, above=0.0, below=1.0)
    sample_rate = check_real("sample_rate", sample_rate, at_least=0.0, at_most=1.0)
    if num_steps == 0 or sample_rate == 0.0:
        return 0.0
    if sample_rate == 1.0:
        return gaussian_dp_epsilon(dp_sgd_mu(num_steps, noise_multiplier), delta)
    # Total variation over all steps, by coupling each: the record is drawn with probability sample_rate, and
    # two Gaussians one sensitivity apart differ by Phi(1/(2s)) - Phi(-1/(2s)). It is delta at epsilon = 0 for
    # one step and bounds it for several; RDP orders above 1 cannot see this.
    noise_multiplier = check_real("noise_multiplier", noise_multiplier, above=0.0)
    step_variation = sample_rate * gaussian_dp_delta(1.0 / noise_multiplier, 0.0)
    if delta >= -math.expm1(num_steps * math.log1p(-step_variation)):
        return 0.0
    orders = [order for order in DEFAULT_ORDERS if order <= 512.0]
    epsilons = [dp_sgd_renyi(order, num_steps, noise_multiplier, sample_rate) for order in orders]
    return renyi_to_approximate_dp_epsilon(orders, epsilons, delta)
