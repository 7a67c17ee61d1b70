"""Both directions of two neighbouring datasets, each tested at half of the failure probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import call_user_code
from dvrenyi_plugin._internal.validation import check_failure_probability

_Answer = TypeVar("_Answer")


def shares_of_directions(tester: Any, failure_probability: float) -> tuple[float, ...]:
    """Returns what each direction in which a tester tests its claim may spend.

    Both directions have an even share, but for a tester of which one order of the samples tests the
    claim in both (`BoundTester.one_order_tests_both`): it is asked once, with what both may spend.

    Args:
      tester: ours or the user's.
      failure_probability: of both directions together (union bound), in (0, 1).
    """
    whole = check_failure_probability(failure_probability)
    return (whole,) if getattr(tester, "one_order_tests_both", False) else (whole / 2, whole / 2)


def in_both_directions(
    ask: Callable[[Any, Any, float], _Answer],
    samples1: NDArray[Any],
    samples2: NDArray[Any],
    failure_probability: float,
) -> tuple[_Answer, _Answer]:
    """Returns what a tester says of law 1 over law 2, then of law 2 over law 1.

    Args:
      ask: a tester's `audit` or `estimate_lower_bound`; it gets copies of the samples.
      samples1: shape (n,) or (n, d).
      samples2: shape (m,) or (m, d).
      failure_probability: of both directions together, in (0, 1); each gets half.
    """
    share = check_failure_probability(failure_probability) / 2
    return (
        call_user_code("tester", ask, samples1, samples2, share),
        call_user_code("tester", ask, samples2, samples1, share),
    )
