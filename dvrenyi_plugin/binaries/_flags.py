"""The flags of a command, made of the settings dataclasses that they fill.

A field is a flag of its name, with its type and default. What it means stands once, in the
docstring of its class; the words it may hold stand once, in its annotation.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from dvrenyi_plugin._internal.limits import allowed_words

OVERWRITE_MEANING = "replace a report of other settings in output_dir"

Settings = TypeVar("Settings")
_NUMBERS = {float: "numbers", int: "whole numbers"}


class ProgramFlags:
    """A program's own flags, made one after another; absl's global ones are left alone.

    Attributes:
      values: what has been defined so far, to parse a command line with.
    """

    def __init__(self) -> None:
        self.values = flags.FlagValues()  # type: ignore[no-untyped-call]

    def text(self, name: str, default: str | None, meaning: str) -> None:
        """Adds a flag that holds text."""
        flags.DEFINE_string(name, default, meaning, flag_values=self.values)

    def real(self, name: str, default: float | None, meaning: str) -> None:
        """Adds a flag that holds a float."""
        flags.DEFINE_float(name, default, meaning, flag_values=self.values)

    def switch(self, name: str, default: bool, meaning: str) -> None:
        """Adds a flag that is on or off."""
        flags.DEFINE_bool(name, default, meaning, flag_values=self.values)

    def words(self, name: str, default: Sequence[str], meaning: str) -> None:
        """Adds a flag that holds words with commas between."""
        flags.DEFINE_list(name, list(default), meaning, flag_values=self.values)

    def texts(self, name: str, meaning: str) -> None:
        """Adds a flag that may be given several times, each with a text."""
        flags.DEFINE_multi_string(name, [], meaning, flag_values=self.values)

    def alias(self, other_name: str, name: str) -> None:
        """Lets a flag go by another name, too, which its own line of --help says."""
        flags.DEFINE_alias(other_name, name, flag_values=self.values)
        self.values[name].help += f" Also: --{other_name}."

    def tested_claim(self) -> None:
        """Adds the flag that holds the claim of an audit that knows no other way to say it."""
        self.text(
            "claim",
            None,
            "what is tested: mu=1; epsilon=8,delta=1e-5; epsilon=1; rho=0.5;"
            " renyi:alpha=2,epsilon=1; or noise_multiplier=1.1,sample_rate=0.01,steps=1000",
        )

    def audit_report(self) -> None:
        """Adds the flags that say where an audit's report goes, and what its verdict does."""
        self.text("output_dir", None, "folder for the report; required")
        self.switch("overwrite", False, OVERWRITE_MEANING)
        self.switch("fail_on_violation", False, "exit with status 2 when the claim is refuted")

    def settings(self, kind: type, leave_out: Collection[str] = (), **defaults: Any) -> None:
        """Adds a flag for each field of a settings dataclass that has none yet.

        Args:
          kind: the dataclass.
          leave_out: fields that are no flags.
          defaults: of this program, by field, where they are not the dataclass's.
        """
        meanings = _meanings(kind)
        for field in dataclasses.fields(kind):
            if field.name in leave_out or field.name in self.values:
                continue
            default = defaults.get(field.name, field.default)
            meaning = meanings[field.name] + _unnamed_words(kind, field.name, meanings)
            if default is None and field.default not in (None, (), dataclasses.MISSING):
                meaning += f" Unset: {_words(field.default)}."
            self._field(field.name, _plain_type(kind, field.name), default, meaning)

    def _field(self, name: str, plain: Any, default: Any, meaning: str) -> None:
        if isinstance(plain, tuple):
            words = [] if default is None else [_word(value) for value in default]
            self.words(name, words, meaning)
            return
        define: Any = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
        }[plain]
        define(name, default, meaning, flag_values=self.values)


def settings_from(
    values: flags.FlagValues, kind: type[Settings], leave_out: Collection[str] = (), **given: Any
) -> Settings:
    """Returns the settings that the flags of their fields say.

    Args:
      values: of the parsed flags.
      kind: the dataclass.
      leave_out: fields that stay at their defaults.
      given: fields that are no flags.

    Raises:
      ValueError: a value that the settings do not allow, or a word of a list that is no number.
    """
    fields = {
        field.name: _read(field.name, _plain_type(kind, field.name), values[field.name].value)
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.name not in given and field.name not in leave_out
    }
    return kind(**fields, **given)


def unless_given(values: flags.FlagValues, name: str, decided: Collection[str]) -> None:
    """Raises ValueError when a flag was given beside one that decides the same.

    Args:
      values: of the parsed flags.
      name: of the flag that decides these.
      decided: names of the flags that it decides.
    """
    twice = [other for other in sorted(decided) if other in values and values[other].present]
    if twice:
        raise ValueError(f"{name} must be given without {', '.join(twice)}, which it decides")


def _read(name: str, plain: Any, value: Any) -> Any:
    return numbers(name, plain[0], value) if isinstance(plain, tuple) else value


def numbers(name: str, kind: type, words: Sequence[str]) -> tuple[Any, ...]:
    """Returns what the words of a list flag say: numbers, or themselves.

    Raises:
      ValueError: a word is no number of the kind.
    """
    try:
        return tuple(kind(word) for word in words)
    except ValueError:
        raise ValueError(
            f"{name} must be {_NUMBERS[kind]} with commas between, got {','.join(words)}"
        ) from None


def _plain_type(kind: type, name: str) -> Any:
    """Returns bool, int, float or str; a tuple of one of these for a field that holds several."""
    hint = typing.get_type_hints(kind)[name]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    return (typing.get_args(hint)[0],) if typing.get_origin(hint) is tuple else hint


def _unnamed_words(kind: type, name: str, meanings: Mapping[str, str]) -> str:
    """Returns a sentence on the words that a field may hold, unless its meaning names them all."""
    words = allowed_words(typing.get_type_hints(kind, include_extras=True)[name])
    if all(word in meanings[name] for word in words):
        return ""
    return f" One of {', '.join(words)}."


def _meanings(kind: type) -> dict[str, str]:
    """Returns what the fields of a class mean, as its docstring says."""
    _, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.replace("`", "").split()) for name, text in entries}


def _words(value: Any) -> str:
    return ", ".join(map(_word, value if isinstance(value, tuple) else (value,)))


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
