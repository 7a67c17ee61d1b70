"""The pair of neighbouring datasets: one record more, compared bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvrenyi_plugin.data.neighbours import add_canary, check_neighbours


def small_records(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 1, 3, 3), dtype=np.float32), rng.integers(0, 10, n)


def test_neighbours_are_the_records_plus_one():
    records = small_records()
    canary = np.zeros((1, 3, 3), dtype=np.float32)
    without, with_canary = add_canary(records, canary, 7)
    assert len(with_canary[1]) == len(without[1]) + 1
    assert with_canary[0][:-1].tobytes() == without[0].tobytes()
    np.testing.assert_array_equal(with_canary[0][-1], canary)
    assert with_canary[1][-1] == 7
    with pytest.raises(ValueError, match="must have a record's shape"):
        add_canary(records, np.zeros(9, dtype=np.float32), 7)


def test_slicing_off_by_one_is_no_pair_of_neighbours():
    features, labels = small_records(8)
    canary_features = np.zeros((1, 1, 3, 3), dtype=np.float32)
    replaced = np.concatenate([features[1:7], canary_features]), np.append(labels[1:7], 3)
    with pytest.raises(ValueError, match=r"bit for bit: features differ in 6 records, .* index 0"):
        check_neighbours((features[:6], labels[:6]), replaced)
    two_more = np.concatenate([features, canary_features]), np.append(labels, 3)
    with pytest.raises(ValueError, match="exactly one record more than without, got 9 and 7"):
        check_neighbours((features[:7], labels[:7]), two_more)
    with pytest.raises(ValueError, match="got 8 and 8"):
        check_neighbours((features, labels), (features, labels))


def test_neighbours_are_compared_bit_for_bit():
    features, labels = small_records()
    without, with_canary = add_canary((features, labels), np.zeros((1, 3, 3), np.float32), 0)
    altered = with_canary[0].copy()
    altered[2, 0, 1, 1] = np.nextafter(altered[2, 0, 1, 1], np.float32(2))
    with pytest.raises(ValueError, match="features differ in 1 records, the first at index 2"):
        check_neighbours(without, (altered, with_canary[1]))
    relabelled = with_canary[1].copy()
    relabelled[4] += 1
    with pytest.raises(ValueError, match="labels differ in 1 records, the first at index 4"):
        check_neighbours(without, (with_canary[0], relabelled))
    with pytest.raises(ValueError, match="one dtype"):
        check_neighbours(without, (with_canary[0].astype(np.float64), with_canary[1]))
    with pytest.raises(ValueError, match="one label per record"):
        check_neighbours((features, labels[:-1]), with_canary)


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 53), bit=st.integers(0, 31))
def test_any_flipped_bit_is_noticed(index, bit):
    without, with_canary = add_canary(small_records(), np.zeros((1, 3, 3), np.float32), 0)
    altered = with_canary[0].copy()
    altered.reshape(-1).view(np.uint32)[index] ^= np.uint32(1) << np.uint32(bit)
    with pytest.raises(ValueError, match="bit for bit"):
        check_neighbours(without, (altered, with_canary[1]))
