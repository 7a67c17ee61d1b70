"""How two datasets of any kind differ: neighbours differ in one record."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import user_array

ADDED, REPLACED, NOT_COMPARED = "one record added", "one record replaced", "not compared"
_Parts = list[NDArray[Any]]


def compare_pair(without: Any, with_canary: Any) -> str:
    """Returns how the second dataset differs from the first: `ADDED` (it has one record more),
    `REPLACED` (one record is another), or `NOT_COMPARED` for datasets whose records are not known.

    Records are compared bit for bit, in their order. What is a record:

    - an array, a tensor or a data frame has one in each row,
    - a tuple or a dict of them has one in the same rows of all (features and labels),
    - a list has one in each entry.

    Two datasets that differ in more are no neighbours, and a bound between their output laws would
    say nothing about a claim: that must fail here and not show up as a refuted claim.

    Raises:
      ValueError: they are equal, differ in more than one record, or the first has more records.
    """
    first, second = _parts(without), _parts(with_canary)
    if first is None or second is None:
        return NOT_COMPARED
    kinds = [[(part.dtype, part.shape[1:]) for part in parts] for parts in (first, second)]
    if kinds[0] != kinds[1]:
        shown = ["; ".join(f"{kind} {shape}" for kind, shape in one) for one in kinds]
        raise ValueError(
            f"pair must have records of one kind in both datasets, got {shown[0]} and {shown[1]}"
        )
    num_first, num_second = len(first[0]), len(second[0])
    if num_second == num_first + 1:
        canary = next((i for i in range(num_first) if not _same(first, second, i, i)), num_first)
        moved = range(canary, num_first)
        others = sum(not _same(first, second, i, i + 1) for i in moved)
        if others == 0:
            return ADDED
        raise ValueError(
            "pair must differ in one record, in the same order, got a second dataset with one more"
            f" in which {others} of the others differ"
        )
    if num_second != num_first:
        raise ValueError(
            "pair must be (D, D with the canary), the second with one record more or with one"
            f" replaced, got {num_first} and {num_second} records"
        )
    different = sum(not _same(first, second, i, i) for i in range(num_first))
    if different == 1:
        return REPLACED
    raise ValueError(f"pair must differ in one record, got {different} of {num_first} that differ")


def _parts(dataset: Any) -> _Parts | None:
    """Returns arrays with a row per record each; None for what has no such rows."""
    if isinstance(dataset, (tuple, dict)):
        given = list(dataset.values()) if isinstance(dataset, dict) else list(dataset)
        parts = [_rows(part) for part in given]
    else:
        parts = [_rows(dataset)]
    arrays = [part for part in parts if part is not None]
    if not arrays or len(arrays) < len(parts) or len({len(part) for part in arrays}) != 1:
        return None
    return arrays


def _rows(value: Any) -> NDArray[Any] | None:
    if isinstance(value, list):
        rows = np.empty(len(value), dtype=object)
        rows[:] = value
        return rows
    if not hasattr(value, "__array__") or isinstance(value, np.generic):
        return None
    try:
        array = user_array("dataset", value)
    except ValueError:
        return None
    return array if array.ndim > 0 else None


def _same(first: _Parts, second: _Parts, i: int, j: int) -> bool:
    return all(_same_row(a[i], b[j]) for a, b in zip(first, second, strict=True))


def _same_row(a: Any, b: Any) -> bool:
    if isinstance(a, (np.ndarray, np.generic)) and not a.dtype.hasobject:
        return a.tobytes() == np.asarray(b).tobytes()
    try:
        if pickle.dumps(a) == pickle.dumps(b):
            return True
        # Equal objects may be pickled in several ways.
        return bool(np.all(a == b))
    except Exception:  # whatever the object's own methods raise
        return a is b
