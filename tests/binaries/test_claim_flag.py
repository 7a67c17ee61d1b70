"""--claim: one text in place of the flags that it decides."""

import json

import pytest

from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig, settings_of_claim
from dvrenyi_plugin.binaries import audit_dpsgd, plan_audit
from dvrenyi_plugin.privacy.conversions import gaussian_dp_mu


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("mu=2", {"mu": 2.0}),
        ("epsilon=8,delta=1e-5", {"epsilon": 8.0, "delta": 1e-5}),
        ("rho=0.5", {"mu": 1.0}),
        ("renyi:alpha=4,epsilon=2", {"mu": 1.0, "alpha": 4.0}),
        (
            "noise_multiplier=1.1,sample_rate=0.01,steps=1000",
            {"noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 1000},
        ),
    ],
)
def test_a_claim_decides_settings_that_make_it(text, settings):
    assert settings_of_claim(text) == settings
    claim = DpSgdExperimentConfig(**settings).claim()
    assert claim.noise_multiplier > 0.0


def test_an_audit_of_a_claim_is_that_of_its_settings(tmp_path, capsys):
    flags = ["--dataset=digits", "--model=logistic", "--num_records=10", "--num_models=12"]
    flags += ["--num_workers=1", "--quiet", "--json"]
    found = []
    for name, more in (
        ("claim", ["--claim=noise_multiplier=1,sample_rate=0.5,steps=3"]),
        ("flags", ["--noise_multiplier=1", "--sample_rate=0.5", "--steps=3"]),
    ):
        assert audit_dpsgd.main(["x", *flags, *more, f"--output_dir={tmp_path / name}"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["claims"] == found[1]["claims"]
    assert found[0]["settings"] == found[1]["settings"]


def test_a_plan_of_a_claim_is_that_of_its_mu(capsys):
    plans = []
    for flag in ("--claim=epsilon=8,delta=1e-5", f"--mu={float(gaussian_dp_mu(8.0, 1e-5))!r}"):
        assert plan_audit.main(["x", flag, "--json"]) == 0
        plans.append(json.loads(capsys.readouterr().out))
    assert plans[0]["refute"] == plans[1]["refute"]


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        (audit_dpsgd, ["--claim=mu=1", "--mu=1"], "claim must be given without mu, which it"),
        (audit_dpsgd, ["--claim=mu=1", "--epsilon=1"], "claim must be given without epsilon"),
        (audit_dpsgd, ["--claim=renyi:alpha=2,epsilon=1", "--alphas=3"], "without alphas, which"),
        (audit_dpsgd, ["--claim=epsilon=1"], "claim must be one that Gaussian noise can make"),
        (audit_dpsgd, ["--claim=sigma=1"], "claim must be written as one of mu=1;"),
        (audit_dpsgd, ["--claim=mu=0"], "mu must be a finite number > 0"),
        (plan_audit, ["--claim=mu=1", "--mu=1"], "claim must be given without mu, which it"),
        (plan_audit, ["--claim=noise_multiplier=1,sample_rate=0.1"], "must be one of full batches"),
    ],
)
def test_a_claim_that_does_not_fit_is_one_line(tmp_path, capsys, program, flags, message):
    assert program.main(["x", *flags, f"--output_dir={tmp_path / 'out'}"]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
