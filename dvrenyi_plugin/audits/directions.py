"""What a tester says of both directions: "law 1 over law 2" and "law 2 over law 1", each with its
own bound.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import call_user_code
from dvrenyi_plugin.audits.sample_checks import as_number, check_verdict
from dvrenyi_plugin.interfaces import PropertyTester
from dvrenyi_plugin.reports.claims import DirectionReport
from dvrenyi_plugin.testers.base import BoundResult
from dvrenyi_plugin.testers.both_directions import in_both_directions, shares_of_directions

Array = NDArray[np.float64]
# Outputs on the first dataset and on the second, shape (n, k) and (m, k).
Samples = tuple[Array, Array]
DATASETS = ("dataset1 over dataset2", "dataset2 over dataset1")


class BoundTester(Protocol):
    """A property tester that says how it came to its bound."""

    @property
    def privacy_property(self) -> Any:
        """The property under test."""

    def audit(
        self, samples1: NDArray[Any], samples2: NDArray[Any], failure_probability: float
    ) -> BoundResult:
        """Returns a one-sided lower bound on the divergence of law 1 from law 2."""


def bound_both_directions(
    tester: BoundTester,
    samples: Samples,
    failure_probability: float,
    names: tuple[str, str] = DATASETS,
) -> tuple[DirectionReport, ...]:
    """Returns the bounds of law 1 over law 2 and of law 2 over law 1, with what decided them.

    A tester of which one order of the samples tests the claim in both is asked once, with what both
    orders may spend.

    Args:
      tester: of the claim.
      samples: of law 1 and of law 2.
      failure_probability: of both directions together, in (0, 1).
      names: of the directions.
    """
    shares = shares_of_directions(tester, failure_probability)
    return tuple(
        DirectionReport(name, call_user_code("tester", tester.audit, *ordered, share))
        for name, ordered, share in zip(names, (samples, samples[::-1]), shares, strict=False)
    )


def estimate_both_directions(
    tester: PropertyTester, samples: Samples, failure_probability: float
) -> tuple[tuple[float, float], tuple[bool, bool]]:
    """Returns the bounds of law 1 over law 2 and of law 2 over law 1, NaN allowed, and whether each
    refutes the claim.

    A NaN refutes nothing here: whether it is an answer is the caller's to judge.

    Args:
      tester: ours or DP-Auditorium's.
      samples: of law 1 and of law 2.
      failure_probability: of both bounds together, in (0, 1).
    """
    first, second = map(
        as_number, in_both_directions(tester.estimate_lower_bound, *samples, failure_probability)
    )
    return (first, second), (_refutes(tester, first), _refutes(tester, second))


def _refutes(tester: PropertyTester, bound: float) -> bool:
    if math.isnan(bound):
        return False
    return check_verdict(call_user_code("tester", tester.reject_property, bound))
