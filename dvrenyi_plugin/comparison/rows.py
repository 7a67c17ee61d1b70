"""The rows of a comparison on disk: one line a cell, added as soon as the cell ends, by one process
at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from dvrenyi_plugin._internal.files import lock_file, open_for_appending
from dvrenyi_plugin._internal.sealed_json import seal, unseal
from dvrenyi_plugin.comparison.cells import CellKey, CellResult
from dvrenyi_plugin.comparison.registry import OWN_FAMILY, find_tester, tester_names

# In the header of every file: other layouts are other comparisons.
_LAYOUT = 2


class RowStore:
    """Rows that earlier runs left, and a file to add more to.

    A line that was cut off by a killed process is dropped. A later row of the same cell replaces an
    earlier one, which stays in the file.

    Attributes:
      rows: the last row of every cell.
    """

    def __init__(self, file: IO[bytes], header: str) -> None:
        self._file = file
        self._header = header
        self.rows: dict[CellKey, CellResult] = {}

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: str, header: Mapping[str, Any], source_of: Callable[[CellKey], str | None]
    ) -> Iterator[RowStore]:
        """Gives the rows in a file, which is made where there is none and belongs to this process
        until the end.

        Args:
          path: the file.
          header: plain values that all rows of a file have in common.
          source_of: what registered a cell's mechanism and tester. Rows of another source (a user's
            file was changed) are passed over, so that their cells are run again.

        Raises:
          ValueError: another process writes to the file, it has another header, or a line is
            damaged or was changed.
          OSError: it cannot be written, or is a symbolic link.
        """
        with open_for_appending(path) as file:
            if not lock_file(file):
                raise ValueError(
                    "output_dir is in use by another process, which writes to"
                    f" {os.path.abspath(path)}"
                )
            store = cls(file, json.dumps({"comparison": {**header, "layout": _LAYOUT}}))
            store._read(path, source_of)
            yield store

    def append(self, result: CellResult) -> None:
        """Adds a row."""
        self.rows[result.key] = result
        self._write(json.dumps(seal(json.loads(result.to_json()), self._header)))

    def _write(self, line: str) -> None:
        self._file.write((line + "\n").encode())
        self._file.flush()

    def _read(self, path: str, source_of: Callable[[CellKey], str | None]) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        expected = self._header
        if not whole and not content.startswith(expected[:15].encode()[: len(content)]):
            raise ValueError(f"{path} must hold rows of a comparison, got {content[:60]!r}")
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        if not whole:
            self._write(expected)
            return
        first, *lines = whole.decode("utf-8", errors="replace").split("\n")[:-1]
        if first != expected:
            raise ValueError(
                f"output_dir holds rows of another comparison ({first[:200]}); this one has"
                f" {expected}: choose another"
                " folder"
            )
        for number, line in enumerate(lines, start=2):
            try:
                result = CellResult.from_json(json.dumps(unseal(line, expected)))
                _check_verdicts(result)
            except ValueError as error:
                raise ValueError(
                    f"line {number} of {path} is damaged ({error}): delete that line, and its cell"
                    f" is run again"
                ) from None
            if result.source == source_of(result.key):
                self.rows[result.key] = result


def with_source(result: CellResult, source: str) -> CellResult:
    """Returns the result with what registered its mechanism and tester."""
    return dataclasses.replace(result, source=source)


def _check_verdicts(result: CellResult) -> None:
    """Raises ValueError where a verdict is not that of its bounds. Of a user's testers only they
    know what they refute.
    """
    name, claim = result.key.tester, result.claim
    if name not in tester_names() or find_tester(name).family != OWN_FAMILY or claim is None:
        return
    for bounds, refuted in zip(result.bounds, result.refuted, strict=True):
        if refuted != any(bound > claim for bound in bounds):
            verdict = "refute" if refuted else "keep"
            raise ValueError(f"bounds of {bounds} do not {verdict} a claim of {claim}")


__all__ = ["RowStore", "with_source"]
