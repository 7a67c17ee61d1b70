"""The one guard around code that a user gives: copies go in, checked copies come out.

A function that changes its arguments in place, keeps them, or fills one buffer at every call then
changes nothing but its own. What cannot be copied (an open file, a lock) is handed over as it is,
and so is what a function reaches without its arguments: its closure, its globals, the attributes of
its own object.
"""

from __future__ import annotations

import copy
import decimal
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, range, np.generic)


def call_user_code(
    name: str, function: Callable[..., Any], *arguments: Any, copies: bool = True
) -> Any:
    """Returns function(*arguments), called with copies; what it returns is not copied yet, see
    `user_array`.

    Args:
      name: what the user calls it ("train", "loss"), for messages.
      function: the user's.
      *arguments: see `own_copy`.
      copies: False hands over the arguments themselves: for what nobody else will see.

    Raises:
      Exception: what the function raised, of its own type and with its own text, and with a note
        that names the function; see `notes_of`.
    """
    given = [own_copy(argument) for argument in arguments] if copies else arguments
    try:
        with np.errstate():  # what the function sets of numpy's error handling ends with it
            return function(*given)
    except SystemExit as error:
        # The user's function has no say in when this program ends, or with which status.
        ended = RuntimeError(f"sys.exit({error.code!r}) was called")
        _add_note(ended, f"raised by {name}")
        raise ended from error
    except Exception as error:
        # What this package raises from within says itself what it is about.
        if not str(getattr(function, "__module__", "")).startswith("dvrenyi_plugin."):
            _add_note(error, f"raised by {name}")
        raise


def own_copy(value: Any) -> Any:
    """Returns a copy that shares nothing that can be changed with `value`, as far as it can be
    copied.

    Arrays, tensors, and tuples, lists and dicts of them; other objects as copy.deepcopy does.
    Copies of read-only arrays can be written to; tensors leave the graph of the computation that
    made them.
    """
    if isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy()
    if type(value) in (tuple, list):
        return type(value)(own_copy(item) for item in value)
    if type(value) is dict:
        return {key: own_copy(item) for key, item in value.items()}
    if is_tensor(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    try:
        return copy.deepcopy(value)
    except Exception:  # deepcopy raises whatever the object's own methods do
        return value


def user_array(name: str, value: Any) -> NDArray[Any]:
    """Returns what a user's function gave as an array of its own, of any dtype and shape.

    Tensors are detached and brought to the CPU, also those in a list.

    Args:
      name: of the function, for messages.
      value: an array, a tensor, a number, or a sequence of them.

    Raises:
      ValueError: rows of different lengths, masked entries, or a thing that is no array.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must give no masked entries, got a masked array")
    try:
        return np.array(_without_graph(value))
    except Exception as error:  # whatever the object's conversion raises
        raise ValueError(
            f"{name} must give an array of numbers, got {_shown(value)}: {error}"
        ) from error


def user_numbers(
    name: str,
    value: Any,
    shape: tuple[int | str, ...] | None = None,
    *,
    finite: bool = True,
) -> NDArray[np.float64]:
    """Returns what a user's function gave as a float64 array of its own.

    Args:
      name: of the function, for messages.
      value: see `user_array`; numbers or booleans.
      shape: what is wanted; a letter stands for any length >= 1, for example (3, "k"). None: any
        shape.
      finite: refuse NaN and infinities.

    Raises:
      ValueError: another shape, text, None, complex numbers, or entries that are not finite.
    """
    array = user_array(name, value)
    if array.dtype.kind == "O":
        array = _from_objects(name, value, array)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must give numbers, got {_shown(value)}")
    with np.errstate(over="ignore"):
        result = array.astype(np.float64)
    if shape is not None and not _has_shape(result.shape, shape):
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(
            f"{name} must give an array of shape ({wanted}), got shape {result.shape}:"
            f" {_shown(value)}"
        )
    bad = ~np.isfinite(result)
    if finite and bad.any():
        raise ValueError(
            f"{name} must give finite numbers, got {int(bad.sum())} NaN or infinite of {bad.size}:"
            f" {_shown(value)}"
        )
    return result


def notes_of(error: BaseException) -> str:
    """Returns the notes of an exception in one line, for reports that show its text only: "" or "
    (raised by train)".
    """
    notes = getattr(error, "__notes__", ())
    return f" ({', '.join(map(str, notes))})" if notes else ""


def _add_note(error: Exception, note: str) -> None:
    # What add_note does from Python 3.11 on; pickled with the exception, so it comes back from
    # other processes.
    try:
        error.__notes__ = [*getattr(error, "__notes__", ()), note]
    except (AttributeError, TypeError):  # a class that takes no attributes
        return


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a tensor of torch, without loading torch."""
    # By its methods: torch is slow to import, and need not be here for a tensor of it to arrive.
    is_torch = type(value).__module__.split(".")[0] == "torch"
    return is_torch and hasattr(value, "requires_grad_") and hasattr(value, "detach")


def _without_graph(value: Any) -> Any:
    """Returns tensors, alone or in sequences, as arrays; everything else as it is."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    if isinstance(value, (list, tuple)):
        return [_without_graph(item) for item in value]
    return value


def _from_objects(name: str, value: Any, array: NDArray[Any]) -> NDArray[np.float64]:
    # astype would turn None into NaN and "1" into 1.
    entries = array.ravel().tolist()
    if not all(isinstance(entry, (numbers.Real, decimal.Decimal)) for entry in entries):
        raise ValueError(f"{name} must give numbers, got {_shown(value)}")
    try:
        return np.array([float(entry) for entry in entries], dtype=np.float64).reshape(array.shape)
    except OverflowError as error:
        raise ValueError(
            f"{name} must give numbers that a float can hold, got {_shown(value)}"
        ) from error


def _has_shape(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        size >= 1 if isinstance(want, str) else size == want
        for size, want in zip(shape, wanted, strict=True)
    )


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


__all__ = ["call_user_code", "is_tensor", "notes_of", "own_copy", "user_array", "user_numbers"]
