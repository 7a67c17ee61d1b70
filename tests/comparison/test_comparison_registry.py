"""Mechanisms and testers by name, ours and the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison_parts import EXTRA

from dvrenyi_plugin.comparison import registry
from dvrenyi_plugin.comparison.registry import (
    find_mechanism,
    find_tester,
    load_modules,
    register_tester,
)


class TestRegistry:
    def test_file_adds_to_both_lists_and_runs_once(self, extra: str) -> None:
        load_modules((extra, extra))
        assert find_mechanism("counts").pool_size == 100
        assert find_tester("wants_delta").scale == registry.DELTA

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x = 1", "registers nothing"),
            ("1 / 0", "ZeroDivisionError"),
            ("def f(:", "SyntaxError"),
            (EXTRA + "\nraise SystemExit(3)", "SystemExit: 3"),
            (
                EXTRA.replace('"reads"', '"reads", family="a\\nb"'),
                "family must be one line of text",
            ),
            (EXTRA.replace('"reads"', '"sequential"'), "'sequential', a tester that is registered"),
            (EXTRA.replace('"reads"', '"Two Words"'), "small letters"),
        ],
    )
    def test_bad_file_is_refused_and_leaves_nothing(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        path = tmp_path / "bad.py"
        path.write_text(text)
        before = registry.tester_names(), registry.mechanism_names()
        with pytest.raises(ValueError, match="bad") as caught:
            load_modules((str(path),))
        assert message in str(caught.value)
        assert (registry.tester_names(), registry.mechanism_names()) == before

    def test_missing_file_and_unknown_names_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"file that exists, got 'nowhere\.py'"):
            load_modules(("nowhere.py",))
        with pytest.raises(ValueError, match=r"one of sequential, .* got 'oracle'"):
            find_tester("oracle")
        with pytest.raises(ValueError, match=r"one of gaussian, .* got 'oracle'"):
            find_mechanism("oracle")
        with pytest.raises(ValueError, match="scale"):
            register_tester("other", scale="bits")
