"""What a tester found, with everything that decided it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NOTHING_CERTIFIED = 0.0


@dataclasses.dataclass(frozen=True)
class BoundResult:
    """A one-sided lower confidence bound and, kept apart from it, a point estimate.

    Attributes:
      lower_bound: on the tested divergence (nats, the D_alpha scale for Rényi testers), holding with
        probability >= 1 - failure_probability; 0.0 when nothing can be certified, never NaN.
      point_estimate: what the critic read off its samples; no confidence statement. NaN is allowed here
        and means that the method makes none.
      threshold: the most that the claim allows, on the scale of `lower_bound`.
      refuted: lower_bound > threshold.
      failure_probability: total spent on this statement, over everything the method looked at.
      method: short name of the certificate.
      alpha: Rényi order of `lower_bound`; None for testers of another divergence.
      direction: which sample is the numerator.
      num_fit: samples (of law 1, of law 2) used only to choose critic and bet.
      num_certify: samples (of law 1, of law 2) used for the confidence statement. In a sequential method a
        sample first certifies and then fits, so the two may add up to more than was given.
      critic_range: interval the critic's values are bounded to, if it is.
      seed: of every random choice the tester made.
      fewest_samples: samples of each law that it takes at least to refute the claim, whatever the mechanism does, when fewer
        were given; inf when even 10^9 would not do. None when as many were given, or the tester knows no such number.
      details: method-specific values that decided the result (orders tried, threshold, rates, counts).
    """

    lower_bound: float
    point_estimate: float
    threshold: float
    refuted: bool
    failure_probability: float
    method: str
    alpha: float | None
    num_fit: tuple[int, int]
    num_certify: tuple[int, int]
    seed: int
    fewest_samples: float | None = None
    critic_range: tuple[float, float] | None = None
    direction: str = "samples1 over samples2"
    details: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        # 0.0 is the least a divergence can be; a bound below it, or NaN, is a bug of the method.
        if not self.lower_bound >= NOTHING_CERTIFIED:
            raise ValueError(f"lower_bound must be >= 0 and not NaN, got {self.lower_bound!r}")
