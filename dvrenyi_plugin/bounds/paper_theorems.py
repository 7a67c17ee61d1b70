"""Confidence statements of the Rényi auditing paper, with explicit constants and stated
assumptions.

Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially Private
Machine Learning", arXiv:2605.21938. Everything returned is on the D scale,

    D_alpha(P || Q) = log E_Q[(dP/dQ)^alpha] / (alpha - 1),

the one that (alpha, epsilon)-RDP claims speak of. The paper's variational functional V estimates
D_alpha / alpha; its corollary B.5 compares V with an RDP epsilon, here alpha V is compared.

Lower bounds are one-sided, cut at 0.0 (no divergence is negative), and wrong with probability at
most the failure probability; for the known log ratio also *only if that log ratio is the true one*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._internal.validation import (
    check_bool,
    check_epsilon,
    check_failure_probability,
    check_int,
    check_numbers,
    check_order,
    check_real,
)

# Finite log ratios beyond it are refused: times the largest order they would overflow, and no
# density has them.
LARGEST_LOG_RATIO = 1e290


def empirical_renyi_divergence(alpha: float, log_ratios: ArrayLike) -> float:
    """Returns the point estimate log(mean e^{alpha L}) / (alpha - 1) of D_alpha(P || Q).

    No confidence statement. May be negative, and is -inf when every log ratio is.

    Args:
      alpha: order > 1.
      log_ratios: shape (n,), L(X_i) = log dP/dQ (X_i) at independent X_i ~ Q, the *denominator*
        law; -inf where P has no mass.

    Raises:
      ValueError: wrong shape, no entries, NaN or +inf.
    """
    alpha = check_order(alpha)
    return _log_mean_power(alpha, _check_log_ratios(log_ratios)) / (alpha - 1.0)


def markov_lower_bound(alpha: float, log_ratios: ArrayLike, failure_probability: float) -> float:
    """Returns a lower bound on D_alpha(P || Q).

    It is the point estimate minus log(1/failure) / (alpha - 1).

    Assumes nothing beyond a known log ratio. The price is high: at alpha = 1.25 and failure
    probability 0.05 it subtracts 11.98.

    Args:
      alpha: order > 1.
      log_ratios: shape (n,), L(X_i) at independent X_i ~ Q (see `empirical_renyi_divergence`).
      failure_probability: one-sided, in (0, 1).

    Source: theorem 3.1 (Markov's inequality on the mean of e^{alpha L}).
    """
    beta = check_failure_probability(failure_probability)
    estimate = empirical_renyi_divergence(alpha, log_ratios)
    return max(0.0, estimate + math.log(beta) / (alpha - 1.0))


def bounded_loss_lower_bound(
    alpha: float, log_ratios: ArrayLike, largest_log_ratio: float, failure_probability: float
) -> float:
    """Returns log(max{1, Z - e^{alpha B} sqrt(log(1/failure)/(2n))}) / (alpha - 1), a lower bound
    on D_alpha(P || Q), where Z is the mean of e^{alpha L}.

    Assumes L <= B wherever Q has mass (assumption B.1). B must come from the mechanism, not from
    the largest value seen.

    Args:
      alpha: order > 1.
      log_ratios: shape (n,), L(X_i) at independent X_i ~ Q.
      largest_log_ratio: B in nats, >= 0 (a density ratio cannot stay below 1).
      failure_probability: one-sided, in (0, 1).

    Raises:
      ValueError: also when some log ratio exceeds B, which refutes the assumption.

    Source: theorem B.3 (Hoeffding's inequality).
    """
    alpha, beta = check_order(alpha), check_failure_probability(failure_probability)
    values = _check_bounded_log_ratios(log_ratios, largest_log_ratio)
    log_mean = _log_mean_power(alpha, values)
    log_radius = _log_hoeffding_radius(alpha * largest_log_ratio, math.log(1.0 / beta), values.size)
    if log_mean <= log_radius:
        return 0.0
    log_lower_mean = log_mean + math.log1p(-math.exp(log_radius - log_mean))
    return max(0.0, log_lower_mean / (alpha - 1.0))


def bounded_loss_upper_bound(
    alpha: float,
    log_ratios: ArrayLike,
    largest_log_ratio: float,
    failure_probability: float,
    *,
    absolutely_continuous: bool,
) -> float:
    """Returns log(Z + e^{alpha B} sqrt(log(2/failure)/(2n))) / (alpha - 1), an *upper* bound on
    D_alpha(P || Q), where Z is the mean of e^{alpha L}; inf unless P is absolutely continuous with
    respect to Q.

    One-sided. The assumption of `bounded_loss_lower_bound` is not enough: samples of Q say nothing
    about what P does where Q has no mass, and any such mass makes the divergence infinite. The
    paper's theorem takes this for granted. Its constant is kept: log(2/failure) where one side
    would need log(1/failure).

    Args:
      alpha: order > 1.
      log_ratios: shape (n,), L(X_i) at independent X_i ~ Q.
      largest_log_ratio: B in nats, >= 0 (a density ratio cannot stay below 1).
      failure_probability: one-sided, in (0, 1).
      absolutely_continuous: the caller's word that P has no mass where Q has none, from the
        mechanism; no sample of Q can show it.

    Raises:
      ValueError: as for `bounded_loss_lower_bound`.

    Source: theorem B.2 (Hoeffding's inequality).
    """
    check_bool("absolutely_continuous", absolutely_continuous)
    alpha, beta = check_order(alpha), check_failure_probability(failure_probability)
    values = _check_bounded_log_ratios(log_ratios, largest_log_ratio)
    log_mean = _log_mean_power(alpha, values)
    if not absolutely_continuous:
        return math.inf
    log_radius = _log_hoeffding_radius(alpha * largest_log_ratio, math.log(2.0 / beta), values.size)
    return max(0.0, float(np.logaddexp(log_mean, log_radius)) / (alpha - 1.0))


def uniform_band_radius(
    alpha: float,
    *,
    critic_bound: float,
    num_parameters: int,
    parameter_radius: float,
    lipschitz_constant: float,
    num_numerator: int,
    num_denominator: int,
    failure_probability: float,
    covering_radius: float | None = None,
) -> float:
    """Returns a radius r with P(sup over the class |V_n - V| <= r) >= 1 - failure_probability.

        V(theta) = log E_Q[e^{(alpha-1) T}] / (alpha - 1) - log E_P[e^{alpha T}] / alpha
            <= D_alpha(Q || P) / alpha,

    and V_n is the same on samples. Two-sided; on the scale of V, so multiply by alpha for D_alpha.
    May be inf. Consistent as the counts grow and vacuous at a few hundred samples for any network:
    to certify at such sizes, fix one critic and test it on fresh samples.

    With equal counts n, and covering radius eta <= K, it is

        [(e^{2(alpha-1)M} - 1)/(alpha-1) + (e^{2 alpha M} - 1)/alpha]
            * sqrt((d log(3K/eta) + log(4/failure)) / (2n)) + 4 L eta.

    Hoeffding's inequality at level failure/2 for each of the two means, on the intervals that |T|
    <= M gives them; the logarithm's Lipschitz constant there; a union over an eta-net of the
    parameters, which has at most (1 + 2K/eta)^d <= (3K/eta)^d points; and 2 L eta to move each of
    V_n and V to the net. The paper states the order of this; the constants are worked out here.

    Args:
      alpha: order > 1.
      critic_bound: M, every critic of the class has |T| <= M, > 0.
      num_parameters: d, dimension of the parameter, >= 1.
      parameter_radius: K, every parameter has Euclidean norm <= K, > 0.
      lipschitz_constant: L with |T_theta(z) - T_theta'(z)| <= L |theta - theta'| for all z, >= 0.
      num_numerator: independent samples of Q (the first mean), >= 1.
      num_denominator: independent samples of P (the second mean), >= 1.
      failure_probability: in (0, 1).
      covering_radius: eta > 0, fixed before seeing data; None for K / sqrt(min of the counts).

    Source: theorem 3.2, proved as theorem B.4.
    """
    alpha, beta = check_order(alpha), check_failure_probability(failure_probability)
    bound = check_real("critic_bound", critic_bound, above=0.0)
    dimension = check_int("num_parameters", num_parameters, at_least=1)
    radius = check_real("parameter_radius", parameter_radius, above=0.0)
    lipschitz = check_real("lipschitz_constant", lipschitz_constant, at_least=0.0)
    num_numerator = check_int("num_numerator", num_numerator, at_least=1)
    counts = num_numerator, check_int("num_denominator", num_denominator, at_least=1)
    eta = radius / math.sqrt(min(counts)) if covering_radius is None else covering_radius
    eta = check_real("covering_radius", eta, above=0.0)
    log_union = dimension * _log_cover(radius, eta) + math.log(4.0 / beta)
    band = sum(
        _expm1_or_inf(2.0 * order * bound) / order * math.sqrt(log_union / (2.0 * count))
        for order, count in zip((alpha - 1.0, alpha), counts, strict=True)
    )
    return band + 4.0 * lipschitz * eta


def _log_cover(radius: float, eta: float) -> float:
    """Returns a bound on the log size of an eta-net of the ball of radius K, per dimension.

    Both are equal at eta = K; beyond it (3K/eta)^d undercounts the net of a class that is only part
    of the ball.
    """
    return math.log(3.0 * radius / eta) if eta <= radius else math.log1p(2.0 * radius / eta)


def uniform_band_lower_bound(
    alpha: float,
    empirical_objective: float,
    *,
    critic_bound: float,
    num_parameters: int,
    parameter_radius: float,
    lipschitz_constant: float,
    num_numerator: int,
    num_denominator: int,
    failure_probability: float,
    covering_radius: float | None = None,
) -> float:
    """Returns alpha (V_n - radius), a lower bound on D_alpha(Q || P).

    Valid for the value V_n of *any* critic of the class, fitted on the same samples or not: the
    band holds for all of them at once. An RDP claim (alpha, epsilon) is refuted when the bound
    exceeds epsilon; that test has type I error at most the failure probability. It says nothing
    about (epsilon, delta)-DP: corollary B.5's second statement, which claims to, is the converse of
    "RDP implies (epsilon, delta)-DP" and is false.

    Args:
      alpha: order > 1.
      empirical_objective: V_n at the fitted parameter (the paper's scale, an estimate of D_alpha /
        alpha).
      The rest: as for `uniform_band_radius`.

    Source: corollary B.5's RDP test, on the D scale.
    """
    objective = check_real("empirical_objective", empirical_objective)
    radius = uniform_band_radius(
        alpha,
        critic_bound=critic_bound,
        num_parameters=num_parameters,
        parameter_radius=parameter_radius,
        lipschitz_constant=lipschitz_constant,
        num_numerator=num_numerator,
        num_denominator=num_denominator,
        failure_probability=failure_probability,
        covering_radius=covering_radius,
    )
    return max(0.0, alpha * (objective - radius))


def largest_rejected_epsilon(
    rejects: Callable[[float], bool], upper_limit: float, *, tolerance: float = 1e-6
) -> float:
    """Returns the largest epsilon in [0, upper_limit] that a monotone test rejects, from below, to
    `tolerance`.

    It is a lower bound on the true value with the failure probability of one test. 0.0 when not
    even epsilon = 0 is rejected; `upper_limit` when everything is.

    Args:
      rejects: rejects(epsilon) is the outcome, on the data in hand, of a test of "the true value is
        at most epsilon". Assumed: each test has type I error at most the failure probability, and a
        test that rejects epsilon rejects every smaller one. The second cannot be checked from
        outside; where it may fail use `largest_rejected_in_sequence`.
      upper_limit: largest epsilon of interest, > 0.
      tolerance: the returned value is rejected and at most this far below the largest rejected, >
        0.

    Source: lemma B.9 (also lemma 2.5).
    """
    rejected = 0.0
    _check_callable(rejects)
    accepted = check_real("upper_limit", upper_limit, above=0.0)
    tolerance = check_real("tolerance", tolerance, above=0.0)
    if not rejects(rejected):
        return 0.0
    if rejects(accepted):
        return accepted
    while accepted - rejected > tolerance:
        middle = 0.5 * (rejected + accepted)
        if not rejected < middle < accepted:
            break  # neighbouring floats: a tolerance below their spacing cannot be reached
        if rejects(middle):
            rejected = middle
        else:
            accepted = middle
    return rejected


def largest_rejected_in_sequence(
    rejects: Callable[[float], bool], epsilons: Iterable[float]
) -> float:
    """Returns the last epsilon rejected before the first that is not, walking an increasing grid.

    A lower bound on the true value with the failure probability of one test, and *without*
    monotonicity: to overshoot, the walk must pass the first grid point at or above the true value,
    where the null holds. The largest rejected point of the whole grid has no such guarantee. 0.0
    when the first is not rejected.

    Args:
      rejects: as for `largest_rejected_epsilon`, monotone or not.
      epsilons: strictly increasing, >= 0, fixed before seeing the data.

    Source: fixed-sequence testing; lemma B.9 without its nesting assumption.
    """
    _check_callable(rejects)
    if isinstance(epsilons, (str, bytes)) or not np.iterable(epsilons):
        raise ValueError(f"epsilons must be an increasing sequence of numbers, got {epsilons!r}")
    last = -math.inf
    largest = 0.0
    for epsilon in epsilons:
        epsilon = check_epsilon(epsilon, "epsilons")
        if epsilon <= last:
            raise ValueError(f"epsilons must be strictly increasing, got {epsilon} after {last}")
        last = epsilon
        if not rejects(epsilon):
            break
        largest = epsilon
    return largest


def _check_callable(rejects: Callable[[float], bool]) -> None:
    if not callable(rejects):
        raise ValueError(f"rejects must be a function of epsilon, got {rejects!r}")


def _check_log_ratios(log_ratios: ArrayLike) -> NDArray[np.float64]:
    values = check_numbers("log_ratios", log_ratios)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"log_ratios must have shape (n,), n >= 1, got shape {values.shape}")
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        raise ValueError(
            f"log_ratios must be finite or -inf, got {int(bad.sum())} NaN or +inf entries of"
            f" {values.size}, the first at index {int(np.flatnonzero(bad)[0])}"
        )
    return check_log_ratio_size("log_ratios", values)


def check_log_ratio_size(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns log ratios, shape (n,), nats; refuses finite ones whose product with an order could
    overflow.

    Raises:
      ValueError: a finite entry is beyond `LARGEST_LOG_RATIO` in absolute value.
    """
    beyond = np.isfinite(values) & (np.abs(values) > LARGEST_LOG_RATIO)
    if beyond.any():
        raise ValueError(
            f"{name} must be at most {LARGEST_LOG_RATIO:g} in absolute value where finite, got"
            f" {float(values[beyond][0])!r} at index {int(np.flatnonzero(beyond)[0])}"
        )
    return values


def _check_bounded_log_ratios(log_ratios: ArrayLike, largest: float) -> NDArray[np.float64]:
    values = _check_log_ratios(log_ratios)
    largest = check_real("largest_log_ratio", largest, at_least=0.0)
    # A caller who computes the same ratio in two ways may differ from its supremum by rounding.
    above = values > largest + 1e-9 * max(1.0, largest)
    if above.any():
        raise ValueError(
            f"log_ratios must be <= largest_log_ratio = {largest:g}, got {int(above.sum())} larger"
            f" entries of {values.size}, up to {values.max():g}: the bounded-loss assumption"
            " does not hold"
        )
    return values


def _log_mean_power(alpha: float, log_ratios: NDArray[np.float64]) -> float:
    if np.all(log_ratios == -np.inf):
        return -math.inf
    return float(logsumexp(alpha * log_ratios)) - math.log(log_ratios.size)


def _log_hoeffding_radius(log_range: float, log_inverse_level: float, count: int) -> float:
    return log_range + 0.5 * math.log(log_inverse_level / (2.0 * count))


def _expm1_or_inf(exponent: float) -> float:
    try:
        return math.expm1(exponent)
    except OverflowError:
        return math.inf
