"""The guard around code that a user gives."""

import decimal
import pickle
import threading

import numpy as np
import pytest
import torch

from dvrenyi_plugin._internal.user_code import (
    call_user_code,
    notes_of,
    own_copy,
    user_array,
    user_numbers,
)


class _Holder:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def test_e1_what_goes_in_can_be_changed_without_being_seen_outside() -> None:
    array, tensor = np.arange(3.0), torch.ones(2, requires_grad=True)
    dataset = (array, [array], {"x": array}, tensor, _Holder(array))

    def change(given):
        first, in_list, in_dict, given_tensor, holder = given
        for part in (first, in_list[0], in_dict["x"], holder.array):
            part -= 1.0
        in_list.append(1)
        with torch.no_grad():
            given_tensor.mul_(3.0)

    call_user_code("train", change, dataset)
    assert np.array_equal(array, np.arange(3.0))
    assert len(dataset[1]) == 1
    assert torch.equal(tensor.detach(), torch.ones(2))


def test_what_cannot_be_copied_is_handed_over_as_it_is() -> None:
    lock = threading.Lock()
    assert own_copy(lock) is lock
    assert own_copy((lock,))[0] is lock


def test_a_module_is_copied_and_is_no_tensor() -> None:
    module = torch.nn.Linear(2, 1)
    copied = own_copy(module)
    assert copied is not module
    assert torch.equal(copied.weight, module.weight)


def test_a_tensor_inside_a_graph_is_copied_too() -> None:
    inside = torch.ones(2, requires_grad=True) * 2.0
    copied = own_copy(inside)
    assert copied.requires_grad
    assert torch.equal(copied.detach(), inside.detach())


def test_what_comes_out_is_its_own() -> None:
    buffer = np.zeros(3)
    first = user_numbers("loss", buffer, (3,))
    buffer += 1.0
    assert np.array_equal(first, np.zeros(3))


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(2.0, requires_grad=True),
        torch.tensor(2.0, dtype=torch.bfloat16),
        np.float32(2.0),
        decimal.Decimal(2),
        2,
    ],
)
def test_f13_numbers_of_many_kinds_are_taken(value) -> None:
    number = user_numbers("observe", value, ())
    assert number.dtype == np.float64
    assert float(number) == 2.0


def test_f13_tensors_with_a_gradient_in_a_list_are_detached() -> None:
    values = [torch.tensor(1.0, requires_grad=True), 2.0]
    assert np.array_equal(user_numbers("observe", values, ("k",)), [1.0, 2.0])


@pytest.mark.parametrize(
    "value",
    [None, "1.5", 1 + 2j, [1, [2]], [None, 1.0], {}, 10**400, np.ma.array([1, 2], mask=[0, 1])],
)
def test_what_is_no_number_is_refused_by_the_functions_name(value) -> None:
    with pytest.raises(ValueError, match="observe must give"):
        user_numbers("observe", value)


def test_a_wrong_shape_says_which_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"loss must give an array of shape \(3,\), got shape"):
        user_numbers("loss", np.zeros((3, 1)), (3,))
    with pytest.raises(ValueError, match=r"\(2, k\)"):
        user_numbers("mechanism", np.zeros((2, 0)), (2, "k"))


def test_what_is_not_finite_is_refused_or_kept_as_asked() -> None:
    with pytest.raises(ValueError, match="1 NaN or infinite of 2"):
        user_numbers("loss", [1.0, np.inf])
    assert np.isnan(user_numbers("loss", [1.0, np.nan], finite=False)[1])


def test_arrays_of_any_kind_are_copied() -> None:
    words = np.array(["a", "b"])
    copied = user_array("mechanism", words)
    words[0] = "c"
    assert copied.tolist() == ["a", "b"]


class _AwkwardError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} {second}")


def test_an_exception_keeps_its_type_and_says_whose_it_is() -> None:
    def fail(_):
        raise _AwkwardError(1, 2)

    with pytest.raises(_AwkwardError) as caught:
        call_user_code("mechanism", lambda: call_user_code("train", fail, 0))
    assert str(caught.value) == "1 2"
    assert notes_of(caught.value) == " (raised by train, raised by mechanism)"
    # What this package calls of its own is none of the user's business.
    with pytest.raises(_AwkwardError) as caught:
        call_user_code("mechanism", call_user_code, "train", fail, 0)
    assert notes_of(caught.value) == " (raised by train)"


def test_the_note_comes_back_from_other_processes() -> None:
    def fail():
        raise KeyError("a")

    with pytest.raises(KeyError) as caught:
        call_user_code("train", fail)
    assert notes_of(pickle.loads(pickle.dumps(caught.value))) == " (raised by train)"
    assert notes_of(ValueError("x")) == ""


def test_what_it_sets_of_numpys_error_handling_ends_with_it() -> None:
    before = np.geterr()
    call_user_code("train", lambda: np.seterr(all="raise"))
    assert np.geterr() == before
