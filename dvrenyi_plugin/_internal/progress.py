"""A sign of life on standard error from what may take minutes."""

from __future__ import annotations

import sys
import warnings
from typing import Any

# What is done by then needs none, and leaves the screen to errors of one line.
_SECONDS_BEFORE_IT_IS_SHOWN = 3.0
# A file keeps every state of the bar.
_SECONDS_IN_A_FILE = 30.0


def progress_bar(what: str, unit: str, total: int, show: bool, *, done: int = 0) -> Any:
    """Returns tqdm's bar for terminals or notebooks, which appears after some seconds and goes away
    at the end, now and then a line in a file; `done` of the total were there before.
    """
    with warnings.catch_warnings():
        # A notebook without ipywidgets gets the bar in text.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    in_notebook = any("notebook" in kind.__module__ for kind in tqdm.__mro__)
    in_file = not in_notebook and not sys.stderr.isatty()
    seldom = {"mininterval": _SECONDS_IN_A_FILE, "maxinterval": _SECONDS_IN_A_FILE}
    return tqdm(
        total=total,
        initial=done,
        desc=what,
        unit=unit,
        disable=not show,
        delay=_SECONDS_BEFORE_IT_IS_SHOWN,
        leave=False,
        **(seldom if in_file else {}),
    )
