"""How reports write numbers, claims and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.report_parts import TestedLevel


def describe_claim(claim: TestedLevel) -> str:
    """Returns a claim in a few words."""
    order = "" if claim.alpha is None else f" at order alpha {claim.alpha:g}"
    source = "" if claim.mu is None else f" (mu {claim.mu:g} Gaussian DP)"
    return f"epsilon {claim.epsilon:.4g}{order}{source}"


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
    """Returns a table's rows, one a setting, and one an entry of a setting that has several by name."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}, {entry}", readable(content)) for entry, content in value.items()]
        else:
            rows.append((name, readable(value)))
    return rows


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a Markdown table of plain text: markup in it is shown as it is."""
    lines = [[escape(cell, "markdown") for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def aligned(lines: Sequence[tuple[str, object]]) -> str:
    """Returns names and values for the terminal, one pair a line."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {escape(value)}" for name, value in lines)


def verdict(refuted: bool) -> str:
    """Returns the outcome in words; an audit never confirms a claim."""
    if refuted:
        return "REFUTED: the certified lower bound exceeds the claimed epsilon"
    return "not refuted: no violation was certified, which is not a proof of the claim"
