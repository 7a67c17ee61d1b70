"""A sign of life on standard error from what may take minutes."""

from __future__ import annotations

import warnings
from typing import Any

# What is done by then needs none, and leaves the screen to errors of one line.
_SECONDS_BEFORE_IT_IS_SHOWN = 3.0


def progress_bar(what: str, unit: str, total: int, show: bool, *, done: int = 0) -> Any:
    """Returns tqdm's bar for terminals or notebooks, which appears after some seconds and goes away
    at the end; `done` of the total were there before.
    """
    with warnings.catch_warnings():
        # A notebook without ipywidgets gets the bar in text.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    return tqdm(
        total=total,
        initial=done,
        desc=what,
        unit=unit,
        disable=not show,
        delay=_SECONDS_BEFORE_IT_IS_SHOWN,
        leave=False,
    )
