"""The pair of neighbouring datasets (D, D + canary), and the check that it is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.audits.datasets import Records
from dvrenyi_plugin.interfaces import NeighboringDatasets


def add_canary(
    records: Records, canary_features: NDArray[np.float32], canary_label: int
) -> NeighboringDatasets[Records]:
    """Returns the neighbours (D, D + canary), the canary last.

    Args:
      records: features, shape (n, ...), and labels, shape (n,). Not changed.
      canary_features: shape of one record.
      canary_label: class of the canary.

    Raises:
      ValueError: the canary does not have a record's shape.
    """
    features, labels = records
    if canary_features.shape != features.shape[1:]:
        raise ValueError(
            f"canary_features must have a record's shape {features.shape[1:]}, got"
            f" {canary_features.shape}"
        )
    with_canary = (
        np.concatenate([features, canary_features[np.newaxis].astype(features.dtype)]),
        np.concatenate([labels, np.array([canary_label], dtype=labels.dtype)]),
    )
    pair = (records, with_canary)
    check_neighbours(*pair)
    return pair


def check_neighbours(without: Records, with_canary: Records) -> None:
    """Raises unless the second dataset is the first one plus exactly one record at its end.

    Two datasets that differ in more than that are not neighbours, and a bound between their output laws
    would say nothing about the claim: it must fail here and not show up as a refuted claim.

    Raises:
      ValueError: the lengths do not differ by one, or the common part is not equal bit for bit.
    """
    for name, (features, labels) in (("without", without), ("with_canary", with_canary)):
        if len(features) != len(labels):
            raise ValueError(
                f"{name} must have one label a record, got {len(features)} records and"
                f" {len(labels)} labels"
            )
    num_records = len(without[1])
    if len(with_canary[1]) != num_records + 1:
        raise ValueError(
            "with_canary must have exactly one record more than without, got"
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
