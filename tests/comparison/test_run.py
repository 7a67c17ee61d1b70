"""Runs: rows that survive failures, and go on where an earlier run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_parts import EXTRA, config

from dvrenyi_plugin.comparison import registry
from dvrenyi_plugin.comparison.cells import (
    DIED,
    ERROR,
    NOT_APPLICABLE,
    OK,
    TIMEOUT,
    CellKey,
    CellResult,
)
from dvrenyi_plugin.comparison.files import to_json
from dvrenyi_plugin.comparison.page import to_html
from dvrenyi_plugin.comparison.render import verdict_lines
from dvrenyi_plugin.comparison.run import run_comparison
from dvrenyi_plugin.comparison.settings import HONEST


class TestRuns:
    def test_a_file_that_was_changed_has_its_cells_run_again(self, tmp_path: Path) -> None:
        path = tmp_path / "own.py"
        text = (
            "from dvrenyi_plugin.comparison.registry import register_tester\n"
            "class Own:\n"
            "    privacy_property = None\n"
            "    def estimate_lower_bound(self, samples1, samples2, beta): return 1.0\n"
            "    def reject_property(self, lower_bound): return False\n"
            "@register_tester('own')\n"
            "def own(task): return Own()\n"
        )
        seen: list[str] = []
        for answer, expected in (
            ("1.0", ["threshold", "own"]),
            ("1.0", []),
            ("2.0", ["own"]),
            ("1.0", []),
        ):
            path.write_text(text.replace("1.0", answer))
            seen.clear()
            comparison = run_comparison(
                config(tmp_path, testers=("threshold", "own"), modules=(str(path),)),
                lambda done, planned, result: seen.append(result.key.tester),
            )
            assert seen == expected
            assert comparison.rows[1].bounds[0][0] == float(answer)
            registry._LOADED_FILES.clear()
            del registry._TESTERS["own"]

    def test_settings_of_numpy_and_a_tester_that_leaves_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "own.py"
        own.write_text(
            EXTRA.replace("pool_size=100", "pool_size=np.int64(100)")
            + "def leaves(first, second):\n    os.chdir('/')\n    return 0.0\n"
            + "@register_tester('leaves')\ndef left(task): return Reads(leaves)\n"
        )
        monkeypatch.chdir(tmp_path)
        comparison = run_comparison(
            config(
                tmp_path,
                output_dir="relative",
                mechanisms=("counts",),
                testers=("leaves", "reads"),
                modules=("own.py",),
                sample_sizes=(np.int64(30),),
                repeats=np.int64(2),
                seed=np.int64(0),
            )
        )
        assert [row.status for row in comparison.rows] == [OK, OK]
        json.loads(to_json(comparison))

    def test_output_dir_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine")
        with pytest.raises(ValueError, match="output_dir must be a folder, got the file"):
            run_comparison(config(tmp_path))

    def test_failures_are_rows(self, tmp_path: Path, extra: str) -> None:
        comparison = run_comparison(
            config(
                tmp_path,
                mechanisms=("gaussian", "counts"),
                testers=("hangs", "dies", "fails", "nan_second", "wants_delta", "reads", "spoils"),
                modules=(extra,),
                timeout_s=4.0,
                num_workers=2,
            )
        )
        rows = {(row.key.mechanism, row.key.tester): row for row in comparison.rows}
        assert comparison.num_missing == 0
        gaussian = {tester: rows["gaussian", tester] for tester in comparison.testers}
        assert gaussian["hangs"].status == TIMEOUT
        assert gaussian["dies"].status == DIED
        assert "exit code 7" in gaussian["dies"].message
        assert gaussian["fails"].status == ERROR
        assert gaussian["fails"].message == "RuntimeError: no luck <b> (raised by tester)"
        assert rows["counts", "wants_delta"].status == NOT_APPLICABLE
        assert gaussian["nan_second"].num_invalid == 2
        assert gaussian["nan_second"].refuted == (False, False)
        # One set of samples for all testers, whatever one of them does to its arguments.
        assert gaussian["reads"].bounds == gaussian["spoils"].bounds
        assert len(set(gaussian["reads"].bounds)) == 2
        # Disjoint parts of the pool: 0..29 and 30..59.
        assert rows["counts", "reads"].bounds[0][0] == sum(range(30))
        assert rows["counts", "reads"].bounds[1][0] == sum(range(30, 60))
        page = to_html(comparison, "t")
        assert "no luck &lt;b&gt;" in page and "luck <b>" not in page

    def test_pool_that_cannot_be_drawn_is_rows(self, tmp_path: Path, extra: str) -> None:
        comparison = run_comparison(
            config(tmp_path, mechanisms=("cannot_be_sampled",), modules=(extra,))
        )
        (row,) = comparison.rows
        assert row.status == ERROR
        assert row.message.startswith("drawing samples: ValueError: samples must be finite")

    def test_resumes_and_does_not_depend_on_workers(self, tmp_path: Path) -> None:
        settings = {"testers": ("threshold", "gdp_baseline"), "sample_sizes": (30, 40)}
        seen: list[CellKey] = []

        def note(done: int, planned: int, result: CellResult) -> None:
            seen.append(result.key)

        whole = run_comparison(config(tmp_path, **settings), note)
        assert len(seen) == 4
        rows_path = tmp_path / "out" / "rows.jsonl"
        lines = rows_path.read_text().splitlines()
        # Killed in the middle of writing the last row.
        rows_path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:50])
        seen.clear()
        again = run_comparison(config(tmp_path, num_workers=2, **settings), note)
        assert len(seen) == 1
        assert [r.bounds for r in again.rows] == [r.bounds for r in whole.rows]
        seen.clear()
        more = run_comparison(config(tmp_path, repeats=3, **settings), note)
        assert len(seen) == 4
        # The first audits are the same ones.
        assert [row.bounds[:2] for row in more.rows] == [row.bounds for row in whole.rows]
        with pytest.raises(ValueError, match="rows of another comparison"):
            run_comparison(config(tmp_path, seed=1, **settings))

    def test_time_limit_leaves_the_rest_for_later(self, tmp_path: Path) -> None:
        comparison = run_comparison(config(tmp_path, time_limit_s=0.0))
        assert comparison.rows == ()
        assert "1 planned cells have not been run yet." in verdict_lines(comparison)[-1]

    @pytest.mark.parametrize(
        "changes",
        [
            {"output_dir": ""},
            {"variants": ("good",)},
            {"sample_sizes": (5,)},
            {"sample_sizes": (30, 30)},
            {"mechanisms": ("gaussian", "gaussian")},
            {"testers": ("threshold", "threshold")},
            {"variants": (HONEST, HONEST)},
            {"repeats": 0},
            {"failure_probability": 1.0},
            {"timeout_s": 0.0},
            {"num_workers": 0},
        ],
    )
    def test_config_is_checked(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(changes))):
            config(tmp_path, **changes)
