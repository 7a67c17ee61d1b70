"""A pair of neighbouring datasets from one dataset of arrays and a canary that is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import is_tensor, user_array
from dvrenyi_plugin._internal.validation import check_choice
from dvrenyi_plugin.generators.records import append_record, map_arrays, num_records

MADE_CANARIES = ("blank", "mislabelled")
_Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class CanaryPair:
    """Two neighbouring datasets and the record in which they differ.

    Attributes:
      without: D, of the given kind: features, or (features, labels).
      with_canary: D and the canary, which comes last.
      canary: one record: its features, or (features, label).
      name: "blank", "mislabelled" or "given".
    """

    without: Any = dataclasses.field(repr=False)
    with_canary: Any = dataclasses.field(repr=False)
    canary: Any = dataclasses.field(repr=False)
    name: str


def make_pair(dataset: Any, canary: Any, label: Any = None) -> CanaryPair:
    """Returns the neighbours (D, D + canary) for a dataset of arrays. Nothing given is changed.

    Args:
      dataset: features, shape (n, ...), or a tuple (features, labels) with labels of shape (n,);
        arrays, or tensors, which the pair is then made of, too.
      canary: "blank", a record of zeros; "mislabelled", the last record, which is taken out of D
        and comes back under a wrong label; or a record of one's own: an array of the shape of one
        record's features, or a tuple (features, label).
      label: of the canary. None: of classes (whole numbers, text) the rarest that is not the
        record's own; of real numbers the one farthest from the record's own, or from the mean.

    Raises:
      ValueError: another name, another shape, a dataset without labels where one is needed, or a
        dataset of fewer than two records.
    """
    given, dataset = dataset, _arrays(dataset)
    count = num_records(dataset)
    if count < 2 or (isinstance(dataset, tuple) and len(dataset) != 2):
        raise ValueError(
            "dataset must be features or (features, labels), at least 2 records, got"
            f" {len(dataset) if isinstance(dataset, tuple) else 1} arrays of {count}"
        )
    labels = dataset[1] if isinstance(dataset, tuple) else None
    if labels is None and label is not None:
        raise ValueError(f"canary_label must be left out for data without labels, got {label!r}")
    features = dataset if labels is None else dataset[0]
    if not isinstance(canary, str):
        name, record = "given", _own_record(canary, label, labels)
    elif check_choice("canary", canary, MADE_CANARIES) == "blank":
        zeros = np.zeros(features.shape[1:], dtype=features.dtype)
        name, record = "blank", _labelled(zeros, label, labels, own=None)
    else:
        if labels is None:
            raise ValueError(
                "canary 'mislabelled' needs a dataset (features, labels), got no labels"
            )
        name, record = "mislabelled", _labelled(features[-1], label, labels[:-1], own=labels[-1])
        dataset = features[:-1], labels[:-1]
    grown = append_record(dataset, record)
    # The canary is seen as it is trained on, dtype included.
    canary = map_arrays(lambda array: array[-1], grown)
    without, with_canary, seen = (_like(given, made) for made in (dataset, grown, canary))
    return CanaryPair(without, with_canary, seen, name)


def _arrays(dataset: Any) -> Any:
    """Returns copies of the arrays of a dataset, tensors as arrays of their dtype."""

    def plain(part: Any) -> _Array:
        try:
            array = np.array(part.detach().cpu().numpy() if is_tensor(part) else part)
        except Exception:  # whatever the conversion of an object raises
            array = np.array(None)
        if array.ndim == 0 or array.dtype.hasobject:
            raise ValueError(
                "dataset must be arrays or tensors of numbers, features or a tuple (features,"
                f" labels), to make a canary for, got {type(part).__name__}; of other kinds give a"
                " pair of datasets"
            )
        return array

    return tuple(map(plain, dataset)) if isinstance(dataset, tuple) else plain(dataset)


def _like(given: Any, made: Any) -> Any:
    """Returns arrays as tensors where those given were."""
    if isinstance(given, tuple):
        return tuple(map(_like, given, made))
    return importlib.import_module("torch").as_tensor(made) if is_tensor(given) else made


def _own_record(canary: Any, label: Any, labels: _Array | None) -> Any:
    if isinstance(canary, tuple):
        if labels is None or len(canary) != 2 or label is not None:
            raise ValueError(
                "canary must be features, or (features, label) where the dataset has labels and"
                f" canary_label is not given, got a tuple of {len(canary)}"
            )
        canary, label = canary
    return _labelled(user_array("canary", canary), label, labels, own=None)


def _labelled(features: _Array, label: Any, labels: _Array | None, own: Any) -> Any:
    """Returns a record; a missing label is one that the data make unlikely."""
    if labels is None:
        return features
    if label is None:
        label = _unlikely_label(labels, own)
    elif own is not None and label == own:
        raise ValueError(f"canary_label must be a wrong label of the last record, got {label!r}")
    return features, np.asarray(label)


def _unlikely_label(labels: _Array, own: Any) -> Any:
    if labels.ndim != 1:
        raise ValueError(
            f"canary_label must be given for labels of shape {labels.shape[1:]}, got none"
        )
    if labels.dtype.kind == "f":
        return labels[np.argmax(np.abs(labels - (labels.mean() if own is None else own)))]
    values, counts = np.unique(labels, return_counts=True)
    if own is not None:
        values, counts = values[values != own], counts[values != own]
    if not values.size:
        raise ValueError("dataset must have two classes for a mislabelled canary, got one")
    return values[np.argmin(counts)]
