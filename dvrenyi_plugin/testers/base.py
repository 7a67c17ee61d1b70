"""What the testers share: the result of an audit, and DP-Auditorium's interface on top of it."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.validation import check_lower_bound

NOTHING_CERTIFIED = 0.0
_MOST_SAMPLES = 10**9


@dataclasses.dataclass(frozen=True)
class BoundResult:
    """A one-sided lower confidence bound and, kept apart from it, a point estimate.

    Attributes:
      lower_bound: on the tested divergence (nats, the D_alpha scale for Rényi testers), holding
        with probability >= 1 - failure_probability; 0.0 when nothing can be certified, never NaN.
      point_estimate: what the critic read off its samples; no confidence statement. NaN is allowed
        here and means that the method makes none.
      claimed_limit: the most that the claim allows, on the scale of `lower_bound`.
      refuted: lower_bound > claimed_limit.
      failure_probability: total spent on this statement, over everything the method looked at.
      method: short name of how the bound was made.
      alpha: Rényi order of `lower_bound`; None for testers of another divergence.
      direction: which sample is the numerator.
      num_fit: samples (of law 1, of law 2) used only to choose critic and bet.
      num_certify: samples (of law 1, of law 2) used for the confidence statement. In a sequential
        method a sample first certifies and then fits, so the two may add up to more than was given.
      critic_range: interval the critic's values are bounded to, if it is.
      seed: of every random choice the tester made.
      fewest_samples: samples of each law that it takes at least to refute the claim, whatever the
        mechanism does, when fewer were given; inf when even 10^9 would not do. None when as many
        were given, or the tester knows no such number.
      details: method-specific values that decided the result (orders tried, rates, counts, the
        threshold of an attack's score).
    """

    lower_bound: float
    point_estimate: float
    claimed_limit: float
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


class BoundTester(abc.ABC):
    """A `PropertyTester` of `dvrenyi_plugin.interfaces` whose answers are all read off `audit`.

    Args:
      privacy_property: as it was given; handed back unchanged.
      claimed_limit: the most that the property allows, on the scale of the bound.
    """

    # Whether one order of two samples tests the claim in both orders, as that of a symmetric
    # trade-off curve: then that order may spend the whole failure probability.
    one_order_tests_both = False

    def __init__(self, privacy_property: Any, claimed_limit: float) -> None:
        self._privacy_property = privacy_property
        self._claimed_limit = claimed_limit

    @property
    def privacy_property(self) -> Any:
        """The very property object that the config holds."""
        return self._privacy_property

    @property
    def claimed_limit(self) -> float:
        """The most that the property allows, on the scale of the bound."""
        return self._claimed_limit

    @abc.abstractmethod
    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns the bound with everything that decided it."""

    def estimate_lower_bound(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> float:
        """Returns `audit(...).lower_bound`: 0.0 when nothing can be certified, never NaN."""
        return self.audit(samples1, samples2, failure_probability).lower_bound

    def reject_property(self, lower_bound: float) -> bool:
        """Returns True when `lower_bound` is more than the property allows.

        Raises:
          ValueError: `lower_bound` is NaN or no number. A broken bound must not pass for a kept
            promise.
        """
        return check_lower_bound(lower_bound) > self._claimed_limit


def fewest_samples(can_refute: Callable[[int], bool], given: int) -> float | None:
    """Returns the fewest samples of each law with which a claim can be refuted at all.

    None when those given are enough, inf when even 10^9 are not.

    Args:
      can_refute: whether so many samples of each law could refute, if they were the worst for the
        claim; once True, True for all larger numbers.
      given: samples of each law that there are, >= 1.
    """
    if can_refute(given):
        return None
    if not can_refute(_MOST_SAMPLES):
        return math.inf
    too_few, enough = given, 2 * given
    while not can_refute(enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if can_refute(middle) else (middle, enough)
    return enough
