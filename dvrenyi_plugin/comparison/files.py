"""The files a comparison leaves behind."""

from __future__ import annotations

import dataclasses
import json
import os

from dvrenyi_plugin._internal.files import write_atomically
from dvrenyi_plugin.comparison.page import to_html, to_markdown
from dvrenyi_plugin.comparison.render import to_csv, verdict_lines
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.summary import head_to_head, summarise, totals_by_tester
from dvrenyi_plugin.reports import plain_json

# The one that says the others are complete comes last.
COMPARISON_FILES = ("comparison.csv", "comparison.md", "comparison.html", "comparison.json")
_TITLE = "Testers side by side"


def write_comparison_files(comparison: Comparison, directory: str) -> None:
    """Writes `COMPARISON_FILES` into an existing folder, each in one step.

    Raises:
      OSError: a file cannot be written.
    """
    texts = (
        to_csv(comparison),
        to_markdown(comparison, _TITLE),
        to_html(comparison, _TITLE),
        to_json(comparison),
    )
    for name, text in zip(COMPARISON_FILES, texts, strict=True):
        write_atomically(os.path.join(directory, name), text)


def to_json(comparison: Comparison) -> str:
    """Returns settings, versions, verdicts, totals, summaries and every cell."""
    others = [name for name in comparison.testers if name != "sequential"]
    content = {
        "settings": dataclasses.asdict(comparison.config),
        "versions": dict(comparison.versions),
        "mechanisms": comparison.mechanisms,
        "testers": comparison.testers,
        "num_failed": comparison.num_failed,
        "num_missing": comparison.num_missing,
        "verdicts": verdict_lines(comparison),
        "totals": [dataclasses.asdict(total) for total in totals_by_tester(comparison)],
        "summaries": [dataclasses.asdict(summary) for summary in summarise(comparison)],
        "head_to_head": {
            other: [
                dataclasses.asdict(pair) for pair in head_to_head(comparison, "sequential", other)
            ]
            for other in others
        },
        "cells": [json.loads(row.to_json()) for row in comparison.rows],
    }
    return plain_json.to_json(content)
