"""What the testers share: DP-Auditorium's interface on top of one method that explains its bound."""

from __future__ import annotations

import abc
from typing import Any

from numpy.typing import ArrayLike

from dvrenyi_plugin._validation import check_lower_bound
from dvrenyi_plugin.testers.bound_result import BoundResult


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
