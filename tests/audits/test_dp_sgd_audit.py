"""The audit runner and its report, on trainers whose laws are known."""

import dataclasses
import importlib.metadata
import json
import math
import sys
import types

import numpy as np
import pytest

from dvrenyi_plugin import audits
from dvrenyi_plugin.audits.directions import bound_both_directions
from dvrenyi_plugin.audits.dp_sgd.audit import DIRECTIONS, audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.experiment import ExperimentSeeds, build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig, DpSgdExperimentConfig
from dvrenyi_plugin.audits.training.models import Observations
from dvrenyi_plugin.audits.training.plots import plot_losses
from dvrenyi_plugin.audits.training.sections import Separation
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon
from dvrenyi_plugin.privacy.dp_sgd_accounting import audited_claim
from dvrenyi_plugin.reports.figures import save_figure
from dvrenyi_plugin.reports.pictures import DrawnPicture, Gallery
from dvrenyi_plugin.reports.plain_json import jsonable
from dvrenyi_plugin.reports.plots import plot_bound
from dvrenyi_plugin.reports.versions import library_versions
from dvrenyi_plugin.testers.base import BoundResult


@dataclasses.dataclass(frozen=True)
class NormalTrainer:
    """Observations N(number of records * shift, 1), seeded by world and index; picklable."""

    shift: float = 1.0
    columns: int = 1

    def train_models(self, dataset, world, indices):
        mean = self.shift * len(dataset[1])
        return np.stack(
            [
                mean + np.random.default_rng([world, index]).standard_normal(self.columns)
                for index in indices
            ]
        )


@dataclasses.dataclass
class RecordingTester:
    """Returns made-up bounds and remembers what it was asked."""

    bounds: tuple = (0.4, 0.7)
    estimates: tuple = (0.9, 0.8)
    threshold: float = 0.5

    def __post_init__(self):
        self.calls = []
        self.privacy_property = PrivacyProperty(renyi_dp=RenyiDp(2.0, self.threshold))

    def audit(self, samples1, samples2, failure_probability):
        index = len(self.calls)
        self.calls.append((samples1, samples2, failure_probability))
        return BoundResult(
            lower_bound=self.bounds[index],
            point_estimate=self.estimates[index],
            claimed_limit=self.threshold,
            refuted=self.bounds[index] > self.threshold,
            failure_probability=failure_probability,
            method="made up",
            alpha=2.0,
            num_fit=(1, 1),
            num_certify=(1, 1),
            seed=0,
            details={"not a number": math.nan, "counts": np.arange(2)},
        )


@pytest.fixture
def pair():
    records = np.zeros((3, 1, 2, 2), np.float32), np.zeros(3, np.int64)
    return add_canary(records, np.ones((1, 2, 2), np.float32), 1)


def test_each_direction_is_tested_once_at_half_of_the_failure_probability():
    tester = RecordingTester()
    observations = Observations(np.zeros((10, 1)), np.ones((10, 1)))
    first, second = bound_both_directions(
        tester, (observations.with_canary, observations.without), 0.05, DIRECTIONS
    )
    assert [call[2] for call in tester.calls] == [0.025, 0.025]
    assert first.direction == "with over without canary"
    np.testing.assert_array_equal(tester.calls[0][0], observations.with_canary)
    np.testing.assert_array_equal(tester.calls[0][1], observations.without)
    assert second.direction == "without over with canary"
    np.testing.assert_array_equal(tester.calls[1][0], observations.without)
    np.testing.assert_array_equal(tester.calls[1][1], observations.with_canary)
    assert first.bound.failure_probability + second.bound.failure_probability == 0.05


@pytest.mark.parametrize(
    ("bounds", "refuted"), [((0.4, 0.7), True), ((0.7, 0.4), True), ((0.5, 0.5), False)]
)
def test_one_direction_above_the_claim_is_enough_and_none_is_not(pair, bounds, refuted):
    tester = RecordingTester(bounds=bounds)
    report = audit_dp_sgd(NormalTrainer(), tester, pair, DpSgdAuditConfig(num_models=10)).report
    assert report.refuted is refuted
    assert report.lower_bound == max(bounds)
    assert report.point_estimate == 0.9
    assert report.claim.epsilon == 0.5
    assert ("REFUTED" in report.summary()) is refuted


def test_versions_of_optional_libraries_are_those_that_are_loaded(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} 1.2")
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    versions = library_versions()
    assert versions["torchvision"] == "torchvision 1.2"
    assert "tensorflow" not in versions
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    assert library_versions()["tensorflow"] == "tensorflow 1.2"


def test_report_as_json_and_markdown(pair):
    tester = RecordingTester(estimates=(math.nan, math.nan))
    config = DpSgdAuditConfig(num_models=50, failure_probability=0.1, seed=3)
    result = audit_dp_sgd(
        NormalTrainer(),
        tester,
        pair,
        config,
        claimed_mu=0.7,
        noise_free_shift=-1.5,
        settings={"dataset": "a|b"},
        notes=["a weak canary"],
    )
    text = result.report.to_json()
    assert "NaN" not in text and "Infinity" not in text
    content = json.loads(text)
    assert content["claim"] == {"alpha": 2.0, "epsilon": 0.5, "mu": 0.7}
    assert content["point_estimate"] is None
    assert content["lower_bound"] == 0.7
    assert content["failure_probability"] == 0.1
    assert content["refuted"] is True
    assert (content["num_models"], content["seed"]) == (50, 3)
    assert content["versions"].keys() >= {"dvrenyi_plugin", "python", "numpy", "torch"}
    assert content["wall_seconds"] >= content["training_seconds"] > 0.0
    assert content["directions"][0]["details"] == {"not a number": None, "counts": [0, 1]}
    assert content["directions"][1]["direction"] == "without over with canary"
    assert content["losses"]["with_canary"]["mean"] == result.samples[0].mean()
    assert content["noise_free_shift"] == -1.5
    spread = Separation.of(result.samples[1][:, 0], result.samples[0][:, 0]).standard_deviation
    assert content["noise_free_d_prime"] == -1.5 / spread
    assert spread == pytest.approx(1.0, rel=0.3)
    assert content["notes"] == ["a weak canary"]
    markdown = result.report.to_markdown(Gallery((DrawnPicture("losses.png", "caption", b""),)))
    assert "![caption](losses.png)" in markdown
    assert "a\\|b" in markdown
    for line in markdown.splitlines():
        # An estimate never stands on a line that also speaks of a failure probability, but in the
        # header.
        if line.startswith("| point estimate"):
            assert "failure probability" not in line


def test_separation_of_normals_and_of_constants():
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal(40_000), 1.5 + rng.standard_normal(20_000)
    separation = Separation.of(first, second)
    assert separation.d_prime == pytest.approx(1.5, abs=4 * separation.standard_error)
    assert 0.005 < separation.standard_error < 0.015
    assert separation.d_prime == pytest.approx(Separation.of(second, first).d_prime)
    assert math.isnan(Separation.of(np.ones(5), np.ones(5)).d_prime)


def test_separation_standard_error_is_that_of_repeated_samples():
    rng = np.random.default_rng(1)
    repeats = [
        Separation.of(rng.standard_normal(100), 2.0 + rng.standard_normal(100)) for _ in range(400)
    ]
    spread = np.std([separation.d_prime for separation in repeats])
    claimed = np.mean([separation.standard_error for separation in repeats])
    # The spread of 400 repeats is known to 3.5%.
    assert claimed == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_models": 9},
        {"num_models": 20.0},
        {"failure_probability": -1.0},
        {"failure_probability": 0.0},
        {"failure_probability": 1.0},
        {"failure_probability": math.nan},
        {"seed": -1},
    ],
)
def test_audit_settings_are_checked(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be .*, got {settings[name]!r}"):
        DpSgdAuditConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": 1.0},
        {"alpha": 0.5},
        {"alpha": math.nan},
        {"alpha": math.inf},
        {"mu": 0.0},
        {"mu": math.nan},
        {"noise_scale": -0.1},
        {"steps": 0},
        {"num_records": 0},
        {"learning_rate": 0.0},
        {"engine": "jax"},
        {"canary": "white"},
        {"model": "transformer"},
        {"seed": -1},
    ],
)
def test_experiment_settings_are_checked(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be .*, got"):
        DpSgdExperimentConfig(**settings)


def test_parts_of_an_experiment_share_no_seed():
    seeds = [value for root in range(50) for value in dataclasses.astuple(ExperimentSeeds.of(root))]
    assert len(set(seeds)) == len(seeds)
    assert ExperimentSeeds.of(7) == ExperimentSeeds.of(7)


def test_experiment_is_a_pair_of_neighbours_with_the_claim_of_its_noise():
    config = DpSgdExperimentConfig(
        dataset="digits", model="logistic", num_records=12, steps=25, mu=2.0, alpha=3.0, seed=4
    )
    experiment, again = build_dp_sgd_experiment(config), build_dp_sgd_experiment(config)
    without, with_canary = experiment.pair
    assert (len(without[1]), len(with_canary[1])) == (12, 13)
    assert with_canary[0][:12].tobytes() == without[0].tobytes()
    curve, renyi = (claim.tester.privacy_property for claim in experiment.claims)
    assert curve.gaussian_dp.mu == pytest.approx(2.0)
    assert renyi.renyi_dp == RenyiDp(3.0, 3.0 * 2.0**2 / 2.0)
    assert experiment.settings["noise_multiplier"] == math.sqrt(25) / 2.0
    assert experiment.mechanism.claimed_privacy[0].gaussian_dp.mu == pytest.approx(2.0)
    assert experiment.canary.label == experiment.settings["canary_label"]
    for first, second in zip(experiment.pair[1], again.pair[1], strict=True):
        assert first.tobytes() == second.tobytes()
    json.dumps(jsonable(experiment.settings), allow_nan=False)


def test_noise_free_shift_is_what_the_canary_does_to_its_own_loss():
    settings = {"dataset": "digits", "model": "mlp", "num_records": 5, "steps": 4}
    experiment = build_dp_sgd_experiment(DpSgdExperimentConfig(**settings))
    # To first order the canary moves the weights by steps * learning_rate * clip_norm along its
    # gradient.
    norm = experiment.settings["canary_initial_gradient_norm"]
    expected = 4 * 4 / 30_000 * min(norm, 1.0) * norm
    assert experiment.noise_free_shift == pytest.approx(expected, rel=0.05)
    poisson = DpSgdExperimentConfig(**settings, sample_rate=0.5, noise_multiplier=1.0)
    assert build_dp_sgd_experiment(poisson).noise_free_shift is None


def test_engines_audit_the_same_experiment():
    records = {}
    for engine in ("ensemble", "opacus"):
        experiment = build_dp_sgd_experiment(
            DpSgdExperimentConfig(
                dataset="digits",
                model="logistic",
                num_records=5,
                steps=2,
                noise_scale=0.0,
                engine=engine,
            )
        )
        records[engine] = [
            experiment.mechanism.train_models(world, 0, [0]) for world in experiment.pair
        ]
    np.testing.assert_allclose(records["ensemble"], records["opacus"], rtol=1e-5)
    # The canary pulls its own loss down.
    assert records["ensemble"][1] < records["ensemble"][0]


@pytest.mark.parametrize("estimate", [0.4, math.nan, 30.0])
def test_pictures_are_written(tmp_path, pair, estimate):
    tester = RecordingTester(estimates=(estimate, estimate))
    result = audit_dp_sgd(NormalTrainer(), tester, pair, DpSgdAuditConfig(num_models=10))
    for name, figure in (
        ("bound", plot_bound(result.report)),
        ("losses", plot_losses(np.arange(9.0), np.arange(8.0), critic=lambda losses: -losses)),
        ("constant", plot_losses(np.ones(5), np.ones(5), critic=None)),
    ):
        path = tmp_path / f"{name}.png"
        save_figure(figure, str(path))
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000


def test_claims_given_in_three_ways_agree():
    by_mu = audited_claim(2.0, 100, mu=1.0)
    assert (by_mu.noise_multiplier, by_mu.mu, by_mu.renyi) == (10.0, 1.0, RenyiDp(2.0, 1.0))
    assert audited_claim(2.0, 100) == by_mu
    assert audited_claim(2.0, 100, noise_multiplier=10.0) == by_mu
    # 1-Gaussian DP is exactly (4.377178, 1e-5)-DP.
    by_epsilon = audited_claim(2.0, 100, epsilon=4.377178, delta=1e-5)
    assert by_epsilon.mu == pytest.approx(1.0, rel=1e-6)
    assert by_epsilon.renyi.epsilon == pytest.approx(1.0, rel=1e-6)


def test_poisson_claims_are_those_of_the_accountant():
    by_noise = audited_claim(2.0, 100, 0.5, noise_multiplier=1.0)
    assert by_noise.mu is None
    # One step: log E_{x ~ N(0,1)}[(1/2 + e^{x - 1/2} / 2)^2] = log(1 + (e - 1) / 4).
    assert by_noise.renyi.epsilon == pytest.approx(100 * math.log1p((math.e - 1) / 4), rel=1e-9)
    by_epsilon = audited_claim(2.0, 10, 0.2, epsilon=2.0, delta=1e-5)
    epsilon = dp_sgd_epsilon(1e-5, 10, by_epsilon.noise_multiplier, 0.2)
    assert 2.0 - 1e-3 < epsilon <= 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mu": 1.0, "noise_multiplier": 10.0}, "given once, got mu, noise_multiplier"),
        ({"mu": 1.0, "epsilon": 1.0, "delta": 1e-5}, "given once, got mu, epsilon and delta"),
        ({"epsilon": 1.0}, "given together, got epsilon 1.0 and delta None"),
        ({"delta": 1e-5}, "given together"),
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon must be a finite number > 0"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta must be"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"mu": 1.0, "sample_rate": 0.1}, "mu must be left out with Poisson batches"),
        ({"sample_rate": 0.0}, "sample_rate must be"),
        ({"sample_rate": 0.01, "epsilon": 1.0, "delta": 0.99}, "delta must be small enough"),
    ],
)
def test_claims_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        DpSgdExperimentConfig(**settings)


def test_a_short_gradient_is_noted_in_the_report():
    settings = {"dataset": "digits", "model": "logistic", "num_records": 5, "steps": 2}
    experiment = build_dp_sgd_experiment(DpSgdExperimentConfig(**settings))
    norm = experiment.settings["canary_initial_gradient_norm"]
    assert bool(experiment.notes) == (norm < 1.0)
    far = build_dp_sgd_experiment(DpSgdExperimentConfig(**settings, canary="mislabelled"))
    assert far.settings["canary_initial_gradient_norm"] > 1.0
    assert far.notes == ()


def test_every_exported_name_is_there():
    for name in audits.__all__:
        assert getattr(audits, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nonesuch'"):
        _ = audits.Nonesuch
