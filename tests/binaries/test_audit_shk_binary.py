"""The sampler audit from flags to files: contents, exit status, verdicts against known exact
divergences.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin.audits.samplers.audit import audit_grid_mechanism
from dvrenyi_plugin.audits.samplers.experiment import build_shk_experiment, check_record_neighbours
from dvrenyi_plugin.audits.samplers.plots import flow_curves
from dvrenyi_plugin.audits.samplers.settings import (
    LOSS_NAMES,
    MECHANISM_NAMES,
    ShkAuditConfig,
    ShkExperimentConfig,
)
from dvrenyi_plugin.binaries.audit_shk import main
from dvrenyi_plugin.mechanisms.exponential.defects import SAMPLER_DEFECTS
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism
from dvrenyi_plugin.mechanisms.exponential.shk import ShkExponentialMechanism
from dvrenyi_plugin.reports.model import AuditReport
from dvrenyi_plugin.testers import ThresholdAttackTester, ThresholdAttackTesterConfig

FILES = {
    "observations.npz",
    "bound.png",
    "densities.png",
    "log_ratio.png",
    "kl.png",
    "report.html",
    "report.md",
    "report.json",
    "settings.json",
}


def run(tmp_path: Path, *flags: str) -> int:
    return main(["audit_shk", f"--output_dir={tmp_path / 'out'}", "--tester=threshold", *flags])


def report_of(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
    return content


def audit_of(config: ShkExperimentConfig, num_samples: int) -> AuditReport:
    experiment = build_shk_experiment(config)

    def make_tester(privacy_property: Any) -> ThresholdAttackTester:
        return ThresholdAttackTester(
            ThresholdAttackTesterConfig(
                privacy_property=privacy_property, seed=experiment.tester_seed
            )
        )

    audit = ShkAuditConfig(num_samples=num_samples)
    return audit_grid_mechanism(experiment.mechanism, make_tester, experiment.pair, audit).report


class TestHonestSampler:
    def test_report_files_and_keys(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(tmp_path, "--num_samples=3000", "--alphas=2,8", "--fail_on_violation") == 0
        assert {p.name for p in (tmp_path / "out").iterdir()} == FILES
        report = report_of(tmp_path)
        assert not report["refuted"]
        assert len(report["directions"]) == 4
        assert sum(d["failure_probability"] for d in report["directions"]) == pytest.approx(0.05)
        for order in report["claims"]:
            assert max(order["exact_divergences"]) <= order["epsilon"]
        assert report["claims"][0]["exact_divergences"][0] == pytest.approx(0.1204, abs=1e-4)
        assert (
            report["utility"]["expected_excess_loss"] <= report["utility"]["certified_excess_loss"]
        )
        with np.load(tmp_path / "out" / "observations.npz") as arrays:
            assert arrays["dataset1"].shape == (3000, 1)
        out = capsys.readouterr().out
        for words in (
            "certificate",
            "exact divergence",
            "no confidence statement",
            "failure probability",
            "verdict",
        ):
            assert words in out
        markdown = (tmp_path / "out" / "report.md").read_text()
        for name in {name for name in FILES if name.endswith(".png")}:
            assert f"({name})" in markdown
        assert "whole audit" not in markdown and "drawing and testing / s" in markdown
        assert "nan" not in markdown.lower().replace("dominant", "")

    def test_by_default_the_certificates_curve_is_tested_beside_the_orders(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shares = {}
        for name, flags in (("shk", ()), ("shk_wrong_temperature", ("--fail_on_violation",))):
            out = f"--output_dir={tmp_path / name}"
            status = main(["x", out, "--num_samples=2000", f"--mechanism={name}", *flags])
            report = json.loads((tmp_path / name / "report.json").read_text())
            _, curve = report["claims"]
            assert curve["parameter"] == "width" and report["claim"]["alpha"] == 2.0
            assert curve["refuted"] == report["refuted"] == (status == 2)
            assert curve["lower_bound"] <= max(curve["exact_divergences"])
            shares[name] = [entry["failure_probability"] for entry in report["directions"]]
        assert shares["shk"] == pytest.approx([0.0025, 0.0025, 0.045])
        assert "certified width" in capsys.readouterr().out

    def test_same_seed_same_numbers(self) -> None:
        reports = [
            audit_of(ShkExperimentConfig(run_time=1.0, cells=48, seed=seed), 500)
            for seed in (1, 1, 2)
        ]
        estimates = [[d.bound.point_estimate for d in report.directions] for report in reports]
        assert estimates[0] == estimates[1] != estimates[2]

    def test_bounds_stay_below_the_exact_divergence(self) -> None:
        """Forty audits at failure probability 0.05: more than 8 misses have probability
        below 1e-3.
        """
        experiment = build_shk_experiment(ShkExperimentConfig(cells=64))
        misses = 0
        for seed in range(40):
            result = audit_grid_mechanism(
                experiment.mechanism,
                lambda p, seed=seed: ThresholdAttackTester(
                    ThresholdAttackTesterConfig(privacy_property=p, seed=seed)
                ),
                experiment.pair,
                ShkAuditConfig(num_samples=2000),
            )
            assert not result.report.refuted
            misses += result.report.lower_bound > result.report.exact_divergence
        assert misses <= 8
        assert result.report.lower_bound > 0.0


def test_e1_a_tester_that_spoils_its_samples_does_not_reach_the_other_direction() -> None:
    class Spoiling(ThresholdAttackTester):
        def audit(self, samples1: Any, samples2: Any, failure_probability: float) -> Any:
            result = super().audit(samples1, samples2, failure_probability)
            samples1[:] = samples2[:] = 0.0
            return result

    bounds = []
    for tester in (ThresholdAttackTester, Spoiling):
        experiment = build_shk_experiment(ShkExperimentConfig(cells=64))
        result = audit_grid_mechanism(
            experiment.mechanism,
            lambda p, tester=tester: tester(ThresholdAttackTesterConfig(privacy_property=p)),
            experiment.pair,
            ShkAuditConfig(num_samples=2000),
        )
        assert np.abs(result.samples[0]).max() > 0.0
        bounds.append(
            [d.bound.lower_bound for order in result.report.claims for d in order.directions]
        )
    assert bounds[0] == bounds[1]


class TestBrokenSamplers:
    @pytest.mark.parametrize("defect", SAMPLER_DEFECTS)
    def test_refuted_at_twenty_thousand(self, defect: str) -> None:
        report = audit_of(ShkExperimentConfig(mechanism=f"shk_{defect}"), 20_000)
        assert report.refuted
        assert report.exact_divergence >= 2.0 * report.claim.epsilon
        assert report.claim.epsilon < report.lower_bound <= report.exact_divergence

    def test_exit_status_with_and_without_the_flag(self, tmp_path: Path) -> None:
        broken = ("--mechanism=shk_wrong_temperature", "--num_samples=2000")
        assert run(tmp_path, *broken) == 0
        assert report_of(tmp_path)["refuted"]
        assert run(tmp_path, *broken, "--fail_on_violation") == 2


class TestExperiments:
    @pytest.mark.parametrize("loss", LOSS_NAMES)
    @pytest.mark.parametrize("pair", ["extreme", "random"])
    def test_every_loss_and_pair_is_honest(self, loss: str, pair: str) -> None:
        config = ShkExperimentConfig(loss=loss, pair=pair, cells=24, run_time=4.0, num_records=12)
        experiment = build_shk_experiment(config)
        mechanism = experiment.mechanism
        exact = mechanism.exact_renyi_divergence(*experiment.pair, 2.0)
        assert 0.0 < exact <= mechanism.certificate.renyi_dp(2.0).value
        if pair == "extreme" and loss != "logistic":
            assert exact > 0.15 * mechanism.certificate.renyi_dp(2.0).value

    @pytest.mark.parametrize("mechanism", MECHANISM_NAMES)
    def test_curves_stay_under_their_envelopes(self, mechanism: str) -> None:
        experiment = build_shk_experiment(ShkExperimentConfig(mechanism=mechanism, cells=48))
        if not isinstance(experiment.mechanism, FlowMechanism):
            assert mechanism == "exponential"
            return
        curves = flow_curves(experiment.mechanism, experiment.pair)
        assert curves.langevin_kl_to_target.shape == curves.times.shape == curves.log_ratio.shape
        if type(experiment.mechanism) is ShkExponentialMechanism:
            assert np.all(curves.log_ratio <= curves.pair_envelope)
            assert np.all(curves.pair_envelope <= curves.data_free_envelope)
            assert np.all(curves.kl_to_target <= curves.kl_bound + 1e-15)
            assert curves.kl_to_target[-1] < 1e-3 * curves.langevin_kl_to_target[-1] + 1e-12

    def test_pair_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "pair.npz"
        np.savez(path, dataset1=np.zeros(5), dataset2=np.array([0.0, 0.0, 0.0, 1.0]))
        with pytest.raises(ValueError, match="differ in at most one record, got 2 and 1"):
            build_shk_experiment(ShkExperimentConfig(pair=str(path)))
        np.savez(path, dataset1=np.zeros(5), dataset2=np.zeros(4))
        assert (
            build_shk_experiment(ShkExperimentConfig(pair=str(path))).settings["num_records"] == 5
        )

    @pytest.mark.parametrize(
        "first, message",
        [
            (5.0, "dataset1 must have shape"),
            ([1.0, np.nan], "dataset1 must be finite, got 1 NaN"),
            ([1.0 + 2.0j], "dataset1 must hold floats or integers"),
            (["a"], "dataset1 must hold floats or integers"),
        ],
    )
    def test_files_without_two_tables_of_numbers(
        self, tmp_path: Path, first: Any, message: str
    ) -> None:
        path = tmp_path / "pair.npz"
        np.savez(path, dataset1=first, dataset2=[1.0])
        with pytest.raises(ValueError, match=f"pair must be an .npz file .*{message}"):
            build_shk_experiment(ShkExperimentConfig(pair=str(path)))

    def test_a_single_array_under_the_name_of_an_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "pair.npz"
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(ValueError, match=r"pair must be an .npz file .*one array only"):
            build_shk_experiment(ShkExperimentConfig(pair=str(path)))

    def test_neighbours_in_any_order(self) -> None:
        check_record_neighbours([[1.0], [2.0], [3.0]], [[3.0], [1.0], [9.0]])
        with pytest.raises(ValueError, match="got 2 and 2"):
            check_record_neighbours([[1.0], [2.0]], [[3.0], [4.0]])


class TestErrors:
    @pytest.mark.parametrize(
        "flags, message",
        [
            (("--mechanism=magic",), "mechanism must be one of"),
            (("--loss=hinge",), "loss must be one of"),
            (("--pair=nowhere.npz",), "pair must be a file that exists"),
            (("--alphas=2,x",), "alphas must be numbers"),
            (("--alphas=1",), "alphas must be a finite number > 1"),
            (("--alphas=2,2",), "alphas must be different orders"),
            (("--run_time=-1",), "run_time must be"),
            (("--failure_probability=0",), "failure_probability must be"),
            (("--num_samples=3",), "num_samples must be an integer >= 10"),
            (("--inverse_temperature=1e6",), "grid too coarse for the potential"),
            (("--tester=oracle",), "tester must be one of"),
            (("--output_dir=",), "output_dir is required: name a folder"),
        ],
    )
    def test_one_line_and_status_one(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        flags: tuple[str, ...],
        message: str,
    ) -> None:
        assert run(tmp_path, *flags) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()
