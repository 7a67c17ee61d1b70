"""Privacy properties: what can be claimed, DP-Auditorium's and four more.

A property of the real DP-Auditorium is accepted wherever one of these is: it is read by the names
of its fields (`read_claim`), not by its class.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    Delta,
    NotNegative,
    Order,
    Positive,
    Real,
)
from dvrenyi_plugin._internal.validation import check_order
from dvrenyi_plugin.privacy.bounded_range import renyi_of_range
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp, renyi_pure_dp


@dataclasses.dataclass(frozen=True)
class PureDp(CheckedSettings):
    """Pure epsilon-DP.

    Attributes:
      epsilon: finite, >= 0.
    """

    epsilon: NotNegative


@dataclasses.dataclass(frozen=True)
class RenyiDp(CheckedSettings):
    """(alpha, epsilon)-Rényi DP.

    Attributes:
      alpha: order, finite, > 1.
      epsilon: bound on D_alpha in both directions, finite, >= 0.
    """

    alpha: Order
    epsilon: NotNegative


@dataclasses.dataclass(frozen=True)
class ApproximateDp(CheckedSettings):
    """(epsilon, delta)-DP.

    Attributes:
      epsilon: finite, >= 0.
      delta: in [0, 1].
    """

    epsilon: NotNegative
    delta: Delta


@dataclasses.dataclass(frozen=True)
class GaussianDp(CheckedSettings):
    """mu-Gaussian DP (Dong, Roth and Su 2022). DP-Auditorium has no such property.

    Attributes:
      mu: finite, >= 0.
    """

    mu: NotNegative


@dataclasses.dataclass(frozen=True)
class ZeroConcentratedDp(CheckedSettings):
    """rho-zCDP (Bun and Steinke 2016): D_alpha <= alpha rho for every alpha > 1.

    Attributes:
      rho: finite, >= 0.
    """

    rho: NotNegative


@dataclasses.dataclass(frozen=True)
class SubsampledGaussianDp(CheckedSettings):
    """What an accountant says of DP-SGD with Poisson batches: the trade-off curve of Gaussian noise
    on sums over random subsets of the records, composed over the steps.

    Attributes:
      noise_multiplier: standard deviation of the noise over the clipping norm, finite, > 0.
      sample_rate: probability of each record to be in a batch, in (0, 1].
      num_steps: >= 1.
    """

    noise_multiplier: Positive
    sample_rate: Annotated[float, Real(above=0.0, at_most=1.0)]
    num_steps: Count


@dataclasses.dataclass(frozen=True)
class BoundedRangeDp(CheckedSettings):
    """Bounded range (Durfee and Rogers 2019): the log ratio of the two laws varies by at most
    `width`. The exponential mechanism has it, and the flows that sample it.

    Attributes:
      width: finite, >= 0.
    """

    width: NotNegative


@dataclasses.dataclass(frozen=True)
class PrivacyProperty:
    """Holds exactly one property. The first three fields are DP-Auditorium's.

    Attributes:
      pure_dp: epsilon-DP.
      renyi_dp: (alpha, epsilon)-Rényi DP.
      approximate_dp: (epsilon, delta)-DP.
      gaussian_dp: mu-Gaussian DP.
      zero_concentrated_dp: rho-zCDP.
      subsampled_gaussian_dp: DP-SGD with Poisson batches.
      bounded_range_dp: bounded range of the log ratio.
    """

    pure_dp: PureDp | None = None
    renyi_dp: RenyiDp | None = None
    approximate_dp: ApproximateDp | None = None
    gaussian_dp: GaussianDp | None = None
    zero_concentrated_dp: ZeroConcentratedDp | None = None
    subsampled_gaussian_dp: SubsampledGaussianDp | None = None
    bounded_range_dp: BoundedRangeDp | None = None

    def __post_init__(self) -> None:
        given = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"PrivacyProperty must hold exactly one of {', '.join(_PROPERTY_FIELDS)}, got"
                f" {', '.join(given) or 'none'}"
            )


_PROPERTY_FIELDS = tuple(field.name for field in dataclasses.fields(PrivacyProperty))


Claim = (
    PureDp
    | RenyiDp
    | ApproximateDp
    | GaussianDp
    | ZeroConcentratedDp
    | SubsampledGaussianDp
    | BoundedRangeDp
)


def read_claim(privacy_property: Any) -> Claim:
    """Returns the one claim inside a privacy property, ours or DP-Auditorium's, as our validated
    dataclass.

    Raises:
      ValueError: no or several properties are set, or a parameter is out of range.
    """
    given = {
        name: getattr(privacy_property, name)
        for name in _PROPERTY_FIELDS
        if getattr(privacy_property, name, None) is not None
    }
    if len(given) != 1:
        raise ValueError(
            f"privacy_property must hold exactly one of {', '.join(_PROPERTY_FIELDS)}, got"
            f" {privacy_property!r}"
        )
    ((name, value),) = given.items()
    claim_class: type[Claim] = {
        "pure_dp": PureDp,
        "renyi_dp": RenyiDp,
        "approximate_dp": ApproximateDp,
        "gaussian_dp": GaussianDp,
        "zero_concentrated_dp": ZeroConcentratedDp,
        "subsampled_gaussian_dp": SubsampledGaussianDp,
        "bounded_range_dp": BoundedRangeDp,
    }[name]
    fields = [field.name for field in dataclasses.fields(claim_class)]
    try:
        return claim_class(*(getattr(value, field) for field in fields))
    except AttributeError as error:
        raise ValueError(
            f"privacy_property.{name} must have {fields}, got {value!r}: {error}"
        ) from None


def renyi_threshold(claim: Claim, alpha: float) -> float:
    """Returns the largest D_alpha that the claim allows; the claim is refuted exactly by more than
    that.

    Args:
      claim: what `read_claim` returns.
      alpha: order at which the divergence is bounded; for a Rényi DP claim it must be the claim's
        own.

    Raises:
      ValueError: the claim says nothing about D_alpha: (epsilon, delta)-DP does not bound any Rényi
        divergence (there is no converse of "RDP implies (epsilon, delta)-DP"); or it allows more
        than the largest float.
    """
    if not isinstance(claim, Claim):
        raise ValueError(f"claim must be what read_claim returns, got {claim!r}")
    threshold = _largest_divergence(claim, check_order(alpha))
    if not math.isfinite(threshold):
        raise ValueError(
            f"privacy_property must allow less than the largest float at order {alpha}, got {claim}"
        )
    return threshold


def _largest_divergence(claim: Claim, alpha: float) -> float:
    match claim:
        case RenyiDp():
            if alpha != claim.alpha:
                raise ValueError(f"alpha must be the claim's own order {claim.alpha}, got {alpha}")
            return claim.epsilon
        case PureDp():
            return renyi_pure_dp(alpha, claim.epsilon)
        case GaussianDp():
            return renyi_gaussian_dp(alpha, claim.mu)
        case ZeroConcentratedDp():
            return alpha * claim.rho
        case BoundedRangeDp():
            return renyi_of_range(alpha, claim.width)
        case SubsampledGaussianDp():
            # The accounting needs scipy's optimizers, which take a while to load.
            from dvrenyi_plugin.privacy.conversions import dp_sgd_renyi

            return dp_sgd_renyi(alpha, claim.num_steps, claim.noise_multiplier, claim.sample_rate)
        case ApproximateDp():
            raise ValueError(
                "privacy_property must bound a Rényi divergence (any but approximate_dp), got"
                " approximate_dp, which no Rényi bound can refute"
            )


def default_order(claim: Claim) -> float:
    """Returns the order to test a claim at when none is given: a Rényi DP claim's own, 2 for any
    other."""
    return float(claim.alpha) if isinstance(claim, RenyiDp) else 2.0


def claim_level(claim: Claim) -> float:
    """Returns the claim's own number, which grows with what is allowed: epsilon of Rényi, pure and
    (epsilon, delta)-DP, mu, rho, 1 / noise multiplier, or the width.
    """
    match claim:
        case RenyiDp(epsilon=level) | PureDp(epsilon=level) | ApproximateDp(epsilon=level):
            return float(level)
        case GaussianDp(mu=level) | ZeroConcentratedDp(rho=level) | BoundedRangeDp(width=level):
            return float(level)
        case SubsampledGaussianDp(noise_multiplier=noise):
            return 1.0 / noise


def as_privacy_property(claim: Claim) -> PrivacyProperty:
    """Returns the claim inside our PrivacyProperty."""
    match claim:
        case PureDp():
            return PrivacyProperty(pure_dp=claim)
        case RenyiDp():
            return PrivacyProperty(renyi_dp=claim)
        case ApproximateDp():
            return PrivacyProperty(approximate_dp=claim)
        case GaussianDp():
            return PrivacyProperty(gaussian_dp=claim)
        case ZeroConcentratedDp():
            return PrivacyProperty(zero_concentrated_dp=claim)
        case SubsampledGaussianDp():
            return PrivacyProperty(subsampled_gaussian_dp=claim)
        case BoundedRangeDp():
            return PrivacyProperty(bounded_range_dp=claim)
