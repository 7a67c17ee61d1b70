"""The comparison from the command line: files, resuming, a user's own tester, errors in
one line.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dvrenyi_plugin.binaries.compare_testers import main
from dvrenyi_plugin.comparison import registry
from dvrenyi_plugin.comparison.registry import load_modules
from dvrenyi_plugin.comparison.settings import BUILT_IN_MODULES

OWN_TESTER = """
from dvrenyi_plugin.comparison.registry import register_tester

class Never:
    privacy_property = None
    def estimate_lower_bound(self, samples1, samples2, failure_probability): return 0.0
    def reject_property(self, lower_bound): return False

@register_tester("never", family="mine")
def never(task): return Never()
"""


FAILS_WHEN_BROKEN = OWN_TESTER.replace("return 0.0", "raise RuntimeError('no luck')")


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    load_modules(BUILT_IN_MODULES)
    monkeypatch.setattr(registry, "_MECHANISMS", dict(registry._MECHANISMS))
    monkeypatch.setattr(registry, "_TESTERS", dict(registry._TESTERS))
    monkeypatch.setattr(registry, "_LOADED_FILES", set())


def run(tmp_path: Path, *flags: str) -> int:
    return main(
        ["compare_testers", f"--output_dir={tmp_path / 'out'}", "--nodp_auditorium", *flags]
    )


def results(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "out" / "comparison.json").read_text())
    return content


def test_whole_run_with_the_users_own_tester_and_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_TESTER)
    flags = [
        f"--extra_module={own}",
        "--mechanisms=gaussian,randomized_response",
        "--testers=sequential,threshold,never",
        "--sample_sizes=400",
        "--repeats=3",
    ]
    assert run(tmp_path, *flags) == 0
    captured = capsys.readouterr()
    assert "`sequential` refuted 0 of 6 honest claims" in captured.out
    assert "[12/12]" in captured.err
    content = results(tmp_path)
    power = {(s["mechanism"], s["tester"]): s["power"] for s in content["summaries"]}
    # True divergences are 4.0 against 1.0 and 1.9 against 0.74.
    assert power["gaussian", "sequential"] == power["randomized_response", "sequential"] == 1.0
    assert power["gaussian", "never"] == 0.0
    assert content["num_missing"] == 0
    with (tmp_path / "out" / "comparison.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "<svg" in page and "never" in page
    assert run(tmp_path, *flags) == 0
    assert "[1" not in capsys.readouterr().err


def test_quick_leaves_out_what_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--quick", "--time_limit_s=0") == 0
    content = results(tmp_path)
    assert set(content["testers"]) == {"sequential", "threshold", "gdp_baseline"}
    assert "dp_sgd_opacus" not in content["mechanisms"]
    assert "shk" in content["mechanisms"]
    assert content["settings"]["sample_sizes"] == [200, 800]
    assert content["num_missing"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--testers=oracle"], "tester must be one of sequential"),
        (["--mechanisms=oracle"], "mechanism must be one of gaussian"),
        (
            ["--sample_sizes=many"],
            "sample_sizes must be whole numbers with commas between, got many",
        ),
        (["--sample_sizes=3"], "sample_sizes must be an integer >= 20, got 3"),
        (["--variants=good"], "variants must be one of honest, broken, got 'good'"),
        (["--extra_module=nowhere.py"], "extra_module must be a file that exists"),
        (["--failure_probability=0"], "failure_probability must be"),
        (["positional"], "only flags are taken"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert run(tmp_path, *flags) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("compare_testers: ") and message in lines[0]
    assert not (tmp_path / "out").exists()


def test_output_dir_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare_testers", "--nodp_auditorium"]) == 1
    assert "output_dir is required: name a folder" in capsys.readouterr().err


def test_help_lists_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare_testers", "--help"]) == 0
    assert "--extra_module" in capsys.readouterr().out


def test_f19_cells_without_a_result_are_counted_and_end_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(FAILS_WHEN_BROKEN)
    flags = [
        f"--extra_module={own}",
        "--mechanisms=gaussian,laplace",
        "--testers=threshold,never",
        "--sample_sizes=50",
        "--repeats=2",
    ]
    assert run(tmp_path, *flags) == 1
    captured = capsys.readouterr()
    sentence = "4 of 8 cells ended without a result"
    assert sentence in captured.out
    assert f"compare_testers: {sentence}: --retry_failed" in captured.err.splitlines()[-1]
    assert results(tmp_path)["num_failed"] == 4
    report = (tmp_path / "out" / "comparison.md").read_text()
    (line,) = [x for x in report.splitlines() if x.startswith("| never | mine |")]
    assert line == "| never | mine | D_alpha | - | - | - | 0 | - |"
    (line,) = [x for x in report.splitlines() if x.startswith("| threshold | dvrenyi")]
    assert line.endswith("| yes |")
    # They are not run again without being asked for, and are still not there.
    assert run(tmp_path, *flags) == 1
    assert run(tmp_path, *flags, "--allow_failures") == 0


DOCUMENTATION = Path(__file__).parents[2] / "docs" / "side_by_side.md"


@pytest.mark.skipif(not DOCUMENTATION.exists(), reason="this build leaves out docs/")
def test_example_of_the_documentation(tmp_path: Path) -> None:
    text = DOCUMENTATION.read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    own = tmp_path / "mine.py"
    own.write_text(example)
    flags = [
        f"--extra_module={own}",
        "--mechanisms=gaussian,mine",
        "--testers=one_event",
        "--repeats=4",
        "--sample_sizes=4000",
    ]
    assert run(tmp_path, *flags) == 0
    assert registry.find_tester("sequential_network").slow
    for summary in results(tmp_path)["summaries"]:
        assert summary["status"] == "ok"
        # True divergences are 4.0 and 1.0, the claim is 1.0.
        assert summary["power"] == 1.0 and summary["false_alarms"] == 0.0
        assert 0.2 < summary["fraction_broken"] <= 1.0
