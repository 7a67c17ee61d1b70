"""Labels as DP-Auditorium's classification generator makes them: whole numbers in a float array."""

from __future__ import annotations

import numpy as np
import pytest

from dvrenyi_plugin.mechanisms.dp_sgd_config import check_training_dataset

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
