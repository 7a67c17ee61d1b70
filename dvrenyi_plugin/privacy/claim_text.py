"""Privacy claims as people write them, for flags and configuration files."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dvrenyi_plugin.privacy.conversions import dp_sgd_mu
from dvrenyi_plugin.privacy.properties import (
    ApproximateDp,
    Claim,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    as_privacy_property,
)

CLAIM_EXAMPLES = (
    "mu=1",
    "epsilon=8,delta=1e-5",
    "epsilon=1",
    "rho=0.5",
    "renyi:alpha=2,epsilon=1",
    "noise_multiplier=1.1,sample_rate=0.01,steps=1000",
)
# What is meant where a number of DP-SGD is not given; the noise always is.
_DP_SGD = {"noise_multiplier": math.nan, "sample_rate": 1.0, "steps": 1.0}


def parse_claim(text: str) -> PrivacyProperty:
    """Returns the privacy property that a text claims.

    - "mu=1": Gaussian DP.
    - "epsilon=1": pure DP; "epsilon=8,delta=1e-5": (epsilon, delta)-DP.
    - "rho=0.5": zCDP.
    - "alpha=2,epsilon=1", or with "renyi:" before it: Rényi DP.
    - "noise_multiplier=1.1,sample_rate=0.01,steps=1000": what an accountant says of DP-SGD with
      Poisson batches; Gaussian DP at sample rate 1, which is what is meant if none is given. One
      step if none are given.

    Raises:
      ValueError: another text, or a number out of range.
    """
    if not isinstance(text, str):
        raise ValueError(f"claim must be a text such as {CLAIM_EXAMPLES[0]!r}, got {text!r}")
    try:
        prefix, _, rest = text.rpartition(":")
        numbers = _numbers(rest)
        if prefix.strip() not in ("", "renyi") or (prefix and "alpha" not in numbers):
            raise ValueError(f"the only word before a colon is renyi, with alpha, got {prefix!r}")
        return as_privacy_property(_claim(numbers))
    except ValueError as error:
        raise ValueError(
            f"claim must be written as one of {'; '.join(CLAIM_EXAMPLES)}, got {text!r}: {error}"
        ) from None


def _numbers(text: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name in numbers:
            raise ValueError(f"each part must be a new name, '=' and a number, got {part!r}")
        try:
            numbers[name] = float(value)
        except ValueError:
            raise ValueError(f"{name} must be a number, got {value!r}") from None
    return numbers


def _claim(numbers: Mapping[str, float]) -> Claim:
    match sorted(numbers):
        case ["mu"]:
            return GaussianDp(**numbers)
        case ["epsilon"]:
            return PureDp(**numbers)
        case ["delta", "epsilon"]:
            return ApproximateDp(**numbers)
        case ["rho"]:
            return ZeroConcentratedDp(**numbers)
        case ["alpha", "epsilon"]:
            return RenyiDp(**numbers)
    if "noise_multiplier" in numbers and numbers.keys() <= _DP_SGD.keys():
        return _dp_sgd(**{**_DP_SGD, **numbers})
    raise ValueError(f"no claim has exactly the numbers {', '.join(sorted(numbers))}")


def _dp_sgd(noise_multiplier: float, sample_rate: float, steps: float) -> Claim:
    if not steps.is_integer():
        raise ValueError(f"steps must be a whole number, got {steps:g}")
    claim = SubsampledGaussianDp(noise_multiplier, sample_rate, int(steps))
    if claim.sample_rate < 1.0:
        return claim
    return GaussianDp(dp_sgd_mu(claim.num_steps, claim.noise_multiplier))
