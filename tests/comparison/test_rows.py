"""Rows on disk: whole, of one comparison, and never used when they were changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison_parts import row

from dvrenyi_plugin.comparison.cells import (
    CellResult,
)
from dvrenyi_plugin.comparison.rows import RowStore
from dvrenyi_plugin.comparison.settings import HONEST

HEADER = {"seed": 0}


def stored(path: Path, source: str | None = "", header: Any = None) -> list[CellResult]:
    with RowStore.open(str(path), header or HEADER, lambda key: source) as store:
        return list(store.rows.values())


class TestRowStore:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "rows.jsonl"
        with RowStore.open(str(path), HEADER, lambda key: "") as store:
            store.append(row("sequential", HONEST, [1.0], 0))
            store.append(row("threshold", HONEST, [2.0], 1))
        return path

    def test_a_row_that_was_cut_off_is_dropped(self, path: Path) -> None:
        assert len(stored(path)) == 2
        path.write_bytes(path.read_bytes()[:-20])
        assert [result.key.tester for result in stored(path)] == ["sequential"]
        assert path.read_bytes().endswith(b"}\n")

    @pytest.mark.parametrize("length", [0, 1, 9, 30])
    def test_a_header_that_was_cut_off_is_written_anew(self, path: Path, length: int) -> None:
        path.write_bytes(path.read_bytes()[:length])
        assert stored(path) == []
        assert json.loads(path.read_text()) == {"comparison": {**HEADER, "layout": 2}}

    @pytest.mark.parametrize("garbage", [b"{", b"\x00\xff\x00", b"[1]", b"", b'{"key": {}}'])
    def test_a_damaged_line_is_named_and_kept(self, path: Path, garbage: bytes) -> None:
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([lines[0], garbage, *lines[1:]]))
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"line 2 of .*rows\.jsonl is damaged"):
            stored(path)
        assert path.read_bytes() == before

    def test_files_of_others_are_refused_and_kept(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        for content in (b"mine", b"mine\n", b'{"comparison": {"seed": 0, "version": "0"}}\n'):
            other.write_bytes(content)
            with pytest.raises(ValueError, match=r"must hold rows|another comparison"):
                stored(other)
            assert other.read_bytes() == content
        with pytest.raises(ValueError, match="another comparison"):
            stored(path, header={"seed": 1})

    def test_one_process_at_a_time(self, path: Path) -> None:
        with (
            RowStore.open(str(path), HEADER, lambda key: ""),
            pytest.raises(ValueError, match="in use by another process"),
        ):
            stored(path)
        assert len(stored(path)) == 2

    def test_rows_of_a_file_that_was_changed_are_passed_over(self, path: Path) -> None:
        assert stored(path, "other") == stored(path, None) == []
        assert len(stored(path)) == 2
