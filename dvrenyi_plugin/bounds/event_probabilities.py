"""What the probabilities of one event under two laws say about their privacy, and joint bounds on
them.

A 0/1 attack says "law 1" or "law 2". Its true-positive rate is the probability of "law 1" under law
1, its false-positive rate the same under law 2. Any privacy claim bounds how far apart the two can
be, so bounds on both rates refute claims: pure, (epsilon, delta), Gaussian, zero-concentrated and
Rényi alike. This is how (epsilon, delta)-DP is refuted; no lower bound on a Rényi divergence does.

The functions of rates take arrays and return 0.0 where the true-positive rate is not the larger
one: such a rule distinguishes nothing, and swapping its answers would be a choice made on the data.
Each is nondecreasing in the true-positive rate and nonincreasing in the false-positive rate. So at
a lower bound of the first and an upper bound of the second it is the least value over the whole
confidence rectangle.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, FailureProbability, Int
from dvrenyi_plugin._internal.validation import (
    check_delta,
    check_epsilon,
    check_int,
    check_numbers,
    check_order,
)
from dvrenyi_plugin.bounds.bounded_means import (
    clopper_pearson_lower_bound,
    clopper_pearson_upper_bound,
)
from dvrenyi_plugin.privacy.log_moments import log_moment_excess, renyi_from_excess


def renyi_from_rates(
    alpha: float, true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
) -> NDArray[np.float64]:
    """Returns D_alpha(Bernoulli(tpr) || Bernoulli(fpr)), at most D_alpha(law 1 || law 2), where tpr
    > fpr, and 0.0 elsewhere: only then is it the least value over a confidence rectangle
    (`divergences.renyi_bernoulli` has no such cut).

    Source: data processing; Kim, Varshney and Alabi (2026), appendix C.2.
    """
    alpha = check_order(alpha)
    p, q = _check_rates(true_positive_rate, false_positive_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.stack([np.log(p), np.log1p(-p)]), np.stack([np.log(q), np.log1p(-q)])
        ratio = log_p - log_q
        carried, possible = log_p > -np.inf, log_q > -np.inf
        excess = log_moment_excess(alpha, log_p, np.where(carried & possible, ratio, 0.0))
        # A point without mass of law 1 adds alpha - 1 times its mass of law 2; one without mass of
        # law 2 alone, infinity.
        excess = np.where(carried, excess, math.log(alpha - 1.0) + log_q)
        excess = np.where(carried & ~possible, np.inf, excess)
        divergence = renyi_from_excess(alpha, excess, axis=0)
    return np.where(p > q, divergence, 0.0)


def gaussian_dp_mu_from_rates(
    true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
) -> NDArray[np.float64]:
    """Returns Phi^-1(tpr) - Phi^-1(fpr): every mu-Gaussian-DP claim below it is refuted.

    That refutation assumes nothing. Reading the value as "the mechanism *is* mu-GDP with this mu",
    for instance to convert it to another definition, assumes a Gaussian trade-off.

    Source: Dong, Roth and Su (2022), definition 2.6; Nasr et al. (2023), section 4.
    """
    p, q = _check_rates(true_positive_rate, false_positive_rate)
    with np.errstate(invalid="ignore"):
        return np.where(p > q, ndtri(p) - ndtri(q), 0.0)


def epsilon_from_rates(
    true_positive_rate: ArrayLike, false_positive_rate: ArrayLike, delta: float
) -> NDArray[np.float64]:
    """Returns the epsilon below which every (epsilon, delta)-DP claim is refuted.

    max{log((tpr - delta) / fpr), log((1 - fpr - delta) / (1 - tpr))}, cut at 0: the event, law 1
    over law 2, and its complement, law 2 over law 1. An (epsilon, delta) claim bounds both.

    Args:
      true_positive_rate: probability of the event under law 1.
      false_positive_rate: probability of the event under law 2.
      delta: in [0, 1]; 0 for pure DP.

    Source: definition of (epsilon, delta)-DP; Kairouz, Oh and Viswanath (2015), theorem 2.1.
    """
    delta = check_delta(delta)
    p, q = _check_rates(true_positive_rate, false_positive_rate)
    event = _log_ratio(p - delta, q)
    complement = _log_ratio(1.0 - q - delta, 1.0 - p)
    return np.where(p > q, np.maximum(0.0, np.maximum(event, complement)), 0.0)


def hockey_stick_from_rates(
    epsilon: float, true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
) -> NDArray[np.float64]:
    """Returns max(0, tpr - e^epsilon fpr), at most the hockey-stick divergence of law 1 from law 2.

    Every (epsilon, delta)-DP claim with a smaller delta is refuted.
    """
    epsilon = check_epsilon(epsilon)
    p, q = _check_rates(true_positive_rate, false_positive_rate)
    with np.errstate(divide="ignore", over="ignore"):
        return np.maximum(0.0, p - np.exp(epsilon + np.log(q)))


@dataclasses.dataclass(frozen=True)
class EventBounds(CheckedSettings):
    """Counts of one event under two laws, and bounds on its two probabilities that hold jointly.

    Everything the methods return is read off one confidence rectangle: however many are read, and
    at however many orders or deltas, they all hold together with probability >= 1 -
    failure_probability.

    Attributes:
      true_positives: times the event happened in law 1's samples.
      num_samples1: independent samples of law 1.
      false_positives: times the event happened in law 2's samples.
      num_samples2: independent samples of law 2.
      failure_probability: for both bounds together; each Clopper-Pearson bound, one-sided, gets
        half.
      true_positive_rate_lower: lower bound on the event's probability under law 1.
      false_positive_rate_upper: upper bound on its probability under law 2.
    """

    true_positives: Annotated[int, Int(at_least=0)]
    num_samples1: Count
    false_positives: Annotated[int, Int(at_least=0)]
    num_samples2: Count
    failure_probability: FailureProbability
    true_positive_rate_lower: float = dataclasses.field(init=False)
    false_positive_rate_upper: float = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("true_positives", self.true_positives, at_most=self.num_samples1)
        check_int("false_positives", self.false_positives, at_most=self.num_samples2)
        half = self.failure_probability / 2.0
        lower = clopper_pearson_lower_bound(self.true_positives, self.num_samples1, half)
        upper = clopper_pearson_upper_bound(self.false_positives, self.num_samples2, half)
        object.__setattr__(self, "true_positive_rate_lower", lower)
        object.__setattr__(self, "false_positive_rate_upper", upper)

    @property
    def true_positive_rate(self) -> float:
        """The realised rate, a point estimate."""
        return self.true_positives / self.num_samples1

    @property
    def false_positive_rate(self) -> float:
        """The realised rate, a point estimate."""
        return self.false_positives / self.num_samples2

    def renyi_lower_bound(self, alpha: float) -> float:
        """Returns a lower bound on D_alpha(law 1 || law 2)."""
        return float(renyi_from_rates(alpha, *self._corner))

    def gaussian_dp_mu_lower_bound(self) -> float:
        """Returns the mu up to which every mu-Gaussian-DP claim is refuted (no Gaussian
        assumed)."""
        return float(gaussian_dp_mu_from_rates(*self._corner))

    def epsilon_lower_bound(self, delta: float) -> float:
        """Returns the epsilon up to which every (epsilon, delta)-DP claim at this delta is
        refuted."""
        return float(epsilon_from_rates(*self._corner, delta))

    def hockey_stick_lower_bound(self, epsilon: float) -> float:
        """Returns a lower bound on the hockey-stick divergence of law 1 from law 2 at e^epsilon."""
        return float(hockey_stick_from_rates(epsilon, *self._corner))

    def refutes_approximate_dp(self, epsilon: float, delta: float) -> bool:
        """Returns True when (epsilon, delta)-DP cannot hold: tpr > e^epsilon fpr + delta over the
        whole confidence rectangle, or the same for the complementary event with the laws
        swapped."""
        return self.epsilon_lower_bound(delta) > check_epsilon(epsilon)

    def refutes_pure_dp(self, epsilon: float) -> bool:
        """Returns True when pure epsilon-DP cannot hold; never less often than through any Rényi
        order."""
        return self.refutes_approximate_dp(epsilon, 0.0)

    @property
    def _corner(self) -> tuple[float, float]:
        return self.true_positive_rate_lower, self.false_positive_rate_upper


def _log_ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64]
) -> NDArray[np.float64]:
    """log(numerator / denominator), -inf for a numerator <= 0 whatever the denominator (0 / 0
    refutes nothing)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(numerator > 0.0, np.log(numerator) - np.log(denominator), -np.inf)


def _check_rates(
    true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rates = []
    for name, given in (
        ("true_positive_rate", true_positive_rate),
        ("false_positive_rate", false_positive_rate),
    ):
        rate = check_numbers(name, given)
        outside = ~((rate >= 0.0) & (rate <= 1.0))
        if outside.any():
            raise ValueError(f"{name} must be in [0, 1], got {rate[outside].flat[0]!r}")
        rates.append(rate)
    try:
        true_positive, false_positive = np.broadcast_arrays(*rates)
    except ValueError:
        raise ValueError(
            "true_positive_rate and false_positive_rate must have shapes that fit together, got"
            f" {rates[0].shape} and {rates[1].shape}"
        ) from None
    return true_positive, false_positive
