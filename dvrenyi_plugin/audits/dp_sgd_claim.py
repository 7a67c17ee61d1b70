"""The three ways to say what DP-SGD claims, and the noise and the Rényi claim that follow."""

from __future__ import annotations

import dataclasses

from scipy.optimize import brentq

from dvrenyi_plugin._validation import check_epsilon, check_int, check_order, check_real
from dvrenyi_plugin.conversions import (
    dp_sgd_epsilon,
    dp_sgd_mu,
    dp_sgd_noise_multiplier,
    dp_sgd_renyi,
    gaussian_dp_mu,
)
from dvrenyi_plugin.interfaces import RenyiDp

_DEFAULT_MU = 1.0
_NOISE_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class DpSgdClaim:
    """What is claimed of a DP-SGD run, and the noise that the claim needs.

    Attributes:
      noise_multiplier: standard deviation of the noise over the clipping norm.
      renyi: the claim under test, at the order of the audit.
      mu: the Gaussian DP parameter of a full-batch run; None with Poisson batches, which have none exactly.
    """

    noise_multiplier: float
    renyi: RenyiDp
    mu: float | None


def dp_sgd_claim_at(
    alpha: float,
    num_steps: int,
    sample_rate: float = 1.0,
    *,
    mu: float | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> DpSgdClaim:
    """Returns the claim that one of mu, noise_multiplier or (epsilon, delta) makes; mu = 1 if none is given.

    An (epsilon, delta) only sets the noise. What an audit then tests is the Rényi DP of that noise: no bound on
    a Rényi divergence can refute (epsilon, delta)-DP itself.

    Args:
      alpha: Rényi order of the audit, > 1.
      num_steps: >= 1.
      sample_rate: 1.0 for full batches, else the Poisson rate, in (0, 1).
      mu: claimed mu-Gaussian DP, > 0, of full batches.
      noise_multiplier: > 0.
      epsilon: claimed epsilon, > 0, together with delta.
      delta: in (0, 1).

    Raises:
      ValueError: more than one of the three, epsilon without delta, a parameter out of range, or mu with
        Poisson batches.
    """
    alpha, num_steps = check_order(alpha), check_int("steps", num_steps, at_least=1)
    sample_rate = check_real("sample_rate", sample_rate, above=0.0, at_most=1.0)
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
                "mu must be left out with Poisson batches, whose claim is given as noise_multiplier or as"
                f" epsilon and delta: got mu {mu:g} at sample_rate {sample_rate:g}"
            )
        noise_multiplier = dp_sgd_noise_multiplier(num_steps, mu)
    full_batch = sample_rate == 1.0
    return DpSgdClaim(
        noise_multiplier=noise_multiplier,
        renyi=RenyiDp(alpha, dp_sgd_renyi(alpha, num_steps, noise_multiplier, sample_rate)),
        mu=dp_sgd_mu(num_steps, noise_multiplier) if full_batch else None,
    )


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
    while excess(low) <= 0.0:
        low /= 2.0
        if low < _NOISE_TOLERANCE:
            raise ValueError(
                f"delta must be small enough to need noise, got {delta:g} at sample_rate"
                f" {sample_rate:g} and {num_steps} steps"
            )
    root = float(brentq(excess, low, high, rtol=_NOISE_TOLERANCE))
    # On the safe side of the solver's tolerance: the claim holds for this noise.
    return root * (1.0 + 2.0 * _NOISE_TOLERANCE)
