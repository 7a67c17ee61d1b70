"""How reports write tables, settings and lines for the terminal."""

import dataclasses
import re

from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.render import render
from dvrenyi_plugin.reports.text import Table, aligned, readable, setting_rows

HOSTILE = [
    "<script>alert(1)</script>",
    "x](javascript:alert(1))",
    "![x](http://example.org/x.png)",
    "a\rb",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "a|b\\|c",
    "`code` *bold* _em_ ~~gone~~ $x$",
    "line\n# heading\u2028next",
    "half \udcff of a pair",
    "\u200b\ufeff\x00",
    '" onmouseover="x',
    "&lt;b&gt;",
]


def test_messages_a_table_has_the_cells_it_was_given():
    section = Section("s", table=Table(("a", "b|c"), [(value, 1) for value in HOSTILE]))
    text = render("plan.jinja", "markdown", title="t", audit="a", sections=[section])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(HOSTILE)
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3


def test_messages_settings_are_words_and_not_python():
    @dataclasses.dataclass
    class Unknown:
        value: int = 1

    rows = setting_rows(
        {
            "num_steps": None,
            "exact": True,
            "alphas": (1.25, 2.0),
            "none": (),
            "seeds": {"mechanism": 3, "tester": None},
            "other": Unknown(),
        }
    )
    assert rows[:6] == [
        ("num_steps", "not set"),
        ("exact", "yes"),
        ("alphas", "1.25, 2"),
        ("none", "none"),
        ("seeds, mechanism", "3"),
        ("seeds, tester", "not set"),
    ]
    assert readable({"a": [1, None]}) == "a: 1, not set"


def test_messages_a_value_takes_one_line_of_the_terminal():
    assert aligned([("a", "x\ny\x1b[2J"), ("long", 1)]) == "a     x y\\x1b[2J\nlong  1"
