"""Pictures beside a report: each is drawn if it can be. No report and no verdict waits for one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.plots import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture that is still to be drawn.

    Attributes:
      name: of its file.
      caption: in the report.
      draw: returns the figure.
    """

    name: str
    caption: str
    draw: Callable[[], Figure]


@dataclasses.dataclass(frozen=True)
class Gallery:
    """What became of a report's pictures.

    Attributes:
      shown: captions to file names, relative to the report.
      undrawn: file names to why there is no such file.
    """

    shown: Mapping[str, str] = dataclasses.field(default_factory=dict)
    undrawn: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_markdown(self) -> list[str]:
        """Returns one paragraph a picture: the picture, or that and why it could not be drawn."""
        shown = [f"![{escape(text, 'markdown')}]({name})" for text, name in self.shown.items()]
        return shown + [
            f"{name} could not be drawn: {escape(reason.rstrip('.'), 'markdown')}."
            for name, reason in self.undrawn.items()
        ]


NO_PICTURES = Gallery()


def draw_pictures(pictures: Iterable[Picture], directory: str) -> Gallery:
    """Draws into an existing folder. Where drawing fails for any reason, no file of the name is left, an earlier one
    neither: it would pass for one of these results."""
    shown, undrawn = {}, {}
    for picture in pictures:
        path = os.path.join(directory, picture.name)
        try:
            # Numbers near the ends of the floats make axes overflow. The report's own numbers do not come from here.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                save_figure(picture.draw(), path)
            shown[picture.caption] = picture.name
        except Exception as error:
            with contextlib.suppress(OSError):
                os.remove(path)
            undrawn[picture.name] = f"{type(error).__name__}: {error}"
    return Gallery(shown, undrawn)
