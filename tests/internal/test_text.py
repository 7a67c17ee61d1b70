"""Text from outside is shown as it is and does nothing: in the terminal, in Markdown, in HTML."""

import html.parser
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvrenyi_plugin._internal.text import escape

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


class _Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("target", ["terminal", "markdown", "html"])
@pytest.mark.parametrize("text", HOSTILE)
def test_messages_nothing_invisible_or_steering_is_left(text, target):
    shown = escape(text, target)
    assert shown.isprintable()
    assert shown.encode()


@given(st.text())
def test_messages_printable_text_survives_the_terminal_and_html(text):
    line = escape(text)
    assert escape(line) == line
    tags = _Tags()
    tags.feed(f'<p title="{escape(text, "html")}">{escape(text, "html")}</p>')
    tags.close()
    assert tags.tags == [("p", [("title", line)])]
    assert tags.text == line


@given(st.text(alphabet=st.sampled_from("ab|\\`*_[]()<>&~$!#-\n ")))
def test_messages_no_markup_is_left_in_markdown(text):
    shown = escape(text, "markdown")
    assert not re.search(r"[<>]", shown)
    bare = re.sub(r"\\.", "", shown)
    assert not re.search(r"[\\`*\[\]|~$]", bare)
    # Escapes undone, it is the text again.
    entities = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
    back = re.sub(r"\\(.)|&(?:lt|gt|amp);", lambda m: m[1] or entities[m[0]], shown)
    assert back == escape(text)


def test_messages_ordinary_names_stay_readable():
    assert escape("no_clipping, 3.5e-4 (é, 中)", "markdown") == "no_clipping, 3.5e-4 (é, 中)"
    assert escape("/tmp/new results/report.md") == "/tmp/new results/report.md"
