"""What a newcomer meets first: a forgotten or mistaken folder, file or list."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from dvrenyi_plugin.binaries import audit_dpsgd, audit_shk, compare_testers, plan_audit
from dvrenyi_plugin.binaries._output_directory import staged_output
from dvrenyi_plugin.bounds.paper_theorems import markov_lower_bound


def _fails(program, capsys, *flags: str) -> str:
    assert program.main([program.__name__, *flags]) == 1
    return str(capsys.readouterr().err)


def test_a_comparison_is_not_written_into_an_audits_folder(tmp_path: pathlib.Path, capsys) -> None:
    (tmp_path / "report.json").write_text("{}")
    error = _fails(compare_testers, capsys, "--quick", f"--output_dir={tmp_path}")
    assert "holds the result of another program, an audit" in error
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("quiet", ["--quiet", "-q", "--json"])
def test_what_is_shown_is_no_setting_of_a_report(quiet, tmp_path: pathlib.Path) -> None:
    folder = f"--output_dir={tmp_path}"
    assert plan_audit.main(["plan_audit", folder]) == 0
    assert plan_audit.main(["plan_audit", folder, quiet]) == 0
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert not {"h", "q", "quiet", "json", "help"} & set(settings)


@pytest.mark.parametrize("program", [audit_dpsgd, audit_shk, plan_audit])
def test_nothing_else_is_written_into_a_comparisons_folder(program, tmp_path, capsys) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    error = _fails(program, capsys, f"--output_dir={tmp_path}")
    assert "holds the result of another program, compare_testers" in error


def test_a_refusal_names_the_other_program_or_five_settings(tmp_path: pathlib.Path) -> None:
    def write(settings: dict[str, object]) -> None:
        with staged_output(str(tmp_path), "report.json", settings=settings) as staging:
            pathlib.Path(staging, "report.json").write_text(json.dumps({}))

    many = {f"flag{index}": index for index in range(8)}
    write({"program": "one"} | many)
    with pytest.raises(ValueError, match=r"of another program, one, and not of two; choose"):
        write({"program": "two"})
    with pytest.raises(ValueError, match=r"flag4 4 and not None, and 3 more; choose"):
        write({"program": "one"})


@pytest.mark.parametrize("program", [audit_dpsgd, audit_shk, compare_testers])
def test_a_forgotten_output_dir_is_said_to_be_required(program, capsys) -> None:
    assert "output_dir is required" in _fails(program, capsys)


def test_a_missing_file_is_named_with_its_argument(tmp_path: pathlib.Path, capsys) -> None:
    out = f"--output_dir={tmp_path / 'out'}"
    missing = tmp_path / "missing.npz"
    error = _fails(audit_dpsgd, capsys, out, f"--dataset={missing}")
    assert f"dataset '{missing}' cannot be used: No such file or directory" in error


def test_lists_in_messages_read_as_they_were_given(tmp_path: pathlib.Path, capsys) -> None:
    error = _fails(audit_dpsgd, capsys, f"--output_dir={tmp_path}", "--alphas=2,4")
    assert "got 2,4" in error


def test_help_has_no_dangling_punctuation(capsys) -> None:
    assert compare_testers.main(["compare_testers", "--help"]) == 0
    assert "once;" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [1e307, -1e307])
def test_log_ratios_that_would_overflow_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="log_ratios must be at most 1e\\+290"):
        markov_lower_bound(100.0, np.array([0.0, value]), 0.05)
