"""A fuzzer of this package's public functions: draws a call, makes it, and judges what came of it.

A call is right if it returns without NaN, or raises ValueError, TypeError, OSError or ImportError
with a text that this package wrote; in a bounded time and without a warning. Arguments are
plausible values of which a few are replaced by extreme ones. Every call has a key, (seed, subject,
number), from which it can be made again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import inspect
import io
import linecache
import math
import os
import signal
import time
import traceback
import types
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from fuzz_arguments import Drawer, NoExampleError, call_text

import dvrenyi_plugin

_PACKAGE_FOLDER = os.path.dirname(os.path.abspath(dvrenyi_plugin.__file__)) + os.sep
# The functions that stand for a user's.
_USER_CODE = "fuzz_examples.py"
# A call may wait for what is not its own work this many times as long as it may work.
_LONGEST_WAIT = 30.0
_SECONDS_BETWEEN_LOOKS = 0.5
_REFUSALS = (ValueError, TypeError, OSError, ImportError)


class _MethodError(Exception):
    """Names the method that raised its cause."""


class _TooSlowError(BaseException):
    """Raised by the alarm; no `except Exception` of the code under test may swallow it."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A call that went wrong.

    Attributes:
      kind: type of the fault, which with `place` tells different faults apart.
      subject: what was called.
      case: number of the call, which together with seed and subject makes it again.
      call: the call as text.
      fault: what went wrong, on one line.
      place: where.
    """

    kind: str
    subject: str
    case: int
    call: str
    fault: str
    place: str

    def line(self, seed: int) -> str:
        """Returns one line with a command that reproduces the call."""
        again = f"--only={self.subject} --case={self.case} --seed={seed}"
        return f"{self.fault} | {self.call} | {self.place} | {again}"


@dataclasses.dataclass(frozen=True)
class Subject:
    """Something to call.

    Attributes:
      name: unique, for reports and for the random stream.
      make_call: draws a call: its text, and a function that makes it.
    """

    name: str
    make_call: Callable[[Drawer], tuple[str, Callable[[], Any]]]


def function_subject(
    name: str, function: Callable[..., Any], left_out: Collection[str] = ()
) -> Subject:
    """Returns a subject that calls a function or builds a class, then a few methods of what comes
    back.

    Args:
      name: of the subject.
      function: what is called.
      left_out: methods that are not called, each as "Class.method".
    """

    def make_call(drawer: Drawer) -> tuple[str, Callable[[], Any]]:
        positional, named = drawer.arguments(function)
        text = call_text(name, positional, named)
        follow_up = np.random.default_rng(int(drawer.rng.integers(2**63)))

        def call() -> Any:
            result = function(*positional, **named)
            if not _is_ours(type(result)):
                return result
            return result, list(_use(result, drawer, follow_up, left_out))

        return text, call

    return Subject(name, make_call)


def _use(
    thing: Any, drawer: Drawer, rng: np.random.Generator, left_out: Collection[str]
) -> Iterator[Any]:
    """Reads every property of an object of ours and calls up to three of its methods."""
    drawer.rng = rng
    callables = []
    for name, member in inspect.getmembers(type(thing)):
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property):
            yield getattr(thing, name)
        elif isinstance(member, types.FunctionType) and member.__qualname__ not in left_out:
            callables.append(name)
    for name in rng.permutation(callables)[:3] if callables else ():
        method = getattr(thing, str(name))
        try:
            positional, named = drawer.arguments(method)
        except NoExampleError:
            continue
        try:
            yield method(*positional, **named)
        except Exception as error:
            raise _MethodError(call_text(f".{name}", positional, named)) from error


def run_case(
    subject: Subject,
    case: int,
    seed: int,
    examples: Mapping[str, Callable[[Drawer], Any]],
    sizes: frozenset[str],
    time_limit_s: float,
) -> Failure | None:
    """Makes one call and returns what went wrong, None if nothing did.

    Raises:
      NoExampleError: some parameter of the subject has no plausible value.
    """
    key = (seed, zlib.crc32(subject.name.encode()), case)
    drawer = Drawer(np.random.default_rng(key), examples, sizes)
    text = subject.name + "(...)"
    try:
        with _watched(time_limit_s):
            text, call = subject.make_call(drawer)
            result = call()
    except NoExampleError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, _MethodError) and error.__cause__ is not None:
            text, error = f"{text}{error}", error.__cause__
        place = _place(error)
        if isinstance(error, _TooSlowError):
            return Failure(
                "slow", subject.name, case, text, f"no answer in {time_limit_s:g} s of work", place
            )
        complaint = _complaint(error)
        if complaint is None:
            return None
        return Failure(type(error).__name__, subject.name, case, text, complaint, place)
    nan = _first_nan(result, "result")
    return nan and Failure("NaN", subject.name, case, text, f"NaN in {nan}", subject.name)


@contextlib.contextmanager
def _watched(time_limit_s: float) -> Iterator[None]:
    """Makes warnings errors, keeps output away, and ends what takes too long.

    Only processor seconds of this process and of its ended children count, so that other programs
    on the machine do not matter; a call that waits for ever ends after many seconds of any kind.
    """
    start, used = time.monotonic(), _processor_s()

    def look(_signal: int, _frame: Any) -> None:
        waited = time.monotonic() - start
        if _processor_s() - used > time_limit_s or waited > _LONGEST_WAIT * time_limit_s:
            raise _TooSlowError

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN_LOOKS, _SECONDS_BETWEEN_LOOKS)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("error")
            # What this package itself tells its user, and what libraries tell their developers.
            warnings.filterwarnings("ignore", category=UserWarning, module=r"dvrenyi_plugin\.")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"(torch|opacus)")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _processor_s() -> float:
    """Returns the processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _complaint(error: BaseException) -> str | None:
    """Returns what is wrong about an error, None for a refusal in this package's own words."""
    frames = traceback.extract_tb(error.__traceback__)
    notes = getattr(error, "__notes__", ())
    if notes and any(os.path.basename(frame.filename) == _USER_CODE for frame in frames):
        # An example function was given what it does not take, and the note says that it raised.
        return None
    words = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    if not isinstance(error, _REFUSALS) or isinstance(error, Warning):
        return words
    if not str(error).strip():
        return f"{type(error).__name__} without a text"
    if isinstance(error, (OSError, ImportError)):
        return None
    last = frames[-1]
    raised_here = last.filename.startswith(_PACKAGE_FOLDER)
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return None if raised_here and line.startswith("raise") else f"not our words, {words}"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE_FOLDER)]
    if not ours:
        return "outside of the package"
    return f"{ours[-1].filename[len(_PACKAGE_FOLDER) :]}:{ours[-1].lineno}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == dvrenyi_plugin.__name__


# Fields that say in their documentation that NaN means "no value".
_NAN_ALLOWED = ("point_estimate", "true_value")


def _first_nan(value: Any, where: str, depth: int = 0) -> str | None:
    if depth > 6 or value is None or isinstance(value, (str, bytes, bool, int)):
        return None
    if isinstance(value, float):
        return where if math.isnan(value) else None
    if isinstance(value, np.ndarray):
        return where if value.dtype.kind in "fc" and bool(np.isnan(value).any()) else None
    inside: list[tuple[str, Any]] = []
    if isinstance(value, (collections.abc.Mapping, types.MappingProxyType)):
        inside = [(f"{where}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        inside = [(f"{where}[{index}]", item) for index, item in enumerate(value[:1000])]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [
            (f"{where}.{field.name}", getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in _NAN_ALLOWED and hasattr(value, field.name)
        ]
    for name, item in inside:
        found = _first_nan(item, name, depth + 1)
        if found:
            return found
    return None
