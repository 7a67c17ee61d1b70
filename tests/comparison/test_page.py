"""The pages of a comparison: every cell, nothing loaded, nothing that a message can break."""

from __future__ import annotations

import html.parser
import math
import re

import numpy as np
import pytest
from comparison_parts import comparison_of, row

from dvrenyi_plugin.comparison import page as comparison_page
from dvrenyi_plugin.comparison.cells import (
    ERROR,
    CellKey,
    CellResult,
)
from dvrenyi_plugin.comparison.page import to_html, to_markdown
from dvrenyi_plugin.comparison.render import to_csv
from dvrenyi_plugin.comparison.settings import BROKEN, HONEST


class _Page(html.parser.HTMLParser):
    """Reads a page, and fails where a tag is not closed or closed twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "wbr"):
            self._open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.loaded.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_messages_cannot_break_the_tables() -> None:
    failed = CellResult(
        CellKey("gaussian", HONEST, 100, "sequential", 1),
        ERROR,
        "a | b \\\\| <script>x</script> `c`",
    )
    comparison = comparison_of([failed], ("sequential",))
    assert "script" not in _Page(to_html(comparison, "<script>")).tags
    markdown = to_markdown(comparison, "<script>")
    assert "<script>" not in markdown
    (line,) = [line for line in markdown.splitlines() if "a \\|" in line]
    # A bar splits cells unless an odd number of backslashes stands before it.
    cells = re.findall(r"(?<!\\)(?:\\\\)*\|", line)
    assert len(cells) == 13


def test_page_and_texts_show_every_cell_and_load_nothing() -> None:
    rows = [
        row("sequential", HONEST, [0.5, 1.5], 1),
        row("sequential", BROKEN, [3.0, 3.0], 2, truth=4.0),
        row("gdp_baseline", BROKEN, [3.0, math.nan], 1, truth=None),
    ]
    comparison = comparison_of(rows, ("sequential", "gdp_baseline"))
    page = to_html(comparison, "A <title>")
    read = _Page(page)
    assert read.loaded == []
    assert "A &lt;title&gt;" in page
    assert read.tags.count("svg") == 1
    assert "NaN 0.50" in page
    markdown = to_markdown(comparison, "Title")
    assert "| gaussian | 100 | sequential | 1.00 | 0.50 | 2 + 2 | 0.75 | 0.50 |" in markdown
    lines = to_csv(comparison).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("gaussian,gdp_baseline,100,0.5,,2,0,")
    assert np.all([len(line.split(",")) == 13 for line in lines])


def test_messages_false_alarms_do_not_look_like_power() -> None:
    """A tester that accuses everybody, one that is right, one that has no number, one of a single
    false alarm.
    """
    rows = [
        row("gdp_baseline", HONEST, [3.0] * 5, 5),
        row("gdp_baseline", BROKEN, [3.0] * 5, 5),
        row("sequential", HONEST, [0.5] * 5, 0),
        row("sequential", BROKEN, [3.0] * 5, 5),
        row("dv", HONEST, [math.nan] * 5, 0),
        row("dv", BROKEN, [3.0] * 5, 5),
        row("threshold", HONEST, [1.5, 0.0, 0.0, 0.0, 0.0], 1),
        row("threshold", BROKEN, [3.0] * 5, 5),
    ]
    testers = ("gdp_baseline", "sequential", "dv", "threshold")
    comparison = comparison_of(rows, testers)
    page = to_html(comparison, "t")
    looks = re.findall(r'<td class="(heat[^"]*)"( style="[^"]*")?>1.00', page)
    assert [look for look, _ in looks] == ["heat alarm", "heat", "heat nan", "heat"]
    assert looks[1][1] == looks[3][1] != ""
    assert page.count("no guarantee</small>") == 1
    power = to_markdown(comparison, "t").split("## Power and false alarms")[1]
    assert "| 1.00 / 1.00 ! | 1.00 / 0.00 | 1.00 / 0.00 NaN | 1.00 / 0.20 |" in power


def test_f5_the_page_is_written_without_its_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> str:
        raise RuntimeError("no <ink> left")

    monkeypatch.setattr(comparison_page, "_power_curves", fail)
    page = to_html(comparison_of([row("sequential", HONEST, [0.5] * 5, 0)], ("sequential",)), "t")
    assert "The curves could not be drawn: no &lt;ink&gt; left." in page
    assert "Every cell" in page
