"""The planning program: tables, files, one-line errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dvrenyi_plugin.audits.audit_plan import plan_audit
from dvrenyi_plugin.audits.settings import AuditPlanConfig
from dvrenyi_plugin.binaries import plan_audit as program
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty, RenyiDp
from dvrenyi_plugin.testers import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    TradeOffPropertyTester,
    TradeOffPropertyTesterConfig,
)


def plan(*flags):
    return program.main(["plan_audit", *flags])


def test_a_plan_is_printed_and_written(tmp_path, capsys):
    folder = tmp_path / "plans" / "first"
    status = plan(
        "--mu=1", "--noise_scale=0.5", "--alphas=1.25,2", "--power=0.8", f"--output_dir={folder}"
    )
    assert status == 0
    assert sorted(os.listdir(folder)) == ["plan.html", "plan.json", "plan.md", "settings.json"]
    printed = capsys.readouterr().out
    assert printed == (folder / "plan.md").read_text()
    assert "if the true mu is 2" in printed
    assert "if the true mu is 2</h2>" in (folder / "plan.html").read_text()
    values = json.loads((folder / "plan.json").read_text())
    assert values["config"]["true_mu"] == 2.0
    assert [entry["alpha"] for entry in values["refute"]] == [None, 1.25, 2.0]
    for kind in ("refute", "certify"):
        shares = [entry["failure_probability"] for entry in values[kind]]
        assert shares == pytest.approx([0.045, 0.0025, 0.0025])
        assert all(entry["models_for_power"]["0.8"] > 0 for entry in values[kind])
    # The claim mu = 1 allows alpha / 2; the assumed truth has four times of it.
    assert values["refute"][2]["epsilon"] == 1.0
    assert values["refute"][2]["true_value"] == pytest.approx(4.0)
    assert values["certify"][2]["epsilon"] == 0.5
    assert (values["refute"][0]["epsilon"], values["refute"][0]["true_value"]) == (1.0, 2.0)


def test_orders_alone_share_the_whole_failure_probability():
    planned = plan_audit(AuditPlanConfig(mu=1.0, true_mu=2.0, tester="sequential"))
    assert [plan.failure_probability for plan in planned.refute] == [0.025] * 3


def test_the_planned_curve_is_refuted_by_the_planned_models():
    """Half of 60 audits of twice the claim, up to 4 standard errors."""
    config = AuditPlanConfig(mu=1.0, true_mu=2.0, sequential=True, batch_models=2)
    planned = plan_audit(config)
    models = planned.models_for_power(planned.refute[0], 0.5)
    claim = PrivacyProperty(gaussian_dp=GaussianDp(1.0))
    tester = TradeOffPropertyTester(TradeOffPropertyTesterConfig(claim))
    refuted = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        process = tester.start(config.curve_share)
        process.update(rng.normal(2.0, 1.0, models), rng.normal(0.0, 1.0, models))
        refuted += process.lower_bound > 1.0
    assert 15 <= refuted <= 45


def test_a_kept_claim_is_never_refuted(capsys):
    assert plan("--mu=1", "--true_mu=1", "--alphas=2") == 0
    refuting = capsys.readouterr().out.split("## Models per dataset to certify")[0]
    row = next(line for line in refuting.splitlines() if line.startswith("| D_2 "))
    assert row.count("never") == 3
    assert row.count("0%") == 4


def test_e10_an_audit_in_batches_with_the_planned_models_refutes(capsys):
    """Binomial(60, 0.9) falls below 46 with probability under 1e-3; without the warm-up it was 0 of
    60.
    """
    config = AuditPlanConfig(
        mu=1.0, true_mu=4.0, alphas=(2.0,), sequential=True, tester="sequential"
    )
    planned = plan_audit(config)
    models = planned.models_for_power(planned.refute[0], 0.9)
    assert models % config.batch_models == 0
    assert models <= 60
    tester = SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0)))
    )
    refuted = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        samples = rng.normal(4.0, 1.0, models), rng.normal(0.0, 1.0, models)
        for first, second in (samples, samples[::-1]):
            process = tester.start(0.025)
            process.update(first, second)
            if process.lower_bound > 1.0:
                refuted += 1
                break
    assert refuted >= 46


def test_e10_no_plan_of_batches_ends_before_the_first_bet():
    config = AuditPlanConfig(mu=1.0, true_mu=50.0, sequential=True, batch_models=2)
    planned = plan_audit(config)
    for entry in planned.refute:
        warm_up = TRADE_OFF_WARM_UP if entry.alpha is None else STREAM_WARM_UP
        assert entry.probability_to_refute(warm_up) == 0.0
        assert planned.models_for_power(entry, 0.5) > warm_up


def test_e10_the_answer_says_for_which_audit_it_is(capsys):
    assert plan("--alphas=2", "--true_mu=4") == 0
    fixed = capsys.readouterr().out
    assert plan("--alphas=2", "--true_mu=4", "--sequential", "--batch_models=10") == 0
    batches = capsys.readouterr().out
    assert "fixed number of models" in fixed
    assert "--sequential --tester=auto --batch_models=10" in batches
    assert "14 for the curve and 30 at an order, are not bet on" in batches


def test_e10_a_large_order_is_one_row_that_says_never(capsys):
    assert plan("--alphas=2,64", "--true_mu=4") == 0
    refuting = capsys.readouterr().out.split("## Models per dataset to certify")[0]
    small, large = (
        next(line for line in refuting.splitlines() if line.startswith(f"| D_{alpha} "))
        for alpha in (2, 64)
    )
    assert "never" not in small
    assert large.count("never") == 3


def test_more_leakage_and_less_certainty_need_fewer_models():
    def models(true_mu=2.0, failure_probability=0.05, num_statements=2):
        config = AuditPlanConfig(
            mu=1.0,
            true_mu=true_mu,
            alphas=(2.0,),
            failure_probability=failure_probability,
            num_statements=num_statements,
            tester="sequential",
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
        (("--alphas=1",), "alphas"),
        (("--alphas=two",), "alphas"),
        (("--alphas=",), "alphas"),
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
        "status = main(['plan_audit', '--alphas=2']);"
        "sys.exit(status or ('torch' in sys.modules) or ('matplotlib' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_how_a_claim_of_epsilon_and_delta_was_read_is_said(capsys):
    assert plan("--claim=epsilon=8,delta=1e-5") == 0
    text = capsys.readouterr().out
    assert "read as that of Gaussian noise, mu = 1.666" in text
    assert "takes at least 4,480 models" in text.replace("\n", " ")
