"""Flags of every command from a YAML file."""

from __future__ import annotations

import json
import pathlib

import pytest

from dvrenyi_plugin.binaries import audit_dpsgd, audit_shk, compare_testers, plan_audit


@pytest.fixture
def plan(tmp_path, capsys):
    """Returns a function that plans with a configuration of this text, and more flags."""

    def run(text: str, *flags: str):
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        status = plan_audit.main(["plan_audit", f"--config={path}", "--json", *flags])
        captured = capsys.readouterr()
        if status == 0:
            return json.loads(captured.out)["config"]
        assert status == 1 and captured.err.count("\n") == 1
        return captured.err

    return run


def test_values_are_read_as_on_the_command_line(plan) -> None:
    config = plan(
        "# a comment\nmu: 2\nfailure_probability: 1e-3\nalphas: [2, 3.5]\nsequential: yes"
    )
    assert (config["mu"], config["failure_probability"]) == (2.0, 1e-3)
    assert config["alphas"] == [2.0, 3.5] and config["sequential"] is True
    assert plan("alphas: 2,3")["alphas"] == [2.0, 3.0]
    assert plan("batch_models: 010")["batch_models"] == 10
    assert plan("")["mu"] == plan("{}")["mu"]


def test_the_command_line_beats_the_file_by_any_name_of_a_flag(plan) -> None:
    assert plan("mu: 2", "--mu=3")["mu"] == 3.0
    assert plan("alpha: 3")["alphas"] == [3.0]
    for flag in ("--alpha=2", "--alphas=2"):
        for name in ("alpha", "alphas"):
            assert plan(f"{name}: 3", flag)["alphas"] == [2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moo: 2", "must name flags of this program, got 'moo'"),
        ("sequental: true", "got 'sequental'; did you mean sequential?"),
        ("config: other.yaml", "got 'config'"),
        ("help: true", "got 'help'"),
        ("flagfile: x", "got 'flagfile'"),
        ("mu: two", "flag --mu=two"),
        ("mu: [1, 2]", "mu must be one value, got a list"),
        ("mu: {a: 1}", "mu must be a value or a list of values, got something with parts"),
        ("mu:", "mu must be a value or a list of values, got nothing"),
        ("mu: 1\nmu: 2", "must name each flag once, got 'mu' twice"),
        ("- mu", "must be a mapping of flags to values"),
        ("mu: [1", "must be YAML"),
        ("? [1]\n: 2", "got 'a key of several parts'"),
        ("mu: -1", "mu must be"),
        ("sequential: 3", "flag --sequential=3"),
    ],
)
def test_what_is_no_configuration_is_told_in_one_line(text, message, plan) -> None:
    error = plan(text)
    assert isinstance(error, str) and message in error


def test_a_file_that_cannot_be_read_is_named(plan, tmp_path, capsys) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        assert plan_audit.main(["plan_audit", f"--config={path}"]) == 1
        assert "config" in capsys.readouterr().err
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert plan_audit.main(["plan_audit", f"--config={tmp_path / 'binary.yaml'}"]) == 1
    assert "must be YAML" in capsys.readouterr().err


@pytest.mark.parametrize("program", [audit_dpsgd, audit_shk, compare_testers, plan_audit])
def test_every_command_takes_a_file(program, tmp_path: pathlib.Path, capsys) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("seed: minus one\n" if program is not plan_audit else "mu: minus one\n")
    assert program.main(["x", f"--config={path}", f"--output_dir={tmp_path / 'out'}"]) == 1
    assert "minus one" in capsys.readouterr().err
