"""How reports write numbers, settings and tables."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dvrenyi_plugin._internal.text import escape

_NUMBER = re.compile(r"-?\d*\.?\d+(e[+-]?\d+)?|-|nan|inf|none")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of plain text, to be shown in Markdown or HTML.

    Attributes:
      header: names of the columns.
      rows: one cell per column each; anything that `str` makes readable.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]

    @property
    def text_columns(self) -> list[bool]:
        """For each column, whether some cell of it is no number."""
        return [
            not all(_NUMBER.fullmatch(str(row[column])) for row in self.rows)
            for column in range(len(self.header))
        ]

    def without(self, name: str) -> Table:
        """Returns the table without one column."""
        left = [column for column, title in enumerate(self.header) if title != name]
        header, *rows = ([row[column] for column in left] for row in (self.header, *self.rows))
        return Table([str(title) for title in header], rows)


def number(value: float) -> str:
    """Returns a number to four digits, "none" for NaN and infinity."""
    return f"{value:.4g}" if math.isfinite(value) else "none"


def readable(value: Any) -> str:
    """Returns a setting's value in words: no None, no brackets."""
    match value:
        case None:
            return "not set"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case Mapping():
            return ", ".join(f"{name}: {readable(entry)}" for name, entry in value.items())
        case list() | tuple():
            return ", ".join(readable(entry) for entry in value) or "none"
    return str(value)


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns one row per setting, and one per entry of a setting that has several by name."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}, {entry}", readable(content)) for entry, content in value.items()]
        else:
            rows.append((name, readable(value)))
    return rows


def aligned(lines: Sequence[tuple[str, object]]) -> str:
    """Returns names and values for the terminal, one pair per line."""
    shown = [(escape(name), escape(value)) for name, value in lines]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)
