"""A sign of life on standard error from what may take minutes."""

from __future__ import annotations

from typing import Any

# What is done by then needs none, and leaves the screen to errors of one line.
_SECONDS_BEFORE_IT_IS_SHOWN = 3.0


def progress_bar(what: str, unit: str, total: int, show: bool) -> Any:
    """Returns tqdm's bar, which appears after some seconds and goes away at the end."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        disable=not show,
        delay=_SECONDS_BEFORE_IT_IS_SHOWN,
        leave=False,
    )
