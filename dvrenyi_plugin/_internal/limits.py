"""Settings that check themselves: a field's annotation says what is allowed, one walker holds every
field to it.

    @dataclasses.dataclass(frozen=True)
    class Config(CheckedSettings):
        num_models: Annotated[int, Int(at_least=10)] = 200
        mu: Positive | None = None
        powers: tuple[Fraction, ...] = (0.5, 0.9)

Values are kept as plain floats, ints and tuples, whatever kind of number was given. What concerns
several fields at once is checked in a `__post_init__` that calls this one first.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

from dvrenyi_plugin._internal.validation import (
    allowed_ints,
    allowed_reals,
    check_bool,
    check_callable,
    check_choice,
    check_delta,
    check_failure_probability,
    check_int,
    check_many,
    check_order,
    check_orders,
    check_real,
    check_seed,
    check_text,
    check_widths,
)


@dataclasses.dataclass(frozen=True)
class Real:
    """A finite number; see `check_real`."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def __call__(self, name: str, value: Any) -> float:
        return check_real(name, value, **dataclasses.asdict(self))

    def __str__(self) -> str:
        return allowed_reals(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Int:
    """An integer; see `check_int`."""

    at_least: int | None = None
    at_most: int | None = None

    def __call__(self, name: str, value: Any) -> int:
        return check_int(name, value, **dataclasses.asdict(self))

    def __str__(self) -> str:
        return allowed_ints(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of several words; see `check_choice`."""

    words: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> str:
        return check_choice(name, value, self.words)

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What a function of argument name and value gives back; it raises ValueError for all else.

    Attributes:
      check: the function.
      words: what it allows, for messages about several values.
    """

    check: Callable[[str, Any], Any]
    words: str = "allowed alone"

    def __call__(self, name: str, value: Any) -> Any:
        return self.check(name, value)

    def __str__(self) -> str:
        return self.words


def _value_first(check: Callable[[Any, str], Any]) -> Allowed:
    return Allowed(lambda name, value: check(value, name))


Count = Annotated[int, Int(at_least=1)]
Seed = Annotated[int, _value_first(check_seed)]
Switch = Annotated[bool, Allowed(check_bool)]
Text = Annotated[str, Allowed(check_text, "text")]
Positive = Annotated[float, Real(above=0.0)]
NotNegative = Annotated[float, Real(at_least=0.0)]
Fraction = Annotated[float, Real(above=0.0, below=1.0)]
FailureProbability = Annotated[float, _value_first(check_failure_probability)]
Finite = Annotated[float, Real()]
Function = Annotated[Callable[..., Any], Allowed(check_callable)]
Order = Annotated[float, _value_first(check_order)]
Delta = Annotated[float, _value_first(check_delta)]
Orders = Annotated[tuple[float, ...], _value_first(check_orders)]
Widths = Annotated[tuple[int, ...], Allowed(check_widths)]


class CheckedSettings:
    """Base of frozen dataclasses whose fields are held to their annotations when one is made.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, limit in _limits_of(kind):
            object.__setattr__(self, name, limit(name, getattr(self, name)))


@functools.cache
def _limits_of(kind: Any) -> tuple[tuple[str, Callable[[str, Any], Any]], ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    found = ((field.name, _limit_of(hints[field.name])) for field in dataclasses.fields(kind))
    return tuple((name, limit) for name, limit in found if limit is not None)


def _limit_of(hint: Any) -> Callable[[str, Any], Any] | None:
    """Returns what holds a value to an annotation; None where the annotation names no limit."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        return next((one for one in hint.__metadata__ if callable(one)), None)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        limits = [limit for limit in map(_limit_of, arguments) if limit is not None]
        return functools.partial(_unless_none, limits[0]) if limits else None
    if typing.get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is ...:
        limit = _limit_of(arguments[0])
        return None if limit is None else functools.partial(_each, limit)
    return None


def allowed_words(hint: Any) -> tuple[str, ...]:
    """Returns the words that an annotation allows; none where it does not list any."""
    if typing.get_origin(hint) is not Annotated:
        return ()
    return next((one.words for one in hint.__metadata__ if isinstance(one, OneOf)), ())


def _unless_none(limit: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    return None if value is None else limit(name, value)


def _each(limit: Callable[[str, Any], Any], name: str, values: Any) -> tuple[Any, ...]:
    return tuple(limit(name, value) for value in check_many(name, values, f"values, each {limit}"))
