"""Pictures beside a report: each is drawn if it can be. No report and no verdict waits for one."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dvrenyi_plugin.reports.figures import save_figure

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
class DrawnPicture:
    """A picture that lies beside the report.

    Attributes:
      name: of its file, relative to the report.
      caption: in the report.
      png: content of the file.
    """

    name: str
    caption: str
    png: bytes

    @property
    def data_uri(self) -> str:
        """The picture itself as an address, for a page that needs no other file."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclasses.dataclass(frozen=True)
class Gallery:
    """What became of a report's pictures.

    Attributes:
      drawn: in the order of the report.
      undrawn: file names to why there is no such file.
    """

    drawn: tuple[DrawnPicture, ...] = ()
    undrawn: Mapping[str, str] = dataclasses.field(default_factory=dict)


NO_PICTURES = Gallery()


def draw_pictures(pictures: Iterable[Picture], directory: str) -> Gallery:
    """Draws pictures into an existing folder.

    Where drawing fails for any reason, no file of that name is left, and no earlier one either:
    it would pass for one of these results.
    """
    drawn, undrawn = [], {}
    for picture in pictures:
        path = os.path.join(directory, picture.name)
        try:
            # Numbers near the ends of the floats make axes overflow. The report's own numbers do
            # not come from here.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                save_figure(picture.draw(), path)
            with open(path, "rb") as file:
                drawn.append(DrawnPicture(picture.name, picture.caption, file.read()))
        except Exception as error:
            with contextlib.suppress(OSError):
                os.remove(path)
            undrawn[picture.name] = f"{type(error).__name__}: {error}".rstrip(".")
    return Gallery(tuple(drawn), undrawn)
