"""How reports write numbers, claims and tables."""

from __future__ import annotations

import math
from typing import Any

from dvrenyi_plugin.audits.report_parts import AuditClaim


def describe_claim(claim: AuditClaim) -> str:
    """Returns a claim in a few words."""
    order = "" if claim.alpha is None else f" at order alpha {claim.alpha:g}"
    source = "" if claim.mu is None else f" (mu {claim.mu:g} Gaussian DP)"
    return f"epsilon {claim.epsilon:.4g}{order}{source}"


def number(value: float) -> str:
    """Returns a number to four digits, "none" for NaN and infinity."""
    return f"{value:.4g}" if math.isfinite(value) else "none"


def cell(value: Any) -> str:
    """Returns a value as text that a markdown table can hold."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Returns a markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdict(refuted: bool) -> str:
    """Returns the outcome in words; an audit never confirms a claim."""
    if refuted:
        return "REFUTED: the certified lower bound exceeds the claimed epsilon"
    return "not refuted: no violation was certified, which is not a proof of the claim"
