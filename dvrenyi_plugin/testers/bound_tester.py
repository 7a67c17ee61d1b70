"""What the testers share: DP-Auditorium's interface on top of one method that explains its bound."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.validation import check_lower_bound
from dvrenyi_plugin.testers.bound_result import BoundResult

_MOST_SAMPLES = 10**9


class BoundTester(abc.ABC):
    """A `PropertyTester` of `dvrenyi_plugin.interfaces` whose answers are all read off `audit`.

    Args:
      privacy_property: as it was given; handed back unchanged.
      limit: the most that the property allows, on the scale of the bound.
    """

    def __init__(self, privacy_property: Any, limit: float) -> None:
        self._privacy_property = privacy_property
        self._limit = limit

    @property
    def privacy_property(self) -> Any:
        """The very property object that the config holds."""
        return self._privacy_property

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
          ValueError: `lower_bound` is NaN or no number. A broken bound must not pass for a kept promise.
        """
        return check_lower_bound(lower_bound) > self._limit


def fewest_samples(can_refute: Callable[[int], bool], given: int) -> float | None:
    """Returns the fewest samples of each law with which a claim can be refuted at all; None when those given are enough,
    inf when even 10^9 are not.

    Args:
      can_refute: whether so many samples of each law could refute, if they were the worst for the claim; once True,
        True for all larger numbers.
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
