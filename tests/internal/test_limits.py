"""Settings are held to their annotations and kept as plain numbers."""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pytest

from dvrenyi_plugin._internal.limits import (
    Allowed,
    CheckedSettings,
    Count,
    Fraction,
    OneOf,
    Positive,
    Real,
    Switch,
)


@dataclasses.dataclass(frozen=True)
class Settings(CheckedSettings):
    models: Count = 3
    mu: Positive | None = None
    scale: Annotated[float, Real(at_least=0.0, at_most=2.0)] = 1.0
    powers: tuple[Fraction, ...] = (0.5,)
    colour: Annotated[str, OneOf(("red", "blue"))] = "red"
    loud: Switch = False
    even: Annotated[int, Allowed(lambda name, value: 2 * (value // 2))] = 0
    train: Callable[..., Any] | None = None


@dataclasses.dataclass(frozen=True)
class MoreSettings(Settings):
    rate: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate > self.scale:
            raise ValueError(f"rate must be at most scale, got {self.rate}")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("models", 0, "an integer >= 1"),
        ("models", 1.0, "an integer >= 1"),
        ("mu", 0.0, "a finite number > 0"),
        ("mu", math.nan, "a finite number > 0"),
        ("scale", 2.5, "a finite number >= 0 and <= 2"),
        ("scale", None, "a finite number >= 0 and <= 2"),
        ("powers", (0.5, 1.0), "a finite number > 0 and < 1"),
        ("powers", "0.5", "a tuple of values, each a finite number > 0 and < 1"),
        ("colour", "green", "one of red, blue"),
        ("loud", 1, "True or False"),
        ("rate", 1.0, "a finite number > 0 and < 1"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_name_and_value(name, value, allowed):
    shown = value[-1] if isinstance(value, tuple) else value
    with pytest.raises(ValueError, match=f"{name} must be {allowed}, got {shown!r}"):
        MoreSettings(**{name: value})


def test_values_are_kept_as_plain_numbers():
    settings = Settings(
        models=np.int64(4), mu=np.float32(0.1), scale=1, powers=np.array([0.25]), even=5
    )
    assert settings == Settings(4, float(np.float32(0.1)), 1.0, (0.25,), "red", False, 4)
    kinds = [type(value) for value in (settings.models, settings.mu, settings.scale)]
    assert kinds == [int, float, float]


def test_what_concerns_several_fields_comes_after_each_of_them():
    with pytest.raises(ValueError, match="rate must be at most scale"):
        MoreSettings(rate=0.5, scale=0.25)
    with pytest.raises(ValueError, match="scale must be"):
        MoreSettings(rate=0.5, scale=-1.0)
