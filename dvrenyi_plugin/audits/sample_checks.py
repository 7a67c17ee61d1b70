"""What the runner refuses: answers and samples that would let a broken mechanism pass, or an honest
one fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import pickle
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.user_code import own_copy, user_array

# Equal samples are blamed on the mechanism only where chance gives them less often than this, as a
# logarithm.
_LOG_COINCIDENCE = -40.0
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def check_pair(pair: Any) -> tuple[Any, Any]:
    """Returns copies of what a dataset generator proposed, as a tuple of two."""
    try:
        first, second = pair
    except (TypeError, ValueError):
        raise ValueError(
            f"dataset_generator must return a pair of datasets, got {type(pair).__name__}"
        ) from None
    return own_copy(first), own_copy(second)


def as_number(estimate: Any) -> float:
    """Returns a tester's estimate as a float, NaN allowed.

    Raises:
      ValueError: it is no number: nothing, a text, a bool, an array of any shape but ().
    """
    if not isinstance(estimate, (str, bytes, bool, np.bool_)) and not getattr(estimate, "ndim", 0):
        with contextlib.suppress(TypeError, ValueError):
            return float(estimate)
    raise ValueError(f"property_tester must return a number, got {estimate!r}")


def check_estimate(estimate: float, trial: int, direction: str) -> None:
    """Refuses NaN. Each direction is looked at by itself: max() keeps or drops a NaN by
    its place.
    """
    if math.isnan(estimate):
        raise ValueError(
            f"property_tester must return a number, got {estimate!r} in trial {trial}"
            f" ({direction}): a NaN"
            " compares as 'not refuted', so a broken mechanism would pass"
        )


def check_verdict(verdict: Any) -> bool:
    """Returns a tester's verdict. Nothing at all, from a method that forgot to return, is not
    "kept".
    """
    if verdict is None or isinstance(verdict, (str, bytes)):
        raise ValueError(f"property_tester.reject_property must return a bool, got {verdict!r}")
    return bool(verdict)


def check_rows(name: str, samples: Any, num_samples: int) -> NDArray[Any]:
    """Returns samples as an array of their own: a mechanism may fill the same buffer at its next
    call.
    """
    array = user_array(name, samples)
    if array.ndim == 0 or len(array) != num_samples:
        raise ValueError(f"{name} must return {num_samples} samples, got shape {array.shape}")
    return array


def check_no_nan(name: str, samples: NDArray[Any]) -> NDArray[Any]:
    """Returns the samples. A tester may drop or ignore NaN, and NaN on one dataset alone tells it
    from the other.
    """
    if samples.dtype.kind in "fc" and np.isnan(samples).any():
        rows = np.isnan(samples.reshape(len(samples), -1)).any(axis=1)
        raise ValueError(
            f"{name} must return no NaN, got some in {int(rows.sum())} of {len(samples)} samples,"
            f" the"
            f" first at index {int(np.argmax(rows))}; post_processing can map them to numbers, as"
            f" finite_observations does"
        )
    return samples


class RepeatedSampleGuard:
    """Samples seen so far: the same ones again mean that the mechanism seeds itself at
    every call.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def check(self, samples: NDArray[Any]) -> None:
        """Remembers samples.

        Raises:
          ValueError: the very same ones were seen before, and not by chance.
        """
        if samples.dtype.kind == "O":
            return
        digest = hashlib.sha256(np.ascontiguousarray(samples).tobytes()).digest()
        if digest in self._seen and _log_coincidence(samples) < _LOG_COINCIDENCE:
            raise ValueError(
                "mechanism must return fresh samples at every call, got the same ones again: make"
                " its random"
                " generator when it is built, not when it is called"
            )
        self._seen.add(digest)


def _log_coincidence(samples: NDArray[Any]) -> float:
    """Returns the logarithm of the chance that as many independent draws from these samples'
    frequencies are equal.
    """
    counts = np.unique(samples.reshape(len(samples), -1), axis=0, return_counts=True)[1]
    return float(len(samples) * np.log(np.sum((counts / len(samples)) ** 2)))


def datasets_digest(datasets: tuple[Any, Any]) -> str | None:
    """Returns a fingerprint of the datasets, None for objects that cannot be written."""
    try:
        return hashlib.sha256(pickle.dumps(datasets, protocol=4)).hexdigest()[:32]
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def describe(thing: Any) -> str:
    """Returns what can be told of a tester, mechanism or function that must be the same when a test
    is resumed.

    The class, or the name of a function, with the settings where it keeps them in a frozen
    dataclass called config.
    """
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    text = f"{kind.__module__}.{kind.__qualname__}"
    for name in ("config", "_config"):
        config = getattr(thing, name, None)
        parameters = getattr(type(config), "__dataclass_params__", None)
        if dataclasses.is_dataclass(config) and parameters is not None and parameters.frozen:
            return f"{text}: {without_addresses(repr(config))}"
    return text


def without_addresses(text: str) -> str:
    """Returns a repr without what differs from one process to the next."""
    return _ADDRESS.sub("", text)


__all__ = [
    "RepeatedSampleGuard",
    "as_number",
    "check_estimate",
    "check_no_nan",
    "check_pair",
    "check_rows",
    "check_verdict",
    "datasets_digest",
    "describe",
    "without_addresses",
]
