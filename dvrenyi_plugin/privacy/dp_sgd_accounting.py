"""The three ways to say what DP-SGD claims, and the noise and the Rényi claim that follow."""

from __future__ import annotations

import dataclasses

from scipy.optimize import brentq

from dvrenyi_plugin._internal.validation import check_epsilon, check_int, check_order, check_real
from dvrenyi_plugin.privacy.conversions import (
    dp_sgd_epsilon,
    dp_sgd_mu,
    dp_sgd_noise_multiplier,
    dp_sgd_renyi,
    gaussian_dp_mu,
    renyi_group_privacy,
)
from dvrenyi_plugin.privacy.properties import (
    GaussianDp,
    PrivacyProperty,
    RenyiDp,
    SubsampledGaussianDp,
)
from dvrenyi_plugin.privacy.trade_off import LARGEST_MU

_DEFAULT_MU = 1.0
_NOISE_TOLERANCE = 1e-6
# The least that `dp_sgd_epsilon` takes with Poisson batches, doubled: the search halves from there.
_LEAST_POISSON_NOISE = 0.04
# What `dp_sgd_curve` takes.
_LEAST_RATE, _MOST_POISSON_STEPS = 1e-12, 10**6
# Squares beyond these over- or underflow; so does the noise itself in float32.
_LEAST_NOISE, _MOST_NOISE = 1e-100, 1e30


@dataclasses.dataclass(frozen=True)
class DpSgdClaim:
    """What is claimed of a DP-SGD run, and the noise that the claim needs.

    Attributes:
      noise_multiplier: standard deviation of the noise over the clipping norm.
      renyi: the claim under test, at the order of the audit, for datasets that differ in
        `num_canaries` records.
      mu: the Gaussian DP parameter that `renyi` follows from; None with Poisson batches, which have
        none exactly.
      num_canaries: records in which the datasets under test differ.
      curve: the claim as one that has a trade-off curve, Gaussian DP or what the accountant says of
        Poisson batches; None for groups with Poisson batches and beyond the accountant's reach.
    """

    noise_multiplier: float
    renyi: RenyiDp
    mu: float | None
    num_canaries: int = 1
    curve: PrivacyProperty | None = None

    def describe_group(self) -> str:
        """Returns one sentence on how a group's claim follows from that of one record."""
        source = (
            f"Gaussian DP of a group, {self.num_canaries} times the mu of one record, exactly"
            if self.mu is not None
            else "Rényi DP of a group (Mironov 2017, proposition 2), which is not tight"
        )
        return (
            f"The datasets differ in {self.num_canaries} records; the claim under test is what"
            f" the claim for one record implies for them: {source}."
        )


def audited_claim(
    alpha: float,
    num_steps: int,
    sample_rate: float = 1.0,
    *,
    mu: float | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    num_canaries: int = 1,
) -> DpSgdClaim:
    """Returns the claim that one of mu, noise_multiplier or (epsilon, delta) makes.

    mu is 1 if none is given.

    An (epsilon, delta) only sets the noise. What an audit then tests is the Rényi DP of that noise:
    no bound on a Rényi divergence can refute (epsilon, delta)-DP itself.

    Args:
      alpha: Rényi order of the audit, > 1.
      num_steps: >= 1.
      sample_rate: 1.0 for full batches, else the Poisson rate, in (0, 1).
      mu: claimed mu-Gaussian DP, > 0, of full batches.
      noise_multiplier: > 0.
      epsilon: claimed epsilon, > 0, together with delta.
      delta: in (0, 1).
      num_canaries: records k in which the datasets under test differ, >= 1. The parameters above
        are of the claim for one record. Full batches: a group of k has k mu, since the gradients of
        k records move the sum by at most k clipping norms. Poisson batches: (alpha 2^c, epsilon)
        for one record gives (alpha, 3^c epsilon) for k = 2^c, for alpha >= 2.

    Raises:
      ValueError: more than one of the three, epsilon without delta, a parameter out of range, mu
        with Poisson batches, or a group that the conversion does not reach.

    Source of the group conversion: Mironov (2017), "Rényi Differential Privacy", proposition 2;
    Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi Differentially Private
    Machine Learning", appendix B.8.
    """
    alpha, num_steps = check_order(alpha), check_int("steps", num_steps, at_least=1)
    sample_rate = check_real("sample_rate", sample_rate, above=0.0, at_most=1.0)
    num_canaries = check_int("num_canaries", num_canaries, at_least=1)
    if sample_rate < 1.0:
        _check_poisson_group(alpha, num_canaries)
    noise_multiplier = _noise_of(mu, noise_multiplier, (epsilon, delta), num_steps, sample_rate)
    if sample_rate == 1.0:
        group_mu = num_canaries * dp_sgd_mu(num_steps, noise_multiplier)
        renyi = num_canaries**2 * dp_sgd_renyi(alpha, num_steps, noise_multiplier)
        curve = (
            PrivacyProperty(gaussian_dp=GaussianDp(group_mu)) if group_mu <= LARGEST_MU else None
        )
        return DpSgdClaim(noise_multiplier, RenyiDp(alpha, renyi), group_mu, num_canaries, curve)
    renyi = _poisson_group_renyi(alpha, num_steps, noise_multiplier, sample_rate, num_canaries)
    return DpSgdClaim(
        noise_multiplier,
        RenyiDp(alpha, renyi),
        None,
        num_canaries,
        _poisson_curve(num_steps, noise_multiplier, sample_rate) if num_canaries == 1 else None,
    )


def _poisson_curve(
    num_steps: int, noise_multiplier: float, sample_rate: float
) -> PrivacyProperty | None:
    in_reach = noise_multiplier >= _LEAST_POISSON_NOISE / 2.0 and sample_rate >= _LEAST_RATE
    if not in_reach or num_steps > _MOST_POISSON_STEPS:
        return None
    claim = SubsampledGaussianDp(noise_multiplier, sample_rate, num_steps)
    return PrivacyProperty(subsampled_gaussian_dp=claim)


def _noise_of(
    mu: float | None,
    noise_multiplier: float | None,
    approximate: tuple[float | None, float | None],
    num_steps: int,
    sample_rate: float,
) -> float:
    """Returns the noise multiplier of the one claim that is given: mu, itself, or (epsilon,
    delta)."""
    epsilon, delta = approximate
    given = {
        "mu": mu is not None,
        "noise_multiplier": noise_multiplier is not None,
        "epsilon and delta": epsilon is not None or delta is not None,
    }
    if sum(given.values()) > 1:
        names = ", ".join(name for name, is_given in given.items() if is_given)
        raise ValueError(f"the claim must be given once, got {names}")
    if noise_multiplier is not None:
        noise_multiplier = check_real("noise_multiplier", noise_multiplier, above=0.0)
    elif given["epsilon and delta"]:
        noise_multiplier = _calibrated_noise(epsilon, delta, num_steps, sample_rate)
    else:
        mu = check_real("mu", _DEFAULT_MU if mu is None else mu, above=0.0)
        if sample_rate != 1.0:
            raise ValueError(
                "mu must be left out with Poisson batches, whose claim is given as noise_multiplier"
                f" or as epsilon and delta: got mu {mu:g} at sample_rate {sample_rate:g}"
            )
        noise_multiplier = dp_sgd_noise_multiplier(num_steps, mu)
    if not _LEAST_NOISE <= noise_multiplier <= _MOST_NOISE:
        claim = {"mu": mu, "noise_multiplier": noise_multiplier, "epsilon": epsilon}
        name = next((name for name, is_given in given.items() if is_given), "mu").split()[0]
        raise _out_of_reach(name, claim[name], f"it takes {noise_multiplier:.3g}")
    return noise_multiplier


def _out_of_reach(name: str, value: float | None, why: str) -> ValueError:
    return ValueError(
        f"{name} must be a claim that noise between {_LEAST_NOISE:g} and {_MOST_NOISE:g} times the"
        f" clipping norm makes, got {value!r}: {why}"
    )


def _check_poisson_group(alpha: float, num_canaries: int) -> None:
    if num_canaries != 2 ** (num_canaries.bit_length() - 1):
        raise ValueError(
            f"num_canaries must be a power of two with Poisson batches, got {num_canaries}"
        )
    if num_canaries > 1 and alpha < 2.0:
        raise ValueError(
            f"alpha must be at least 2 for {num_canaries} canaries with Poisson batches, got"
            f" {alpha:g}"
        )


def _poisson_group_renyi(
    alpha: float, num_steps: int, noise_multiplier: float, sample_rate: float, num_canaries: int
) -> float:
    doublings = num_canaries.bit_length() - 1
    order = alpha * num_canaries
    one_record = dp_sgd_renyi(order, num_steps, noise_multiplier, sample_rate)
    return renyi_group_privacy(order, one_record, doublings)[1]


def _calibrated_noise(
    epsilon: float | None, delta: float | None, num_steps: int, sample_rate: float
) -> float:
    """Returns the least noise multiplier, up to a millionth, that (epsilon, delta)-DP needs."""
    if epsilon is None or delta is None:
        raise ValueError(
            f"epsilon and delta must be given together, got epsilon {epsilon} and delta {delta}"
        )
    check_real("epsilon", check_epsilon(epsilon), above=0.0)
    check_real("delta", delta, above=0.0, below=1.0)
    if sample_rate == 1.0:
        return dp_sgd_noise_multiplier(num_steps, gaussian_dp_mu(epsilon, delta))

    def excess(noise_multiplier: float) -> float:
        return dp_sgd_epsilon(delta, num_steps, noise_multiplier, sample_rate) - epsilon

    low = high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
        if high > _MOST_NOISE:
            raise _out_of_reach("epsilon", epsilon, "at this delta no such noise is enough")
    while excess(low) <= 0.0:
        low /= 2.0
        if low < _LEAST_POISSON_NOISE:
            raise ValueError(
                f"epsilon and delta must be small enough to need noise of {_LEAST_POISSON_NOISE:g}"
                f" times the clipping norm, got epsilon {epsilon!r} and delta {delta!r} at"
                f" sample_rate {sample_rate:g} and {num_steps} steps"
            )
    noise = float(brentq(excess, low, high, rtol=_NOISE_TOLERANCE))
    # On the safe side of the solver's tolerance: the claim holds for this noise.
    while excess(noise) > 0.0:
        noise *= 1.0 + _NOISE_TOLERANCE
    return noise
