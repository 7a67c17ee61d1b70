"""Conversions between privacy definitions, and what DP-SGD's noise claims.

Everything here is an upper bound on privacy loss that follows from another one, or an exact
identity. None of it turns a lower bound of one kind into a lower bound of another: use `bounds` for
that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

from dvrenyi_plugin._internal.validation import (
    check_choice,
    check_delta,
    check_epsilon,
    check_int,
    check_many,
    check_order,
    check_orders,
    check_real,
)
from dvrenyi_plugin.privacy.divergences import renyi_pure_dp
from dvrenyi_plugin.privacy.log_moments import log_moment_excess, renyi_from_excess

# Gauss-Legendre on [0, 1], exact to rounding on the short intervals it is used on.
_NODES, _WEIGHTS = (values / 2.0 for values in np.polynomial.legendre.leggauss(12))
_NODES = _NODES + 0.5

# Below this nothing is private, and grids grow past memory.
_LEAST_POISSON_NOISE = 0.02
_MAX_POINTS = 4_000_000

ACCOUNTING_ORDERS: tuple[float, ...] = (
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
    return _gaussian_delta_at(epsilon / mu - mu / 2.0, mu)


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Returns the smallest epsilon >= 0 with delta(epsilon) <= delta for mu-Gaussian DP; inf beyond
    the largest float.

    Raises:
      ValueError: delta outside (0, 1] (no finite epsilon exists at delta = 0 unless mu = 0).
    """
    mu = check_real("mu", mu, at_least=0.0)
    if mu == 0.0:
        check_delta(delta)
        return 0.0
    delta = check_real("delta", delta, above=0.0, at_most=1.0)
    if _gaussian_delta_at(-mu / 2.0, mu) <= delta:
        return 0.0
    # Solved for epsilon / mu - mu / 2, a quantile of a Gaussian, which stays small at every mu.
    quantile = brentq(
        lambda a: _gaussian_delta_at(a, mu) - delta, max(-mu / 2.0, -40.0), 40.0, xtol=1e-14
    )
    return max(0.0, mu * (float(quantile) + mu / 2.0))


def gaussian_dp_mu(epsilon: float, delta: float) -> float:
    """Returns the largest mu whose mu-Gaussian DP implies (epsilon, delta)-DP (inverse in mu)."""
    epsilon = check_epsilon(epsilon)
    delta = check_real("delta", delta, above=0.0, below=1.0)
    return _inverse(lambda mu: gaussian_dp_delta(mu, epsilon), delta)


def _gaussian_delta_at(a: float, mu: float) -> float:
    """Returns Phi(-a) - phi(a) R(a + mu), R = Phi(-x) / phi(x): delta at epsilon = mu (a + mu / 2),
    since e^epsilon phi(a + mu) = phi(a). No exponential of epsilon is taken."""
    density = math.exp(-a * a / 2.0) / math.sqrt(2.0 * math.pi)
    if a < -30.0:
        return min(1.0, max(0.0, float(ndtr(-a)) - density * _mills_ratio(a + mu)))
    if mu < 0.5:  # R(a) - R(a + mu) is the integral of -R'(x) = 1 - x R(x), which does not cancel
        return density * mu * float(_WEIGHTS @ [_mills_slope(a + mu * x) for x in _NODES])
    return min(1.0, max(0.0, density * (_mills_ratio(a) - _mills_ratio(a + mu))))


def _mills_ratio(x: float) -> float:
    return math.sqrt(math.pi / 2.0) * float(erfcx(x / math.sqrt(2.0)))


def _mills_slope(x: float) -> float:
    """Returns 1 - x R(x)."""
    if x < 30.0:
        return 1.0 - x * _mills_ratio(x)
    square = min(x, 1e100) ** 2
    return (1.0 - (3.0 - (15.0 - 105.0 / square) / square) / square) / square


def _inverse(increasing: Callable[[float], float], target: float) -> float:
    """Returns the x > 0 with increasing(x) = target, whatever its size."""
    low = high = 1.0
    while increasing(high) < target:
        low, high = high, 2.0 * high
    while increasing(low) >= target:
        low, high = low / 2.0, low

    def excess(x: float) -> float:
        return min(increasing(x) / target - 1.0, 1e300)

    return float(brentq(excess, low, high, xtol=5e-324, rtol=1e-14, maxiter=1000))


def renyi_to_gaussian_dp_mu(alpha: float, divergence: float) -> float:
    """Returns sqrt(2 divergence / alpha): the mu whose Gaussian pair has this D_alpha."""
    return math.sqrt(2.0 * check_real("divergence", divergence, at_least=0.0) / check_order(alpha))


def pure_dp_epsilon_for_renyi(alpha: float, divergence: float) -> float:
    """Returns the smallest pure-DP epsilon that allows this D_alpha: the inverse of
    `renyi_pure_dp`.

    A certified D_alpha > divergence therefore refutes every pure-DP claim up to the returned
    epsilon.
    """
    alpha = check_order(alpha)
    divergence = check_real("divergence", divergence, at_least=0.0, at_most=1e100)
    if divergence == 0.0:
        return 0.0
    return _inverse(lambda epsilon: renyi_pure_dp(alpha, epsilon), divergence)


def renyi_to_approximate_dp_epsilon(
    alphas: Sequence[float], epsilons: Sequence[float], delta: float
) -> float:
    """Returns the smallest epsilon of (epsilon, delta)-DP implied by an RDP curve.

    Args:
      alphas: orders, each > 1.
      epsilons: RDP epsilons at these orders, >= 0; inf marks an order without a bound.
      delta: in (0, 1).

    Computed by dp_accounting (Canonne, Kamath and Steinke 2020, proposition 12) and cut at 0: no
    privacy loss is negative.
    """
    from dp_accounting.rdp import rdp_privacy_accountant

    orders = check_orders(alphas, "alphas")
    values = [
        math.inf
        if np.ndim(epsilon) == 0 and epsilon == math.inf
        else check_epsilon(epsilon, "epsilons")
        for epsilon in check_many("epsilons", epsilons, "numbers")
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

    Holds for adding or removing one record, gradients clipped to norm C and summed, Gaussian noise
    of standard deviation noise_multiplier C per step. No steps: 0.
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
    """Returns D_alpha of one step of the Poisson-subsampled Gaussian mechanism, by quadrature; inf
    beyond the largest float.

    Args:
      alpha: order > 1, integer or not.
      sample_rate: q in [0, 1].
      noise_multiplier: standard deviation s over sensitivity, > 0.
      direction: "remove" for mixture (1-q) N(0, s^2) + q N(1, s^2) over base N(0, s^2), "add" for
        base over mixture, "both" for the larger ("remove"; Mironov, Talwar and Zhang 2019, theorem
        5).

    What is integrated is the moment minus 1, written as a positive function (`_log_moments`): no
    alternating series is summed, and tiny sample rates and orders near 1 keep their digits. The
    trapezoid rule converges exponentially on it.

    Raises:
      ValueError: an argument out of range; or, with 0 < q < 1, a noise multiplier below 0.02 or an
        order so large that the grid grows past memory.
    """
    alpha = check_order(alpha)
    q = check_real("sample_rate", sample_rate, at_least=0.0, at_most=1.0)
    s = check_real("noise_multiplier", noise_multiplier, above=0.0)
    direction = check_choice("direction", direction, ("both", "remove", "add"))
    if q == 0.0:
        return 0.0
    if q == 1.0:
        return alpha / 2.0 / s / s
    s = check_real("noise_multiplier", noise_multiplier, at_least=_LEAST_POISSON_NOISE)
    # In units of s: the integrand is a mixture of bumps of width 1 centred between 0 and max(alpha,
    # 2) / s (remove) or (1 - alpha) / s and 2 / s (add); 12 beyond either end hold all but e^-72 of
    # it. Its branch points lie pi s off the real axis, so the trapezoid rule's relative error is
    # below e^-39 at this step.
    step = min(0.25, s / 2.0)
    check_real("alpha", alpha, at_most=_MAX_POINTS * step * s)
    low, high = (1.0 - alpha, 2.0) if direction == "add" else (0.0, max(alpha, 2.0))
    z = np.arange(low / s - 12.0, high / s + 12.0 + step, step)
    log_base = -z * z / 2.0 - 0.5 * math.log(2.0 * math.pi) + math.log(step)
    log_ratio = _log_mixture_ratio(q, (z - 0.5 / s) / s)
    if direction == "add":
        excess = log_moment_excess(alpha, log_base, -log_ratio)
    else:
        excess = log_moment_excess(alpha, log_base + log_ratio, log_ratio)
    return float(renyi_from_excess(alpha, excess))


def _log_mixture_ratio(q: float, log_ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns log(1 - q + q e^t) at each t."""
    near = np.log1p(q * np.expm1(np.minimum(log_ratio, 500.0)))
    return np.where(log_ratio < 500.0, near, np.logaddexp(math.log1p(-q), math.log(q) + log_ratio))


def dp_sgd_renyi(
    alpha: float, num_steps: int, noise_multiplier: float, sample_rate: float = 1.0
) -> float:
    """Returns the RDP epsilon of Poisson-sampled (or, at rate 1, full-batch) DP-SGD at one
    order."""
    num_steps = check_int("num_steps", num_steps, at_least=0)
    return num_steps * renyi_subsampled_gaussian(alpha, sample_rate, noise_multiplier)


def dp_sgd_epsilon(
    delta: float, num_steps: int, noise_multiplier: float, sample_rate: float = 1.0
) -> float:
    """Returns an epsilon of (epsilon, delta)-DP for DP-SGD: exact at rate 1, below it an upper
    bound that is some 0.1% above the exact value, from the distribution of the privacy loss.

    Raises:
      ValueError: an argument out of range; at rates below 1 also delta below 1e-12, a noise
        multiplier below 0.02, or more than 1e6 steps.
    """
    num_steps = check_int("num_steps", num_steps, at_least=0)
    delta = check_real("delta", delta, above=0.0, below=1.0)
    sample_rate = check_real("sample_rate", sample_rate, at_least=0.0, at_most=1.0)
    if num_steps == 0 or sample_rate == 0.0:
        return 0.0
    if sample_rate == 1.0:
        return gaussian_dp_epsilon(dp_sgd_mu(num_steps, noise_multiplier), delta)
    return _poisson_epsilon(delta, num_steps, noise_multiplier, sample_rate)


def _poisson_epsilon(
    delta: float, num_steps: int, noise_multiplier: float, sample_rate: float
) -> float:
    """Returns an upper bound on the epsilon of Poisson-sampled steps, some 0.1% above the exact
    one.

    The distribution of one step's privacy loss, on a grid of losses fine against its standard
    deviation, convolved with itself. Both directions of neighbours are covered. Source: Doroshenko
    et al. (2022), "Connect the Dots: Tighter Discrete Approximations of Privacy Loss
    Distributions", as dp_accounting implements it.
    """
    from dp_accounting.pld import privacy_loss_distribution

    s = check_real("noise_multiplier", noise_multiplier, at_least=_LEAST_POISSON_NOISE)
    # A rounding error of 1e-16 in each of many masses leaves nothing of a smaller delta.
    check_real("delta", delta, at_least=1e-12)
    check_int("num_steps", num_steps, at_most=10**6)
    variation = sample_rate * gaussian_dp_delta(1.0 / s, 0.0)
    if delta >= -math.expm1(num_steps * math.log1p(-variation)):  # delta at epsilon 0, or more
        return 0.0
    largest = float(_log_mixture_ratio(sample_rate, np.array([(10.0 + 0.5 / s) / s]))[0])
    spread = min(largest, sample_rate * math.sqrt(math.expm1(min(1.0 / s / s, 700.0))))
    cells = min(20.0, max(5.0, 2e4 / math.sqrt(num_steps)))
    interval = max(min(spread / cells, largest / 100.0), largest / 2e4)
    one_step = privacy_loss_distribution.from_gaussian_mechanism(
        s, value_discretization_interval=interval, sampling_prob=sample_rate
    )
    # In two stages: dp_accounting raises the size of a short list to the power of the number of
    # steps.
    thousands, rest = divmod(num_steps, 1000)
    parts = [one_step.self_compose(1000).self_compose(thousands)] if thousands else []
    parts += [one_step.self_compose(rest)] if rest else []
    all_steps = parts[0] if len(parts) == 1 else parts[0].compose(parts[1])
    return max(0.0, float(all_steps.get_epsilon_for_delta(delta)))
