"""A few extreme calls of every public function of these rooms; benchmarks/fuzz_public_functions.py makes many more."""

from __future__ import annotations

import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
from fuzz_calls import run_case
from fuzz_rooms import ROOMS

from dvrenyi_plugin.bounds.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.bounds.limit import closest_null, gaussian_pair
from dvrenyi_plugin.conversions import dp_sgd_renyi, gaussian_dp_epsilon

SEED, CASES = 5, 4
TESTED = ("numbers", "mechanisms", "testers")


@pytest.mark.parametrize(
    "room", [room for room in ROOMS if room.name in TESTED], ids=lambda r: r.name
)
def test_f7_every_public_function_answers_or_refuses(room):
    failures = []
    for subject in room.subjects():
        for case in range(CASES):
            # A function whose parameters have no examples raises here: add them, or leave it out with a reason.
            failure = run_case(subject, case, SEED, room.all_examples, room.sizes, 60.0)
            failures += [] if failure is None else [failure.line(SEED)]
    assert not failures, "\n".join(failures)


def test_f7_values_at_the_edge_of_floats():
    assert gaussian_dp_epsilon(1e50, 1.0 - 1e-12) == pytest.approx(5e99)
    assert dp_sgd_renyi(2.0, 10, 1e-310) == math.inf
    pair = gaussian_pair(1.0)
    assert closest_null(pair, 1.001, 5e-324).rate == closest_null(pair, 1.001, 0.0).rate > 0.2
    assert closest_null(pair, 1.001, 1e-30).rate == pytest.approx(
        closest_null(pair, 1.001, 0.0).rate
    )
    with pytest.raises(ValueError, match="critic_q must hold"):
        donsker_varadhan_value(["x"], [1.0], 2.0)
    assert donsker_varadhan_value([0.0, 0.0], [0.0], 2.0) == 0.0
