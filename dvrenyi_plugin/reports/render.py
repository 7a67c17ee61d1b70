"""Templates become Markdown or HTML: the same words, laid out by the macros of either format.

A template imports `layout`, the macros of the wanted format. All values that it shows are escaped
for that format; only what macros and `Markup` have made is not escaped again.
"""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from dvrenyi_plugin._internal.text import escape

Format = Literal["markdown", "html", "notebook"]

_FOLDER = pathlib.Path(__file__).parent / "templates"
# A name between backticks, in escaped text, and how it is shown as code.
_CODE = {
    "markdown": (re.compile(r"\\`([\w .=,-]+)\\`"), r"`\1`"),
    "html": (re.compile(r"`([\w .=,-]+)`"), r"<code>\1</code>"),
}
# Before what turns a whole line of Markdown into a heading, a list or a rule.
_BLOCK_START = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+#=]))")


def render(template: str, target: Format, **content: Any) -> str:
    """Returns a document, which ends with a new line.

    Args:
      template: name of a file in the folder of templates.
      target: the format of the document.
      content: what the template shows, by name.
    """
    layout = f"layout.{target}.jinja"
    text = _environment(target).get_template(template).render(content, layout=layout)
    blank = "\n\n" if target == "markdown" else "\n"
    return re.sub(r"\n{2,}", blank, text).strip() + "\n"


@functools.cache
def _environment(format_of_document: Format) -> jinja2.Environment:
    # What a notebook shows is a part of a page.
    target: Literal["markdown", "html"] = "markdown" if format_of_document == "markdown" else "html"

    def shown(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape(value, target))

    def prose(text: object) -> Markup:
        pattern, code = _CODE[target]
        line = pattern.sub(code, escape(text, target))
        return Markup(_BLOCK_START.sub(r"\1\\", line) if target == "markdown" else line)

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    return environment
