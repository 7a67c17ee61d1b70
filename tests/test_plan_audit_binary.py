"""The planning program: tables, files, one-line errors."""

import json
import os
import subprocess
import sys

import pytest

from dvrenyi_plugin.audits.audit_plan import AuditPlanConfig, plan_audit
from dvrenyi_plugin.binaries import plan_audit as program


def plan(*flags):
    return program.main(["plan_audit", *flags])


def test_a_plan_is_printed_and_written(tmp_path, capsys):
    folder = tmp_path / "plans" / "first"
    status = plan(
        "--mu=1", "--noise_scale=0.5", "--alpha=1.25,2", "--power=0.8", f"--output_dir={folder}"
    )
    assert status == 0
    assert sorted(os.listdir(folder)) == ["plan.json", "plan.md", "settings.json"]
    printed = capsys.readouterr().out
    assert printed == (folder / "plan.md").read_text()
    assert "if the true mu is 2" in printed
    values = json.loads((folder / "plan.json").read_text())
    assert values["config"]["true_mu"] == 2.0
    assert [entry["alpha"] for entry in values["refute"]] == [1.25, 2.0]
    for entry in values["refute"] + values["certify"]:
        assert entry["failure_probability"] == 0.025
        assert entry["models_for_power"]["0.8"] > 0
    # The claim mu = 1 allows alpha / 2; the assumed truth has four times of it.
    assert values["refute"][1]["epsilon"] == 1.0
    assert values["refute"][1]["divergence"] == pytest.approx(4.0)
    assert values["certify"][1]["epsilon"] == 0.5


def test_a_kept_claim_is_never_refuted(capsys):
    assert plan("--mu=1", "--true_mu=1", "--alpha=2") == 0
    refuting = capsys.readouterr().out.split("## Models a world to certify")[0]
    row = next(line for line in refuting.splitlines() if line.startswith("| 2 "))
    assert row.count("never") == 3
    assert row.count("0%") == 4


def test_more_leakage_and_less_certainty_need_fewer_models():
    def models(true_mu=2.0, failure_probability=0.05, num_statements=2):
        config = AuditPlanConfig(
            mu=1.0,
            true_mu=true_mu,
            alphas=(2.0,),
            failure_probability=failure_probability,
            num_statements=num_statements,
        )
        return plan_audit(config).refute[0].pairs_for_power(0.9)

    assert models(true_mu=3.0) < models() < models(true_mu=1.5)
    assert models(failure_probability=0.2) < models() < models(failure_probability=1e-4)
    assert models(num_statements=1) < models()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--mu=0",), "mu"),
        (("--mu=nan",), "mu"),
        (("--mu=1e300",), "mu"),
        (("--true_mu=1e300",), "true_mu"),
        (("--true_mu=-1",), "true_mu"),
        (("--noise_scale=0",), "noise_scale"),
        (("--true_mu=2", "--noise_scale=0.5"), "noise_scale"),
        (("--alpha=1",), "alpha"),
        (("--alpha=two",), "alpha"),
        (("--alpha=",), "alpha"),
        (("--failure_probability=1",), "failure_probability"),
        (("--fraction=1",), "fraction"),
        (("--power=1",), "power"),
        (("--num_models=1.5",), "num_models"),
        (("--num_models=0",), "num_models"),
        (("--num_statements=0",), "num_statements"),
        (("--output_dir=",), "output_dir"),
        (("extra",), "extra"),
    ],
)
def test_what_cannot_be_planned_is_one_line_on_standard_error(flags, named, capsys):
    assert plan(*flags) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("plan_audit: ")
    assert named in captured.err
    assert captured.err.count("\n") == 1


def test_planning_needs_no_torch():
    code = (
        "import sys; from dvrenyi_plugin.binaries.plan_audit import main;"
        "status = main(['plan_audit', '--alpha=2']);"
        "sys.exit(status or ('torch' in sys.modules) or ('matplotlib' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
