"""Pairs that are compared, pairs that are made, and canaries that are suggested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dvrenyi_plugin.data.canary_search import suggest_canaries
from dvrenyi_plugin.data.compared_pairs import ADDED, NOT_COMPARED, REPLACED, compare_pair
from dvrenyi_plugin.data.made_pairs import make_pair

X = np.arange(8.0).reshape(4, 2)
Y = np.array([0, 0, 0, 1])
RECORD = np.array([9.0, 9.0])


def grown(array: Any, row: Any, at: int = -1) -> Any:
    at = len(array) if at < 0 else at
    return np.concatenate([array[:at], [row], array[at:]]).astype(array.dtype)


@pytest.mark.parametrize("at", [-1, 0, 2])
@pytest.mark.parametrize(
    "kind",
    [
        lambda x, y: x,
        lambda x, y: (x, y),
        lambda x, y: {"features": x, "labels": y},
        lambda x, y: list(map(tuple, x)),
        lambda x, y: torch.tensor(x),
        lambda x, y: x.astype(object),
    ],
)
def test_a_record_more_at_any_place_is_a_neighbour(kind: Any, at: int) -> None:
    second = grown(X, RECORD, at), grown(Y, 1, at)
    assert compare_pair(kind(X, Y), kind(*second)) == ADDED


def test_a_replaced_record_is_a_neighbour_of_another_kind() -> None:
    other = X.copy()
    other[1] = RECORD
    assert compare_pair((X, Y), (other, Y)) == REPLACED


def test_what_has_no_known_records_is_not_compared() -> None:
    assert compare_pair(object(), object()) == NOT_COMPARED
    assert compare_pair(3.0, 4.0) == NOT_COMPARED
    assert compare_pair((X, Y[:2]), (X, Y[:2])) == NOT_COMPARED
    assert compare_pair(np.float64(3.0), np.float64(4.0)) == NOT_COMPARED


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (X, X.copy(), "got 0 of 4 that differ"),
        (X, X + 1.0, "got 4 of 4 that differ"),
        (X, grown(X + 1.0, RECORD), "got a second dataset with one more in which"),
        (X, X[::-1], "got 4 of 4 that differ"),
        (X, X[:3], "got 4 and 3 records"),
        (X, X.astype(np.float32), "float64 .* and float32"),
        ((X, Y), (grown(X, RECORD), grown(1 - Y, 0)), "with one more in which"),
    ],
)
def test_what_is_no_neighbour_is_refused(first: Any, second: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_pair(first, second)


def test_a_blank_canary_has_the_rarest_label() -> None:
    made = make_pair((X, Y), "blank")
    np.testing.assert_array_equal(made.canary[0], [0.0, 0.0])
    assert made.canary[1] == 1 and made.name == "blank"
    assert compare_pair(made.without, made.with_canary) == ADDED
    np.testing.assert_array_equal(made.with_canary[0][-1], [0.0, 0.0])
    assert make_pair((X, Y), "blank", 0).canary[1] == 0
    np.testing.assert_array_equal(make_pair(X, "blank").with_canary[-1], [0.0, 0.0])


def test_a_mislabelled_canary_is_the_last_record_under_another_label() -> None:
    made = make_pair((X, Y), "mislabelled")
    assert len(made.without[0]) == 3 and len(made.with_canary[0]) == 4
    np.testing.assert_array_equal(made.canary[0], X[-1])
    assert made.canary[1] == 0
    values = np.array([0.0, 1.0, 9.0, 2.0])
    assert make_pair((X, values), "mislabelled").canary[1] == 9.0
    names = np.array(["cat", "dog", "cat", "cat"])
    assert make_pair((X, names), "mislabelled").canary[1] == "dog"


def test_a_record_of_ones_own_is_taken_as_it_is() -> None:
    for canary, label in ((RECORD, None), ((RECORD, 0), None), (RECORD, 0)):
        made = make_pair((X, Y), canary, label)
        np.testing.assert_array_equal(made.with_canary[0][-1], RECORD)
        assert made.canary[1] == (1 if canary is RECORD and label is None else 0)
    assert make_pair((X, Y), torch.tensor(RECORD)).name == "given"


def test_nothing_given_is_changed_or_shared() -> None:
    features = X.copy()
    made = make_pair((features, Y), "blank")
    made.without[0][:] = -1.0
    np.testing.assert_array_equal(features, X)


@pytest.mark.parametrize(
    ("dataset", "canary", "label", "message"),
    [
        ((X, Y), "loud", None, "canary must be one of"),
        (X, "mislabelled", None, "needs a dataset"),
        (X, "blank", 1, "canary_label must be left out"),
        ((X, Y), "mislabelled", 1, "must be a wrong label"),
        ((X, np.zeros(4, int)), "mislabelled", None, "two classes"),
        ((X, Y), np.zeros(3), None, "a record must have shape"),
        ((X, Y), (RECORD, 1, 2), None, "got a tuple of 3"),
        ((X[:1], Y[:1]), "blank", None, "at least 2 records"),
        ((X, Y, Y), "blank", None, "got 3 arrays"),
    ],
)
def test_canaries_that_do_not_fit_are_refused(
    dataset: Any, canary: Any, label: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_pair(dataset, canary, label)


@pytest.mark.parametrize(
    "kind",
    [
        {"features": X, "labels": Y},
        torch.utils.data.TensorDataset(torch.ones(3, 2), torch.ones(3)),
        "text",
    ],
)
def test_what_is_no_array_is_refused_by_its_kind(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"got {type(kind).__name__}; of other kinds give a pair"):
        make_pair(kind, "blank")


@pytest.mark.parametrize("canary", ["blank", "mislabelled", RECORD, (torch.tensor([9.0, 9.0]), 1)])
def test_tensors_give_pairs_and_canaries_of_tensors_of_the_same_dtype(canary: Any) -> None:
    data = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
    made = make_pair(data, canary)
    for features, labels in (made.without, made.with_canary, made.canary):
        assert features.dtype is torch.float32
        assert labels.dtype is torch.int64
    assert torch.equal(made.with_canary[0][-1], made.canary[0])
    assert torch.equal(data[0], torch.tensor(X, dtype=torch.float32))


def test_a_canary_is_seen_in_the_datasets_dtype() -> None:
    made = make_pair((X.astype(np.float32), Y), ([0.1, 0.2], 1))
    assert made.canary[0].dtype == np.float32


def mean_of_class_1(dataset: Any, seed: int) -> Any:
    features, labels = dataset
    return features[labels == 1].mean(axis=0)


def test_candidates_are_ranked_by_the_shift_of_their_own_observation() -> None:
    labels = np.array([0, 0, 1, 1])  # the mean of class 1 is (5, 6)
    far = np.array([100.0, 100.0]), 1

    def observe(model: Any, canary: Any) -> Any:
        return model @ np.ones(2)

    found = suggest_canaries(mean_of_class_1, observe, (X, labels), candidates=[far])
    shifts = {one.name: one.shift for one in found}
    # A third record moves the mean by a third of its distance, here from a sum of 11 to 200 or 0.
    assert found[0].name == "candidate 0" and found[0].shift == pytest.approx(63.0)
    assert shifts["blank, label 1"] == pytest.approx(11.0 / 3.0)
    assert shifts["blank, label 0"] == shifts["mislabelled, label 0"] == 0.0
    assert list(shifts.values()) == sorted(shifts.values(), reverse=True)
    assert "array" not in repr(found)


def test_a_search_trains_torch_models_on_tensors() -> None:
    def train(dataset: Any, seed: int) -> torch.nn.Module:
        model = torch.nn.Linear(2, 1)
        with torch.no_grad():
            model.weight[:] = dataset[0].sum(dim=0)
        return model

    def observe(model: torch.nn.Module, canary: Any) -> torch.Tensor:
        return model.weight.sum()

    data = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
    found = suggest_canaries(train, observe, data)
    assert len(found) > 3 and found[0].shift > 0.0
    assert isinstance(found[0].canary[0], torch.Tensor)


def test_a_search_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="observe must give finite numbers"):
        suggest_canaries(mean_of_class_1, lambda model, canary: np.nan, (X, Y))
    with pytest.raises(ValueError, match="train must be callable"):
        suggest_canaries(None, None, (X, Y))  # type: ignore[arg-type]
