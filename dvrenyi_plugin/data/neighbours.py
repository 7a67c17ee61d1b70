"""The pair of neighbouring datasets (D, D + canaries), and the check that it is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import check_int
from dvrenyi_plugin.data.labelled import Records
from dvrenyi_plugin.interfaces import NeighboringDatasets


def add_canary(
    records: Records,
    canary_features: NDArray[np.float32],
    canary_label: int,
    num_canaries: int = 1,
) -> NeighboringDatasets[Records]:
    """Returns the neighbours (D, D + copies of the canary), the canary last.

    Args:
      records: features, shape (n, ...), and labels, shape (n,). Not changed.
      canary_features: shape of one record.
      canary_label: class of the canary.
      num_canaries: copies of it, >= 1. With more than one the claim under test must be one for
        groups.

    Raises:
      ValueError: the canary does not have a record's shape.
    """
    features, labels = records
    if canary_features.shape != features.shape[1:]:
        raise ValueError(
            f"canary_features must have a record's shape {features.shape[1:]}, got"
            f" {canary_features.shape}"
        )
    copies = check_int("num_canaries", num_canaries, at_least=1)
    extra = np.repeat(canary_features[np.newaxis].astype(features.dtype), copies, axis=0)
    with_canary = (
        np.concatenate([features, extra]),
        np.concatenate([labels, np.full(copies, canary_label, dtype=labels.dtype)]),
    )
    pair = (records, with_canary)
    check_neighbours(*pair, num_canaries=copies)
    return pair


def check_neighbours(without: Records, with_canary: Records, *, num_canaries: int = 1) -> None:
    """Raises unless the second dataset is the first one plus exactly `num_canaries` records at its
    end.

    Two datasets that differ in more than that are not neighbours, and a bound between their output
    laws
    would say nothing about the claim: it must fail here and not show up as a refuted claim.

    Raises:
      ValueError: the lengths do not differ by one, or the common part is not equal bit for bit.
    """
    for name, (features, labels) in (("without", without), ("with_canary", with_canary)):
        if len(features) != len(labels):
            raise ValueError(
                f"{name} must have one label per record, got {len(features)} records and"
                f" {len(labels)} labels"
            )
    num_records = len(without[1])
    if len(with_canary[1]) != num_records + num_canaries:
        count = "one record" if num_canaries == 1 else f"{num_canaries} records"
        raise ValueError(
            f"with_canary must have exactly {count} more than without, got"
            f" {len(with_canary[1])} and {num_records} records"
        )
    for part, first, second in (
        ("features", without[0], with_canary[0]),
        ("labels", without[1], with_canary[1]),
    ):
        if first.dtype != second.dtype or first.shape[1:] != second.shape[1:]:
            raise ValueError(
                f"{part} of both datasets must have one dtype and record shape, got {first.dtype}"
                f" {first.shape} and {second.dtype} {second.shape}"
            )
        different = [
            index
            for index in range(num_records)
            if first[index].tobytes() != second[index].tobytes()
        ]
        if different:
            raise ValueError(
                "with_canary must begin with the records of without, bit for bit:"
                f" {part} differ in {len(different)} records, the first at index {different[0]}"
            )
