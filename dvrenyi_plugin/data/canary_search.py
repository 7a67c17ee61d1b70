"""Which canary moves a training the most, found without the private data and without an audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_callable, check_int, check_seed
from dvrenyi_plugin.data.made_pairs import MADE_CANARIES, make_pair
from dvrenyi_plugin.generators.records import check_records


@dataclasses.dataclass(frozen=True)
class CanarySuggestion:
    """A candidate and what it does.

    Attributes:
      name: how it was made, with its label.
      canary: what `audit_training(canary=...)` takes: features, or (features, label).
      shift: Euclidean norm of the change of its own observation when it is trained on.
    """

    name: str
    canary: Any = dataclasses.field(repr=False)
    shift: float


def suggest_canaries(
    train: Callable[[Any, int], Any],
    observe: Callable[[Any, Any], Any],
    dataset: Any,
    *,
    candidates: Sequence[Any] = (),
    most_labels: int = 3,
    seed: int = 0,
) -> tuple[CanarySuggestion, ...]:
    """Returns candidates for a canary, those first that shift their own observation most.

    Two trainings a candidate, with and without it, at one seed. Give a training whose noise is
    switched off, and public records of the same kind in place of the private ones: a canary chosen
    like this costs an audit nothing of its failure probability, which one chosen on the audited
    models would.

    Args:
      train: called as train(dataset, seed), as in `audit_training`, here best without noise.
      observe: called as observe(model, canary), gives a number or a vector.
      dataset: features, shape (n, ...), or (features, labels).
      candidates: records of one's own, which come beside the made ones: blank, mislabelled, and one
        of uniform noise between the smallest and the largest feature.
      most_labels: with how many of the rarest labels a record of classes is tried, >= 1.
      seed: that both trainings get, and of the noise, >= 0.

    Raises:
      ValueError: see `make_pair`; or observations that are no finite numbers.
      Exception: what `train` or `observe` raised, with a note that says which.
    """
    check_callable("train", train)
    check_callable("observe", observe)
    check_int("most_labels", most_labels, at_least=1)
    check_seed(seed)
    own = check_records("candidates", candidates) if len(candidates) else ()
    labels = np.asarray(dataset[1]) if isinstance(dataset, tuple) else None
    made: list[tuple[str, Any]] = [(name, name) for name in MADE_CANARIES if labels is not None]
    made = made or [("blank", "blank")]
    made += [("random", _noise(dataset, seed))]
    made += [(f"candidate {number}", record) for number, record in enumerate(own)]
    found = []
    for name, canary in made:
        tried = (None,) if isinstance(canary, tuple) else _rarest(labels, most_labels)
        for label in tried:
            try:
                pair = make_pair(dataset, canary, label)
            except ValueError:
                if canary == "mislabelled" and label is not None:
                    continue  # the record's own label
                raise
            shift = _shift(train, observe, (pair.without, pair.with_canary), pair.canary, seed)
            found.append(CanarySuggestion(_title(name, label), pair.canary, shift))
    return tuple(sorted(found, key=lambda one: -one.shift))


def _shift(train: Any, observe: Any, pair: tuple[Any, Any], canary: Any, seed: int) -> float:
    seen = []
    for dataset in pair:
        model = call_user_code("train", train, dataset, seed)
        seen.append(user_numbers("observe", call_user_code("observe", observe, model, canary)))
    if seen[0].shape != seen[1].shape:
        raise ValueError(
            "observe must always give the same number of values, got shapes"
            f" {seen[0].shape} and {seen[1].shape}"
        )
    return float(np.linalg.norm(np.ravel(seen[1] - seen[0])))


def _rarest(labels: NDArray[Any] | None, most: int) -> tuple[Any, ...]:
    """Returns the rarest classes; None, for the default, where labels are no classes."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind == "f":
        return (None,)
    values, counts = np.unique(labels, return_counts=True)
    return tuple(values[np.argsort(counts, kind="stable")][:most])


def _noise(dataset: Any, seed: int) -> NDArray[Any]:
    features = np.asarray(dataset[0] if isinstance(dataset, tuple) else dataset)
    rng = np.random.default_rng(seed)
    noise = rng.uniform(features.min(), features.max(), features.shape[1:])
    return noise.astype(features.dtype)


def _title(name: str, label: Any) -> str:
    return name if label is None else f"{name}, label {label}"
