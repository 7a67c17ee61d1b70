"""Audits against a whole trade-off curve: one order of the samples spends all."""

import json
import math

import numpy as np
import pytest

from dvrenyi_plugin.audits import (
    DpSgdAuditConfig,
    DpSgdExperimentConfig,
    SequentialAuditConfig,
    audit_dp_sgd,
    write_report_files,
)
from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon
from dvrenyi_plugin.testers import TradeOffPropertyTester, TradeOffPropertyTesterConfig

CLAIM = PrivacyProperty(gaussian_dp=GaussianDp(1.0))
RECORDS = np.zeros((3, 1, 2, 2), np.float32), np.zeros(3, np.int64)
PAIR = add_canary(RECORDS, np.ones((1, 2, 2), np.float32), 1)


class GaussianTrainer:
    """Losses N(0, 1) without the canary and N(-mu, 1) with it, seeded by dataset and number."""

    def __init__(self, mu, seed=0):
        self._mu, self._seed = mu, seed

    def train_models(self, dataset, world, indices):
        shift = -self._mu * (len(dataset[1]) - 3)
        rows = [np.random.default_rng([self._seed, world, i]).normal(shift) for i in indices]
        return np.array(rows)[:, np.newaxis]


def audit(mu, *, num_models=150, seed=0, **sequential):
    tester = TradeOffPropertyTester(TradeOffPropertyTesterConfig(CLAIM))
    return audit_dp_sgd(
        GaussianTrainer(mu, seed),
        tester,
        PAIR,
        DpSgdAuditConfig(num_models=num_models),
        SequentialAuditConfig(**sequential) if sequential else None,
    )


def test_one_direction_spends_the_whole_failure_probability():
    report = audit(1.0).report
    (direction,) = report.directions
    assert direction.direction == "with over without canary"
    assert direction.bound.failure_probability == report.failure_probability == 0.05
    assert not report.refuted and 0.3 < report.lower_bound <= 1.0
    assert report.claim.describe() == "mu 1 (Gaussian DP, its whole trade-off curve)"


def test_the_bound_is_also_said_in_the_epsilon_that_people_publish():
    report = audit(4.0).report
    assert report.refuted and "claimed mu" in report.verdict()
    found = json.loads(report.to_json())["empirical_epsilon"]
    assert found["delta"] == 1e-5 and found["family"] == "Gaussian DP"
    assert found["certified"] == gaussian_dp_epsilon(report.lower_bound, 1e-5) > found["claimed"]
    assert "empirical epsilon" in report.summary() and "empirical epsilon" in report.to_markdown()


def test_half_of_the_noise_is_refuted_in_batches_with_few_models(tmp_path):
    used = []
    for seed in range(12):
        result = audit(2.0, num_models=200, seed=seed, batch_models=2)
        outcome = result.report.sequential
        assert len(outcome.evidence) == 1
        assert outcome.evidence[0].log_threshold == pytest.approx(math.log(20.0))
        used.append(outcome.refuted_after_models or math.inf)
    # The information limit of the whole curve is some 20 pairs; at order 2 it is 45.
    assert np.median(used) <= 45
    write_report_files(result, str(tmp_path))
    assert (tmp_path / "evidence.png").exists()


def test_true_claims_are_rarely_refuted_in_batches():
    refuted = sum(
        audit(1.0, num_models=60, seed=seed, batch_models=20).report.refuted for seed in range(60)
    )
    # 60 audits at level 0.05: 8 or more have probability 0.01 at the level itself.
    assert refuted < 8


def test_what_does_not_fit_is_refused():
    poisson = {"sample_rate": 0.1, "noise_multiplier": 1.0, "num_canaries": 2}
    with pytest.raises(ValueError, match="tester must not be trade_off with Poisson batches and"):
        DpSgdExperimentConfig(tester="trade_off", **poisson)
    assert list(DpSgdExperimentConfig(**poisson).tested_properties()) == ["sequential"]
    with pytest.raises(ValueError, match="futility_mu must break the claim: mu 1 of Gaussian DP"):
        audit(2.0, futility_mu=1.0)


def test_an_audit_that_cannot_refute_any_more_stops():
    """With 60 models left at most, mu = 1.1 would hardly be told from 1."""
    outcome = audit(1.0, num_models=60, batch_models=20, futility_mu=1.1).report.sequential
    assert outcome.stopped == "futile" and outcome.models_trained_per_world == 20
    assert audit(2.0, num_models=200, futility_mu=2.0).report.refuted


def test_the_command_takes_it(tmp_path, capsys):
    flags = ["--dataset=digits", "--model=logistic", "--num_records=10", "--steps=3", "--quiet"]
    flags += ["--num_models=40", "--noise_scale=0.1", "--num_workers=1", "--json"]
    status = audit_dpsgd.main(["x", *flags, "--tester=trade_off", f"--output_dir={tmp_path / 'a'}"])
    document = json.loads(capsys.readouterr().out)
    assert status == 0 and document["claim"]["parameter"] == "mu"
    assert document["refuted"] == (document["lower_bound"] > 1.0)
    assert "alpha" not in document["settings"]


def test_the_default_tests_the_curve_and_certifies_d_alpha_beside_it(tmp_path, capsys):
    flags = ["--dataset=digits", "--model=logistic", "--num_records=10", "--steps=3", "--quiet"]
    flags += [
        "--num_models=60",
        "--noise_scale=0.05",
        "--num_workers=1",
        f"--output_dir={tmp_path}",
    ]
    assert audit_dpsgd.main(["x", *flags]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    curve, renyi = report["claims"]
    assert report["claim"]["parameter"] == curve["parameter"] == "mu" and renyi["alpha"] == 2.0
    assert report["refuted"] and curve["refuted"]
    assert report["empirical_epsilon"]["certified"] > report["empirical_epsilon"]["claimed"]
    spent = [entry["failure_probability"] for entry in report["directions"]]
    assert spent == pytest.approx([0.045, 0.0025, 0.0025])
    assert "certified D_2" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(("noise_scale", "refuted"), [(0.1, True), (1.0, False)])
def test_poisson_batches_are_held_to_the_accountants_curve(tmp_path, noise_scale, refuted):
    flags = ["--dataset=digits", "--model=mlp", "--num_records=10", "--steps=4", "--quiet"]
    flags += ["--sample_rate=0.5", "--noise_multiplier=1", f"--noise_scale={noise_scale}"]
    flags += ["--num_models=80", "--num_workers=1", f"--output_dir={tmp_path}"]
    assert audit_dpsgd.main(["x", *flags]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    curve, renyi = report["claims"]
    assert report["refuted"] == refuted == curve["refuted"]
    assert curve["parameter"] == "1 / noise multiplier" and renyi["alpha"] == 2.0
    text = (tmp_path / "report.md").read_text()
    assert ("break the claimed trade-off curve" in text) == (refuted and not renyi["refuted"])
    assert "point estimate" in text
