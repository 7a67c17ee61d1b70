"""Datasets record by record: an array of records, or a tuple of arrays with a row per
record each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import check_int, check_many

Array = NDArray[Any]


def map_arrays(function: Any, dataset: Any) -> Any:
    """Returns a dataset with a function applied to each of its arrays."""
    if isinstance(dataset, tuple):
        return tuple(function(np.asarray(part)) for part in dataset)
    return function(np.asarray(dataset))


def _parts(dataset: Any, record: Any) -> list[tuple[Array, Array]]:
    """Returns (array, its new row) for every array of a dataset: one, or features and labels."""
    if isinstance(dataset, tuple):
        if not isinstance(record, tuple) or len(record) != len(dataset):
            raise ValueError(
                f"a record of a dataset of {len(dataset)} arrays must be a tuple of {len(dataset)},"
                f" got {record!r}"
            )
        pairs = list(zip(map(np.asarray, dataset), map(np.asarray, record), strict=True))
    else:
        pairs = [(np.asarray(dataset), np.asarray(record))]
    for array, row in pairs:
        if array.ndim == 0:
            raise ValueError(f"dataset must hold arrays of records, got {array!r}")
        if row.shape != array.shape[1:]:
            raise ValueError(f"a record must have shape {array.shape[1:]}, got shape {row.shape}")
        # A float64 canary may be rounded to float32, but no entry may wrap around, lose its
        # fraction or become infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                held = row.astype(array.dtype)
            except (TypeError, ValueError) as error:  # text in an array of numbers
                raise ValueError(
                    f"a record must hold values of the dataset's dtype {array.dtype}, got {row!r}"
                ) from error
        if array.dtype.kind == "f" and row.dtype.kind == "f":
            is_held = np.array_equal(np.isfinite(held), np.isfinite(row))
        else:
            is_held = np.array_equal(held, row)
        if not is_held:
            raise ValueError(
                f"a record must hold values of the dataset's dtype {array.dtype}, got {row!r}"
            )
    return pairs


def append_record(dataset: Any, record: Any) -> Any:
    """Returns a new dataset with one record more, at its end."""
    grown = [
        np.concatenate([array, row[np.newaxis].astype(array.dtype)])
        for array, row in _parts(dataset, record)
    ]
    return tuple(grown) if isinstance(dataset, tuple) else grown[0]


def replace_record(dataset: Any, index: int, record: Any) -> Any:
    """Returns a new dataset with another record in the place of one of its own."""
    changed = []
    for array, row in _parts(dataset, record):
        copy = array.copy()
        copy[index] = row
        changed.append(copy)
    return tuple(changed) if isinstance(dataset, tuple) else changed[0]


def check_records(name: str, records: Any) -> tuple[Any, ...]:
    """Returns records as a tuple; raises ValueError where there is none."""
    found = check_many(name, records, "records")
    if not found:
        raise ValueError(f"{name} must hold at least one record, got none")
    return found


def num_records(dataset: Any) -> int:
    """Returns how many records a dataset has, the same in each of its arrays."""
    shapes = [np.shape(part) for part in (dataset if isinstance(dataset, tuple) else (dataset,))]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(
            "dataset must be an array of records, or a tuple of arrays with as many rows each, got"
            f" shapes {', '.join(map(str, shapes)) or 'none'}"
        )
    return int(shapes[0][0])


def check_indices(dataset: Any, indices: Sequence[int] | None) -> list[int]:
    """Returns numbers of records; those of all where None is given."""
    count = num_records(dataset)
    check_int("number of records", count, at_least=1)
    if indices is None:
        return list(range(count))
    return [
        check_int("indices", index, at_least=0, at_most=count - 1)
        for index in check_records("indices", indices)
    ]
