"""Checks at the door: every message names the argument, its value and what is allowed."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Up to this order tests show that the e-process's factors have mean at most 1 (to 1e-12), in exact
# arithmetic.
_LARGEST_ORDER = 1e15
# scipy inverts the binomial distribution down to some 1e-150.
_SMALLEST_FAILURE_PROBABILITY = 1e-100
# What numpy and torch hold in an integer.
_LARGEST_INT = 2**63 - 1


def check_real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """Returns `value` as a finite float inside the given limits.

    Raises:
      ValueError: naming the argument, its value and the allowed range.
    """
    allowed = allowed_reals(above, at_least, below, at_most)
    is_number = isinstance(value, numbers.Real) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    )
    if not is_number or isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest float
        number = math.inf
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (below is None or number < below)
        and (at_most is None or number <= at_most)
    )
    if not inside:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number


def allowed_reals(
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> str:
    """Returns what `check_real` allows, in words for messages."""
    limits = ((">", above), (">=", at_least), ("<", below), ("<=", at_most))
    return _with_limits(
        "a finite number", [f"{sign} {limit:g}" for sign, limit in limits if limit is not None]
    )


def allowed_ints(at_least: int | None = None, at_most: int | None = None) -> str:
    """Returns what `check_int` allows, in words for messages."""
    limits = ((">=", at_least), ("<=", at_most))
    return _with_limits(
        "an integer", [f"{sign} {limit}" for sign, limit in limits if limit is not None]
    )


def _with_limits(kind: str, limits: list[str]) -> str:
    return " ".join((kind, " and ".join(limits))) if limits else kind


def check_int(
    name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    """Returns `value` as an int inside the given limits (3.0 is refused: counts are integers)."""
    allowed = allowed_ints(at_least, at_most)
    # An array of no dimensions counts, but is no seed and no index.
    if isinstance(value, (bool, np.bool_, np.ndarray)):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
    if (at_least is not None and number < at_least) or (at_most is not None and number > at_most):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    if number > _LARGEST_INT:
        raise ValueError(f"{name} must be {allowed}, below 2**63, got {value!r}")
    return number


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Returns `value` when it is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def check_text(name: str, value: Any) -> str:
    """Returns `value` when it is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {value!r}")
    return value


def check_bool(name: str, value: Any) -> bool:
    """Returns `value` when it is True or False: 1, "no" and arrays are refused."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def check_callable(name: str, value: Any) -> Any:
    """Returns `value` when it can be called."""
    if not callable(value):
        raise ValueError(f"{name} must be callable, got {value!r}")
    return value


def check_many(name: str, values: Any, of_what: str) -> tuple[Any, ...]:
    """Returns the entries, possibly none, of a list, tuple or array; each is the caller's to check.

    Args:
      name: argument name used in messages.
      values: text and dicts are refused: their letters and keys are hardly meant.
      of_what: what the entries should be, for messages ("finite numbers > 1").

    Raises:
      ValueError: naming the argument, its value and what is allowed.
    """
    if isinstance(values, (str, bytes, dict)) or not np.iterable(values):
        raise ValueError(f"{name} must be a tuple of {of_what}, got {values!r}")
    return tuple(values)


def check_failure_probability(value: Any, name: str = "failure_probability") -> float:
    """Returns a failure probability: a number in the open interval (0, 1), not below 1e-100."""
    number = check_real(name, value, above=0.0, below=1.0)
    return check_real(name, number, at_least=_SMALLEST_FAILURE_PROBABILITY)


def check_order(value: Any, name: str = "alpha") -> float:
    """Returns a Rényi order: a finite number above 1, at most 1e15, the largest checked."""
    return check_real(name, check_real(name, value, above=1.0), at_most=_LARGEST_ORDER)


def check_orders(values: Any, name: str = "orders") -> tuple[float, ...]:
    """Returns Rényi orders, possibly none, from a list, tuple or array of shape (k,)."""
    orders = check_many(name, values, "finite numbers > 1")
    return tuple(check_order(value, name) for value in orders)


def check_epsilon(value: Any, name: str = "epsilon") -> float:
    """Returns a claimed epsilon: a finite number, 0 allowed."""
    return check_real(name, value, at_least=0.0)


def check_delta(value: Any, name: str = "delta") -> float:
    """Returns a delta: a number in [0, 1]."""
    return check_real(name, value, at_least=0.0, at_most=1.0)


def check_lower_bound(value: Any, name: str = "lower_bound") -> float:
    """Returns a bound to compare with a claim: finite or +inf. NaN would compare as "not
    refuted".
    """
    if isinstance(value, numbers.Real) and value == math.inf:
        return math.inf
    return check_real(name, value)


def check_seed(value: Any, name: str = "seed") -> int:
    """Returns a seed: an integer, 0 or more."""
    return check_int(name, value, at_least=0)


def check_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Returns `values` as a float64 array of the same shape; NaN and infinities are the caller's to
    judge.

    Raises:
      ValueError: masked entries, or a dtype other than floats and integers.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must hold no masked entries, got a masked array")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # torch raises the last two
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} must hold floats or integers, got dtype {array.dtype} of shape {array.shape}"
        )
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float64)


def check_widths(name: str, values: Any) -> tuple[int, ...]:
    """Returns widths of hidden layers: a tuple of at least one integer >= 1."""
    if not isinstance(values, tuple) or not values:
        raise ValueError(f"{name} must be a tuple of widths, got {values!r}")
    return tuple(check_int(name, width, at_least=1) for width in values)


def check_labels(name: str, labels: Any, num_records: int, num_classes: int) -> NDArray[np.int64]:
    """Returns class labels as a new int64 array of shape (num_records,).

    Args:
      name: argument name used in messages.
      labels: shape (num_records,) or (num_records, 1); integers, or whole numbers in floats.
      num_records: how many there must be.
      num_classes: each label must lie in 0, ..., num_classes - 1.

    Raises:
      ValueError: another shape or dtype, a fraction, NaN, or a label out of range.
    """
    array = np.asarray(labels)
    if array.shape not in ((num_records,), (num_records, 1)):
        raise ValueError(
            f"{name} must have shape ({num_records},), one for each record, got shape {array.shape}"
        )
    array = array.reshape(num_records)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be integers, got dtype {array.dtype}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    is_fraction = array.dtype.kind == "f" and ~(np.isfinite(array) & (array == np.floor(array)))
    fractions = np.flatnonzero(is_fraction)
    if fractions.size:
        raise ValueError(
            f"{name} must be integers, got {fractions.size} that are not whole numbers, the first"
            f" {array[fractions[0]]} at index {fractions[0]}"
        )
    outside = np.flatnonzero((array < 0) | (array >= num_classes))
    if outside.size:
        raise ValueError(
            f"{name} must lie in 0..{num_classes - 1}, got {outside.size} outside, the first"
            f" {array[outside[0]]} at index {outside[0]}"
        )
    return array.astype(np.int64)


def check_samples(name: str, samples: Any, *, min_samples: int = 2) -> NDArray[np.float64]:
    """Returns samples as a new float64 array of shape (n, d).

    Args:
      name: argument name used in messages.
      samples: shape (n,) or (n, d), any float or integer dtype, d >= 1.
      min_samples: smallest n that is accepted.

    Raises:
      ValueError: wrong rank or dtype, no columns, too few rows, NaN or infinite entries.
    """
    array = check_numbers(name, samples)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n,) or (n, d), got shape {array.shape}")
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.shape[0] < min_samples:
        raise ValueError(f"{name} must have at least {min_samples} samples, got {array.shape[0]}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, got shape {array.shape}")
    array = np.array(array, order="C")
    bad = ~np.isfinite(array)
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        raise ValueError(
            f"{name} must be finite, got {int(bad.sum())} NaN or infinite entries in"
            f" {rows.size} of {array.shape[0]} samples, the first at index {int(rows[0])}"
        )
    return array


def check_sample_pair(
    samples1: Any, samples2: Any, *, min_samples: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns both samples as float64 arrays of shape (n1, d) and (n2, d); counts may differ."""
    first = check_samples("samples1", samples1, min_samples=min_samples)
    second = check_samples("samples2", samples2, min_samples=min_samples)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            "samples1 and samples2 must have the same number of columns, got shapes"
            f" {np.shape(samples1)} and {np.shape(samples2)}"
        )
    return first, second
