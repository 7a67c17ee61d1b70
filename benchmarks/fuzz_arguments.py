"""Arguments for the fuzzer: plausible values, a few of them replaced by extreme ones."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dvrenyi_plugin._internal import limits

_LONGEST_TEXT = 400
# Objects are built of objects up to this depth only.
_LARGEST_DEPTH = 4


# Names of annotated types, and the types: a value is drawn for the type.
_LIMITED = {
    name: getattr(kind.__origin__, "__name__", "")
    if isinstance(kind.__origin__, type)
    else str(kind.__origin__)
    for name, kind in vars(limits).items()
    if typing.get_origin(kind) is typing.Annotated
}


def without_limits(annotation: str) -> str:
    """Returns an annotation without the limits of `dvrenyi_plugin._internal.limits`."""
    annotation = re.sub(r"Annotated\[((?:[^\[\],]|\[[^\]]*\])+), [^|]*\]", r"\1", annotation)
    return re.sub(r"\w+", lambda word: _LIMITED.get(word[0], word[0]), annotation)


class NoExampleError(LookupError):
    """No plausible value is known of a parameter."""


@dataclasses.dataclass(frozen=True)
class Builder:
    """An example that is an object of one of the package's classes, built from examples.

    Attributes:
      kind: the class.
      extremes: whether its own arguments may be extreme; not those of a record, which the package
        makes.
    """

    kind: type
    extremes: bool = True

    def __call__(self, draw: Drawer) -> Any:
        with draw.deeper(self.extremes):
            positional, named = draw.arguments(self.kind)
        return self.kind(*positional, **named)


class Drawer:
    """Draws arguments from one random stream.

    Args:
      rng: the stream.
      examples: plausible values by parameter name or by annotation; each a function of the drawer.
      sizes: names of parameters whose large values ask for large work: no extreme but refused ones.
      extreme_rate: chance that an argument is extreme.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        examples: Mapping[str, Callable[[Drawer], Any]],
        sizes: frozenset[str],
        extreme_rate: float = 0.25,
    ) -> None:
        self.rng = rng
        self._examples = examples
        self._sizes = sizes
        self._extreme_rate = extreme_rate
        self._depth = 0

    def choose(self, *values: Any) -> Any:
        """Returns one of the values."""
        return values[int(self.rng.integers(len(values)))]

    def arguments(self, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns positional and keyword arguments for a function, a few of them extreme."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        owner = function.__qualname__.removesuffix(".__init__").split(".")[-1]
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise NoExampleError(f"{parameter.name} takes any number of arguments")
            if parameter.name == "self":
                continue
            has_default = parameter.default is not parameter.empty
            # Drawn even where it is not used: a parameter without an example must be noticed at
            # every call.
            value = self._argument(owner, parameter)
            # A size that is left out is the default, which may ask for minutes of training.
            if has_default and parameter.name not in self._sizes and self.rng.random() < 0.5:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named

    def plausible(self, owner: str, name: str, annotation: str) -> Any:
        """Returns a value that a careful caller of `owner` might give."""
        for key in (f"{owner}.{name}", name, annotation):
            if key in self._examples:
                return self._examples[key](self)
        parts = [part.strip() for part in annotation.split("|")]
        known = [part for part in parts if part in self._examples]
        if len(parts) == 1 or not known:
            raise NoExampleError(f"{owner}.{name}: {annotation}")
        return self._examples[self.choose(*known)](self)

    @contextlib.contextmanager
    def deeper(self, extremes: bool = True) -> Iterator[None]:
        """Counts how deep an argument is made of arguments, and makes extremes rarer there, or
        keeps them out.
        """
        rate = self._extreme_rate
        self._depth += 1
        if self._depth > _LARGEST_DEPTH:
            raise NoExampleError("arguments nested too deeply")
        self._extreme_rate = rate / 2.0 if extremes else 0.0
        try:
            yield
        finally:
            self._depth -= 1
            self._extreme_rate = rate

    def _argument(self, owner: str, parameter: inspect.Parameter) -> Any:
        annotation = without_limits(str(parameter.annotation))
        has_default = parameter.default is not parameter.empty
        try:
            value = self.plausible(owner, parameter.name, annotation)
        except NoExampleError:
            if not has_default:
                raise
            value = parameter.default
        if self.rng.random() >= self._extreme_rate or not self._is_data(value, annotation):
            return value
        if parameter.name in self._sizes:
            return self.refused_size()
        if isinstance(value, np.ndarray) and self.rng.random() < 0.8:
            return self.extreme_array(value)
        if isinstance(value, tuple) and value and self.rng.random() < 0.7:
            items = list(value)
            items[int(self.rng.integers(len(items)))] = self.extreme()
            return tuple(items)
        return self.extreme()

    def _is_data(self, value: Any, annotation: str) -> bool:
        """True for what a user types or computes; in place of a function, a source of randomness or
        an object of ours nothing else is tried, since a type checker tells.
        """
        if isinstance(value, (np.random.Generator, np.random.SeedSequence)):
            return False
        kinds = [self._examples.get(part.strip()) for part in annotation.split("|")]
        return not callable(value) and not any(isinstance(kind, Builder) for kind in kinds)

    def refused_size(self) -> Any:
        """Returns a count that is small, or that no function should accept."""
        return self.choose(0, -1, 1, 2, 3, True, "x", None, 1.5, math.nan, math.inf, 10**400, 2**63)

    def extreme(self) -> Any:
        """Returns a number at the edge of what floats can hold, or something that is no number."""
        if self.rng.random() < 0.6:
            return self.extreme_number()
        return self.choose(
            True, False, "x", "", None, math.nan, -math.nan, 10**400, -(10**400), [], [1.0],
            [[1.0]],
            (), {}, 1j, np.float64(0.5), np.float32(1e-45), np.int64(3), np.bool_(True),
            np.array(0.5),
            np.array(2), np.array([0.5, 1.5]), np.array([]), np.array(["a"]), np.array([None, 1]),
            np.array([object()]), np.array(1j), np.ma.masked_array([1.0], [True]), b"x", object(),
        )  # fmt: skip

    def extreme_number(self) -> Any:
        """Returns a float or an integer, often finite and near a limit."""
        kind = int(self.rng.integers(6))
        if kind == 0:
            return self.choose(
                0, 0.0, -0.0, -1, 1, 2, 5e-324, 1e-320, -1e-320, 2.2e-308, 1e-160, 1e-100, 1e-17,
                1e-9,
                1 - 1e-12, 1 + 1e-12, 1 + 1e-9, 1e9, 1e15, 1e50, 1e100, 1e160, 1e300, 1e308, -1e308,
                1.7976931348623157e308, math.inf, -math.inf, 2**31, 2**53 + 1, 2**62, 2**63, 2**64,
            )  # fmt: skip
        if kind == 1:
            return float(10.0 ** self.rng.uniform(-320.0, 308.0))
        if kind == 2:
            return 1.0 + float(10.0 ** self.rng.uniform(-16.0, 2.0))
        if kind == 3:
            return 1.0 - float(10.0 ** self.rng.uniform(-16.0, -0.5))
        if kind == 4:
            return int(10.0 ** self.rng.uniform(0.0, 18.0))
        return float(10.0 ** self.rng.uniform(-6.0, 6.0)) * self.choose(1.0, 1.0, -1.0)

    def extreme_array(self, plausible: np.ndarray) -> Any:
        """Returns an array much like the given one, with an odd entry, shape or type."""
        kind, plausible = int(self.rng.integers(9)), np.atleast_1d(plausible)
        if kind <= 4 and plausible.size and plausible.dtype.kind in "iuf":
            changed = np.array(plausible, dtype=np.float64)
            picked = self.rng.random(changed.shape) < self.choose(0.1, 0.5, 1.0)
            with np.errstate(all="ignore"):
                number = self.choose(self.extreme_number(), -math.inf, 0.0, 1e308, -1e308, 1e-320)
                changed[picked] = float(number) if abs(number) < 2**70 else math.inf
            return changed
        with np.errstate(all="ignore"):
            return self.choose(
                plausible[:1], plausible[:0], plausible[..., np.newaxis], plausible.astype(object),
                plausible.tolist(), np.zeros_like(plausible), plausible.astype(np.float32),
                np.array(0.5),
                plausible.astype(str), plausible.astype(complex),
                np.ma.masked_array(plausible, True),
                np.concatenate([plausible, plausible]), plausible.T, np.float64(1.0), None, "x",
            )  # fmt: skip


def call_text(name: str, positional: list[Any], named: Mapping[str, Any]) -> str:
    """Returns a call as text, long arguments shortened."""
    parts = [*map(short, positional), *(f"{key}={short(value)}" for key, value in named.items())]
    text = " ".join(f"{name}({', '.join(parts)})".split())
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."


def short(value: Any) -> str:
    """Returns a value's text, at most 120 characters."""
    if isinstance(value, int) and abs(value) > 2**70:
        return f"{'-' if value < 0 else ''}10**{len(str(abs(value))) - 1}"
    with np.printoptions(threshold=6, edgeitems=2):
        text = repr(value)
    return text if len(text) <= 120 else text[:120] + "..."
