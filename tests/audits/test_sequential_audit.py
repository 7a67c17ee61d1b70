"""Audits that stop when they have seen enough: on trainers whose laws are known, and from the
command line.
"""

import dataclasses
import json
import math
import os

import numpy as np
import pytest
from scipy import stats

from dvrenyi_plugin.audits.dp_sgd.audit import DIRECTIONS, audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig, ModelTrainingConfig
from dvrenyi_plugin.audits.planner import plan_refutation
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.files import write_report_files
from dvrenyi_plugin.audits.training.models import WITH_CANARY, train_both_worlds
from dvrenyi_plugin.audits.training.sections import CANARY_LOSSES
from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.reports.files import EVIDENCE_FILE, REPORT_FILES
from dvrenyi_plugin.testers.dv_renyi_tester import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
)
from dvrenyi_plugin.testers.sequential_renyi_tester import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
)


@dataclasses.dataclass(frozen=True)
class GaussianTrainer:
    """Losses N(0, 1) without the canary and N(-mu, spread^2) with it, seeded by world and index;
    picklable.
    """

    mu: float
    spread: float = 1.0
    seed: int = 0

    def train_models(self, dataset, world, indices):
        noise = np.array(
            [np.random.default_rng([self.seed, world, i]).standard_normal(1) for i in indices]
        )
        return self.spread * noise - self.mu if world == WITH_CANARY else noise


@dataclasses.dataclass
class CountingTrainer:
    """Remembers the models it trained."""

    trainer: GaussianTrainer
    trained: list = dataclasses.field(default_factory=list)

    def train_models(self, dataset, world, indices):
        self.trained += [(world, index) for index in indices]
        return self.trainer.train_models(dataset, world, indices)


PAIR = add_canary((np.zeros((3, 2)), np.zeros(3, dtype=np.int64)), np.ones(2), 1)
# What mu = 1 allows at order 2.
TESTER = SequentialRenyiPropertyTester(
    SequentialRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0)))
)


def audit(trainer, num_models=200, workers=1, failure_probability=0.05, tester=TESTER, **options):
    config = DpSgdAuditConfig(
        num_models=num_models,
        failure_probability=failure_probability,
        training=ModelTrainingConfig(num_workers=workers),
    )
    return audit_dp_sgd(
        trainer, tester, PAIR, config, SequentialAuditConfig(**options), claimed_mu=1.0
    )


def test_a_false_claim_is_refuted_early_and_no_further_model_is_trained():
    trainer = CountingTrainer(GaussianTrainer(mu=3.0))
    report = audit(trainer).report
    outcome = report.sequential
    assert report.refuted and outcome.stopped == "refuted"
    assert report.lower_bound > report.claim.epsilon == 1.0
    # The planner's median is near 35 pairs for mu = 3, and the first bet comes after 30.
    assert 30 < outcome.refuted_after_models <= outcome.models_trained_per_world <= 80
    # At most 20 between two looks, and fewer when the claim is about to fall.
    batches = np.diff((0, *outcome.models_after_batch))
    assert batches[0] == 20 == max(batches) and 2 <= batches[-1] < 20
    assert outcome.refuted_after_models > outcome.models_trained_per_world - batches[-1]
    assert outcome.models_saved_per_world == 200 - outcome.models_trained_per_world
    assert sorted(trainer.trained) == [
        (world, index) for world in (0, 1) for index in range(outcome.models_trained_per_world)
    ]
    assert report.num_samples == outcome.models_trained_per_world
    assert max(path.log_e_values[-1] for path in outcome.evidence) >= math.log(40.0)


def test_each_direction_has_half_of_the_failure_probability():
    report = audit(GaussianTrainer(mu=3.0), failure_probability=0.2).report
    thresholds = [path.log_threshold for path in report.sequential.evidence]
    assert thresholds == pytest.approx([math.log(10.0)] * 2)
    assert [entry.bound.failure_probability for entry in report.directions] == [0.1, 0.1]
    assert [entry.direction for entry in report.directions] == list(DIRECTIONS)
    assert report.failure_probability == 0.2


@pytest.mark.parametrize(("spread", "broken"), [(0.5, 1), (2.0, 0)])
def test_either_direction_can_refute_alone(spread, broken):
    # Standard deviations 1 and 2: D_2 of the wide law over the narrow one is infinite, the other
    # way round it is log 2 + log(1 / 1.75) / 2 = 0.413. Only one direction breaks a claim of 0.5.
    tester = SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.5)))
    )
    report = audit(
        GaussianTrainer(0.0, spread), num_models=800, tester=tester, batch_models=50
    ).report
    assert report.sequential.stopped == "refuted"
    assert [entry.bound.refuted for entry in report.directions] == [broken == 0, broken == 1]
    assert report.directions[1 - broken].bound.lower_bound <= 0.413


def test_a_kept_claim_is_refuted_in_no_more_runs_than_the_failure_probability():
    # The claim holds with equality. At a failure probability of 0.5 a fault would show: each
    # direction given all of it, or a fixed-size test repeated at every look. One-sided binomial
    # test at 1e-3: at most 25 of 32.
    runs = 32
    refuted = sum(
        audit(GaussianTrainer(1.0, seed=seed), 100, failure_probability=0.5).report.refuted
        for seed in range(runs)
    )
    assert refuted <= stats.binom.isf(1e-3, runs, 0.5)


def test_a_kept_claim_trains_all_models_and_says_so():
    trainer = CountingTrainer(GaussianTrainer(mu=0.5))
    report = audit(trainer, num_models=90).report
    outcome = report.sequential
    assert outcome.stopped == "all models trained"
    assert not report.refuted and outcome.refuted_after_models is None
    assert outcome.models_after_batch == (20, 40, 60, 80, 90)
    assert outcome.models_saved_per_world == 0
    assert len(trainer.trained) == 180
    # Nothing was lost by looking five times: the same models, seen one by one without any stop.
    without, with_canary = (
        trainer.trainer.train_models(None, world, range(90)) for world in (0, 1)
    )
    process = TESTER.start(0.025)
    process.update(with_canary, without)
    assert report.directions[0].bound.lower_bound == pytest.approx(process.lower_bound)
    assert outcome.evidence[0].log_e_values[-1] == pytest.approx(process.log_e_value(1.0))


def test_the_batches_decide_when_the_audit_looks_and_nothing_else():
    trainer = GaussianTrainer(mu=2.5, seed=1)
    by_batch = {size: audit(trainer, batch_models=size).report for size in (2, 7, 20, 200)}
    stops = {report.sequential.refuted_after_models for report in by_batch.values()}
    assert len(stops) == 1 and stops.pop() > 30
    for size, report in by_batch.items():
        outcome = report.sequential
        trained = outcome.models_trained_per_world
        late = min(200, math.ceil(outcome.refuted_after_models / size) * size)
        assert outcome.refuted_after_models <= trained <= late
        assert len(outcome.evidence[0].log_e_values) == len(outcome.models_after_batch)
    # Without a stop, every value is the same to the last bit.
    unstopped = [audit(GaussianTrainer(1.6), 80, batch_models=size).report for size in (7, 80)]
    first, second = (
        [path.log_e_values[-1] for path in report.sequential.evidence] for report in unstopped
    )
    assert not unstopped[0].refuted
    assert first == second and any(value != 0.0 for value in first)
    assert unstopped[0].lower_bound == unstopped[1].lower_bound


def test_the_number_of_workers_changes_nothing():
    trainer = GaussianTrainer(mu=2.5, seed=2)
    alone, shared = audit(trainer), audit(trainer, workers=2)
    assert alone.report.sequential == shared.report.sequential
    assert alone.samples[1].tobytes() == shared.samples[1].tobytes()
    assert alone.report.lower_bound == shared.report.lower_bound


def test_the_observations_are_those_of_an_audit_of_fixed_size():
    result = audit(GaussianTrainer(mu=3.0))
    count = result.report.num_samples
    fixed = train_both_worlds(GaussianTrainer(mu=3.0), PAIR, range(count), ModelTrainingConfig())
    assert result.samples[1].tobytes() == fixed.without.tobytes()
    assert result.samples[0].tobytes() == fixed.with_canary.tobytes()
    assert result.report.document()["losses"]["without_canary"].count == count


def test_a_larger_budget_continues_the_same_audit():
    short = audit(GaussianTrainer(mu=0.9), num_models=60).report.sequential
    long = audit(GaussianTrainer(mu=0.9), num_models=100).report.sequential
    for first, second in zip(short.evidence, long.evidence, strict=True):
        assert second.log_e_values[: len(first.log_e_values)] == first.log_e_values


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_a_hopeless_audit_stops_as_futile_when_the_plan_says_so(probability):
    # No bet is placed on equal laws: the log e-value stays 0.
    plan = plan_refutation(gaussian_pair(2.0, 2.0), 2.0, 1.0, 0.025)
    stops_after = next(
        done for done in range(20, 121, 20) if plan.is_futile(0.0, 120 - done, probability)
    )
    assert stops_after < 120
    report = audit(
        GaussianTrainer(mu=0.0), 120, futility_mu=2.0, futility_probability=probability
    ).report
    outcome = report.sequential
    assert outcome.stopped == "futile" and not report.refuted
    assert outcome.models_trained_per_world == stops_after
    assert outcome.models_saved_per_world == 120 - stops_after
    text = report.to_markdown()
    assert "futile: even if the true mu were 2" in text
    assert f"with probability below {probability:g}" in text
    assert "not a statement about the mechanism" in text


def test_a_violation_of_the_size_looked_for_is_refuted_and_not_given_up():
    stops = [
        audit(GaussianTrainer(mu=3.0, seed=seed), futility_mu=3.0).report.sequential.stopped
        for seed in range(4)
    ]
    assert stops == ["refuted"] * 4


def test_too_few_models_for_a_first_bet_are_noted():
    report = audit(GaussianTrainer(mu=3.0), num_models=24).report
    assert report.lower_bound == 0.0
    assert any("24 models per dataset are too few" in note for note in report.notes)
    assert not audit(GaussianTrainer(mu=0.5), num_models=60).report.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_models": 1}, "batch_models must be an integer >= 2, got 1"),
        ({"futility_mu": 0.0}, r"futility_mu must be a finite number > 0 and <= 1e.100, got 0"),
        (
            {"futility_mu": math.nan},
            r"futility_mu must be a finite number > 0 and <= 1e.100, got nan",
        ),
        ({"futility_probability": 1.0}, "futility_probability must be"),
        ({"futility_mu": 1.0}, "futility_mu must break the claim"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(options, message):
    trainer = CountingTrainer(GaussianTrainer(0.0))
    with pytest.raises(ValueError, match=message):
        audit(trainer, **options)
    assert trainer.trained == []


def test_a_tester_that_needs_all_samples_at_once_is_refused():
    tester = DvRenyiPropertyTester(
        DvRenyiPropertyTesterConfig(PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0)))
    )
    trainer = CountingTrainer(GaussianTrainer(0.0))
    with pytest.raises(ValueError, match=r"while they arrive.*got DvRenyiPropertyTester"):
        audit(trainer, tester=tester)
    assert trainer.trained == []


def test_report_says_in_json_words_and_a_picture_how_the_audit_went(tmp_path):
    result = audit(GaussianTrainer(mu=3.0))
    write_report_files(result, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(
        (*REPORT_FILES, CANARY_LOSSES.file, EVIDENCE_FILE)
    )
    assert (tmp_path / EVIDENCE_FILE).read_bytes().startswith(b"\x89PNG")
    outcome, content = (
        result.report.sequential,
        json.loads((tmp_path / "report.json").read_text())["sequential"],
    )
    trained = outcome.models_trained_per_world
    assert content["stopped"] == "refuted"
    assert content["models_trained_per_world"] == trained
    assert content["models_saved_per_world"] == 200 - trained
    assert content["max_models_per_world"] == 200
    assert content["batches"] == len(content["models_after_batch"]) >= trained // 20
    assert set(content["log_e_values"]) == set(DIRECTIONS)
    assert all(len(path) == content["batches"] for path in content["log_e_values"].values())
    thresholds = content["log_e_value_thresholds"]
    assert thresholds == pytest.approx(dict.fromkeys(DIRECTIONS, math.log(40.0)))
    assert content["futility_mu"] is None
    text = (tmp_path / "report.md").read_text()
    assert f"{trained} per dataset of at most 200" in text
    assert f"{200 - trained} per dataset were not needed" in text
    assert "anytime-valid" in text and f"({EVIDENCE_FILE})" in text
    assert f"{trained} of at most 200 models per dataset trained" in result.report.summary()


def test_an_audit_of_fixed_size_reports_no_stopping():
    report = audit_dp_sgd(
        GaussianTrainer(0.0), TESTER, PAIR, DpSgdAuditConfig(num_models=20)
    ).report
    assert report.sequential is None
    assert json.loads(report.to_json())["sequential"] is None
    assert "batches" not in report.to_markdown()


def test_command_line_stops_early_on_a_false_claim(tmp_path, capsys):
    status = audit_dpsgd.main(
        [
            "audit_dpsgd",
            "--sequential",
            "--dataset=digits",
            "--model=logistic",
            "--num_records=10",
            "--num_models=400",
            "--steps=4",
            "--noise_scale=0.05",
            "--num_workers=1",
            "--fail_on_violation",
            f"--output_dir={tmp_path}",
        ]
    )
    assert status == 2
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["sequential"]["stopped"] == "refuted"
    assert report["num_models"] == report["sequential"]["models_trained_per_world"] <= 80
    with np.load(tmp_path / "observations.npz", allow_pickle=False) as observations:
        assert len(observations["with_canary"]) == report["num_models"]
    assert (tmp_path / EVIDENCE_FILE).exists()
    assert "stopped " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sequential", "--batch_models=1"], "batch_models must be an integer >= 2"),
        (["--futility_mu=2"], "futility_mu needs --sequential"),
        (
            ["--sequential", "--tester=dv", "--dataset=digits", "--model=logistic"],
            "while they arrive",
        ),
        (
            ["--sequential", "--futility_mu=0.5", "--dataset=digits", "--model=logistic"],
            "futility_mu must break the claim",
        ),
    ],
)
def test_a_bad_request_is_one_line_and_leaves_no_report(tmp_path, capsys, flags, message):
    output = f"--output_dir={tmp_path / 'out'}"
    assert audit_dpsgd.main(["audit_dpsgd", *flags, output]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    # What was prepared before the audit began is kept for the next request.
    kept = ("initial-weights-", "noise-free-losses-")
    for name in os.listdir(tmp_path):
        assert all(file.startswith(kept) for file in os.listdir(tmp_path / name))
