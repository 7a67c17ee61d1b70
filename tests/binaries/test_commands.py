"""What every command has in common: -h, --version, --quiet, --json, names that steer a terminal."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dvrenyi_plugin import __version__
from dvrenyi_plugin.binaries import (
    audit_dpsgd,
    audit_scores,
    audit_shk,
    audit_training,
    compare_testers,
    plan_audit,
)

TRAINING = (
    *("--dataset=digits", "--model=logistic", "--num_records=10", "--num_models=12"),
    *("--steps=4", "--num_workers=1"),
)
# Program, flags of a quick run, key of its JSON document.
PROGRAMS = {
    "audit_dpsgd": (audit_dpsgd, TRAINING, "lower_bound"),
    "audit_shk": (
        audit_shk,
        ("--num_samples=12", "--tester=threshold", "--cells=64"),
        "lower_bound",
    ),
    "audit_scores": (
        audit_scores,
        (str(pathlib.Path(__file__).with_name("scores.csv")), "--claim=mu=1"),
        "lower_bound",
    ),
    "audit_training": (
        audit_training,
        (
            *("training_examples:numpy_honest", "--observe=training_examples:numpy_score"),
            *("--pair=training_examples:PAIR", "--claim=mu=1", "--num_models=10", "--workers=1"),
        ),
        "lower_bound",
    ),
    "compare_testers": (
        compare_testers,
        (
            *("--mechanisms=gaussian", "--testers=threshold", "--sample_sizes=50"),
            *("--repeats=1", "--nodp_auditorium"),
        ),
        "summaries",
    ),
    "plan_audit": (plan_audit, ("--alphas=2",), "refute"),
}


@pytest.fixture(params=PROGRAMS)
def program(request, tmp_path):
    module, flags, key = PROGRAMS[request.param]
    flags = (*flags, f"--output_dir={tmp_path / 'out'}")
    return lambda *more: module.main([request.param, *flags, *more]), key


def test_messages_help_has_a_short_name_and_is_short(program, capsys):
    run, _ = program
    assert run("-h") == 0
    short = capsys.readouterr().out
    assert run("--help") == 0
    assert capsys.readouterr().out == short
    assert 15 < short.count("\n") < 200
    assert max(map(len, short.splitlines())) <= 130
    for flag in ("  --json", "  -q, --quiet", "  --version", "  -h, --help", "  --output_dir=TEXT"):
        assert flag in short


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("flag", ["--help", "--seed=x", "--failure_probability=2"])
def test_flags_are_read_without_a_slow_library(name, flag, tmp_path):
    """The libraries take seconds to load: a mistaken flag is answered before."""
    slow = "torch", "opacus", "scipy", "matplotlib", "sklearn", "jinja2", "tensorflow"
    if flag.startswith("--failure"):
        # The claim of DP-SGD and the registry of a comparison are looked at first.
        slow = slow[:2] + slow[3:]
    code = (
        f"import sys; from dvrenyi_plugin.binaries.{name} import main;"
        f" main({[name, flag, f'--output_dir={tmp_path / name}']});"
        f" print([one for one in {slow} if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_flag_says_what_it_means(name):
    program = PROGRAMS[name][0].define_flags()
    for flag in {program[flag].name: program[flag] for flag in program}.values():
        assert len(flag.help.split()) > 1, flag.name
        assert "`" not in flag.help and "None" not in flag.help, flag.name


def test_messages_version(program, capsys):
    run, _ = program
    assert run("--version") == 0
    assert capsys.readouterr().out.split()[1] == __version__


def test_messages_json_is_all_of_standard_output(program, capsys, tmp_path):
    run, key = program
    assert run("--json") == 0
    captured = capsys.readouterr()
    assert key in json.loads(captured.out)
    files = [name for name in os.listdir(tmp_path / "out") if name.endswith(".json")]
    assert any((tmp_path / "out" / name).read_text() == captured.out for name in files)


def test_messages_quiet_says_nothing_unless_asked_for_json(program, capsys):
    run, _ = program
    assert run("--quiet") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_messages_errors_are_one_line_of_what_can_be_shown(program, capsys):
    run, _ = program
    assert run("--\x1b[2Jx\u202e=1") == 1
    error = capsys.readouterr().err
    assert error.rstrip("\n").isprintable()
    assert r"\x1b[2Jx\u202e" in error


def test_messages_one_name_for_the_orders(capsys, tmp_path):
    for name in ("alpha", "alphas"):
        assert plan_audit.main(["plan_audit", f"--{name}=2,3", "--json"]) == 0
        alphas = [entry["alpha"] for entry in json.loads(capsys.readouterr().out)["refute"]]
        assert alphas == [None, 2.0, 3.0]
        for module in (audit_dpsgd, audit_shk):
            assert module.main(["x", f"--{name}=1", f"--output_dir={tmp_path / 'out'}"]) == 1
            assert "must be a finite number > 1, got 1.0" in capsys.readouterr().err
    assert audit_dpsgd.main(["x", "--alphas=2,3", f"--output_dir={tmp_path / 'out'}"]) == 1
    assert "alphas must be one order for this audit" in capsys.readouterr().err


def test_messages_a_hostile_output_folder_reaches_the_terminal_as_text(capsys, tmp_path):
    folder = tmp_path / "\x1b[31m\u202e"
    flags = ("--num_samples=12", "--tester=threshold", "--cells=64", f"--output_dir={folder}")
    assert audit_shk.main(["audit_shk", *flags]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out
    assert r"\x1b[31m\u202e/report.md" in out


def test_messages_a_hostile_name_reaches_the_report_as_text(capsys, tmp_path):
    pair = tmp_path / "<b>](javascript:x)|`\u202e.npz"
    np.savez(pair, dataset1=np.zeros((5, 1)), dataset2=np.full((5, 1), [0.0]))
    flags = ("--num_samples=12", "--tester=threshold", "--cells=64", f"--pair={pair}")
    assert audit_shk.main(["audit_shk", *flags, f"--output_dir={tmp_path / 'out'}"]) == 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert r"&lt;b&gt;\](javascript:x)\|\`\\u202e.npz" in report
    assert "None" not in report and "{'" not in report


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        (("--epsilon=1e300", "--delta=1e-5"), "epsilon must be"),
        (("--epsilon=1e300", "--delta=1e-5", "--sample_rate=0.1"), "epsilon and delta must be"),
        (("--mu=1e-40",), "mu must be"),
    ],
)
def test_messages_a_claim_out_of_reach_is_answered_in_its_own_terms(flags, start, capsys, tmp_path):
    assert audit_dpsgd.main(["x", *flags, f"--output_dir={tmp_path / 'out'}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"audit_dpsgd: {start}")
    assert "noise_multiplier" not in error
    assert "1e+300" in error or "1e-40" in error
