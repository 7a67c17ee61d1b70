"""The one place where text from outside (names, paths, messages of a user's code) is made fit to be
shown.
"""

from __future__ import annotations

import html
import re
from typing import Literal

Target = Literal["terminal", "markdown", "html"]

# What CommonMark and its GitHub dialect read as markup inside a line. Underscores inside words are
# none.
_MARKDOWN = re.compile(r"[\\`*\[\]<>&|~$]|(?<!\w)_|_(?!\w)")


def escape(text: object, target: Target = "terminal") -> str:
    """Returns text that shows as it was written wherever it is put, and does nothing else there.

    In every target it is one line: runs of white space become one space, and what is invisible or
    steers the reader (control characters, terminal escapes, changes of the direction of writing,
    halves of surrogate pairs) is shown as a Python escape such as ``\\x1b`` or ``\\u202e``. In
    Markdown and HTML all markup is taken literally, also between quotes of an HTML attribute and in
    the cells of a Markdown table.

    Args:
      text: anything; `str` of it is shown.
      target: where it will stand.
    """
    line = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    match target:
        case "terminal":
            return line
        case "markdown":
            return _MARKDOWN.sub(_escape_markdown, line)
        case "html":
            return html.escape(line)


def _escape_markdown(match: re.Match[str]) -> str:
    # As entities where a backslash would leave HTML to be read.
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match[0], "\\" + match[0])
