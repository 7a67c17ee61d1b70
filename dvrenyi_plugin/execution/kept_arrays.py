"""Results that take minutes to compute, kept beside the models, so that a resumed audit does not
compute them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from dvrenyi_plugin._internal.files import refuse_link
from dvrenyi_plugin._internal.sealed_arrays import read_arrays, write_arrays
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint

Arrays = dict[str, NDArray[Any]]


class KeptArrays:
    """Arrays in files of a folder, each named after what decides it."""

    def __init__(self, folder: str | os.PathLike[str] | None, *, resume: bool = True) -> None:
        """Makes nothing yet.

        Args:
          folder: of the files; missing folders are made. None keeps nothing.
          resume: use what is there. If not, everything is computed again, and what is there
            replaced.
        """
        self._folder = None if folder is None else os.path.abspath(folder)
        self._resume = resume
        self._unsaved: dict[str, tuple[str, Arrays]] = {}

    def get(
        self, name: str, decided_by: ExperimentFingerprint, compute: Callable[[], Arrays]
    ) -> Arrays:
        """Returns the arrays in the file, or computes them; `save` then writes them.

        Args:
          name: what the arrays are; the file's name begins with it.
          decided_by: all that the arrays depend on.
          compute: returns them by name.

        Raises:
          ValueError: the file is damaged.
          OSError: it cannot be read.
        """
        if self._folder is None:
            return compute()
        path = os.path.join(self._folder, f"{name}-{decided_by.digest[:12]}.npz")
        refuse_link("output_dir", path)
        if self._resume and os.path.exists(path):
            try:
                return read_arrays(path, decided_by.digest)
            except ValueError as error:
                raise ValueError(f"{error}: delete it, and it is computed again") from None
        arrays = compute()
        self._unsaved[path] = (decided_by.digest, arrays)
        return arrays

    def save(self) -> None:
        """Writes what was computed since the last call.

        Raises:
          OSError: it cannot be written.
        """
        for path, (digest, arrays) in self._unsaved.items():
            write_arrays(path, arrays, digest)
        self._unsaved.clear()
