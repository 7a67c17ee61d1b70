"""Both directions: which law comes first in each, and what each spends."""

import numpy as np
import pytest

from dvrenyi_plugin.testers.both_directions import (
    in_both_directions,
    shares_of_directions,
)


def test_each_direction_gets_its_samples_and_its_share():
    asked = []

    def ask(samples1, samples2, failure_probability):
        asked.append((samples1.tolist(), samples2.tolist(), failure_probability))
        samples1 += 1.0  # a copy: the caller's samples stay
        return len(asked)

    first, second = np.zeros(2), np.ones(3)
    assert in_both_directions(ask, first, second, 0.02) == (1, 2)
    assert asked == [([0.0] * 2, [1.0] * 3, 0.01), ([1.0] * 3, [0.0] * 2, 0.01)]
    assert first.tolist() == [0.0, 0.0]


def test_a_tester_of_one_order_spends_what_both_would():
    class OneOrder:
        one_order_tests_both = True

    assert shares_of_directions(object(), 0.05) == (0.025, 0.025)
    assert shares_of_directions(OneOrder(), 0.05) == (0.05,)
    with pytest.raises(ValueError, match="failure_probability"):
        shares_of_directions(object(), 1.0)
