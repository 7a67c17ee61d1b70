"""Labels as DP-Auditorium's classification generator makes them: whole numbers in a float array."""

from __future__ import annotations

import numpy as np
import pytest

from dvrenyi_plugin._internal.validation import check_labels
from dvrenyi_plugin.mechanisms.dp_sgd.config import check_training_dataset

FEATURES = np.zeros((3, 2))


def test_whole_numbers_in_floats_are_labels() -> None:
    features, labels = check_training_dataset((FEATURES, np.array([0.0, 2.0, 1.0])), (2,), 3)
    assert features.dtype == np.float32 and labels.dtype == np.int64
    np.testing.assert_array_equal(labels, [0, 2, 1])


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 1 + 0j, "1"])
def test_other_labels_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="labels must be integers"):
        check_training_dataset((FEATURES, np.array([0, 1, value])), (2,), 3)


def test_whole_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must lie in 0\.\.2, got 1 outside"):
        check_training_dataset((FEATURES, np.array([0.0, 3.0, 1.0])), (2,), 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 0.5, 1.0], "1 that are not whole numbers, the first 0.5 at index 1"),
        ([0.0, 1.0, np.nan], "not whole numbers, the first nan at index 2"),
        ([0, 1, 3], r"must lie in 0\.\.2, got 1 outside, the first 3 at index 2"),
        ([0, 2**64 - 1, 1], r"must lie in 0\.\.2, got 1 outside"),
        ([1e300, 0.0, 1.0], r"must lie in 0\.\.2, got 1 outside, the first 1e\+300"),
        ([[0, 1, 2]], r"shape \(3,\), one for each record, got shape \(1, 3\)"),
        (["0", "1", "2"], "must be integers, got dtype"),
        ([True, False, True], "must be integers, got dtype bool"),
    ],
)
def test_f4_labels_that_are_none(labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"labels {message}|labels must .*{message}"):
        check_labels("labels", np.array(labels), 3, 3)


def test_f4_a_column_of_labels_is_taken() -> None:
    labels = np.array([[0.0], [2.0], [1.0]])
    found = check_training_dataset((FEATURES, labels), (2,), 3)[1]
    np.testing.assert_array_equal(found, [0, 2, 1])
