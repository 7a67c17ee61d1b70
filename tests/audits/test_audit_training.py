"""Audits of users' own trainings by one call."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest
import training_examples as examples

import dvrenyi_plugin
from dvrenyi_plugin.audits.training.audit import audit_training
from dvrenyi_plugin.audits.training.outlook import outlook
from dvrenyi_plugin.audits.training.sections import Separation
from dvrenyi_plugin.interfaces import GaussianDp, as_privacy_property
from dvrenyi_plugin.reports.files import REPORT_FILES

CALLS = "DVRENYI_TEST_CALLS"


def noisy_sum(dataset: Any, seed: int) -> float:
    return float(np.sum(dataset)) + float(np.random.default_rng(seed).standard_normal())


def half_noise(dataset: Any, seed: int) -> float:
    return float(np.sum(dataset)) + 0.5 * float(np.random.default_rng(seed).standard_normal())


def remembered(dataset: Any, seed: int) -> float:
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{seed}\n")
    return noisy_sum(dataset, seed)


def itself(model: Any) -> Any:
    return model


PAIR = np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])


def audit(train: Any = noisy_sum, observe: Any = itself, **given: Any) -> Any:
    given = {"pair": PAIR, "claim": "mu=1", "num_models": 100, "show_progress": False, **given}
    return audit_training(train, observe, given.pop("pair"), given.pop("claim"), **given)


@pytest.mark.parametrize("observe", ["torch_loss", "torch_logits", "sklearn_score", "numpy_score"])
def test_a_planted_fault_is_refuted_and_the_honest_training_is_not(observe: str) -> None:
    library = observe.partition("_")[0]
    for kind, refuted in (("faulty", True), ("honest", False)):
        train = getattr(examples, f"{library}_{kind}")
        result = audit(train, getattr(examples, observe), pair=examples.PAIR)
        # The honest one fails with probability at most 0.05, and has a seed.
        assert result.report.refuted is refuted, (observe, kind)
        assert result.samples[0].shape[1] == (2 if observe == "torch_logits" else 1)


def test_a_result_prints_as_a_summary_and_its_repr_is_short() -> None:
    result = audit(half_noise)
    assert str(result) == result.report.summary() and "REFUTED" in str(result)
    assert repr(result).startswith("AuditResult(AuditReport(refuted: mu 1 claimed, ")
    assert len(repr(result)) < 120
    page = result._repr_html_()
    assert "<h2>Privacy audit of test_audit_training.half_noise</h2>" in page
    assert "<style" not in page and "<body" not in page and "REFUTED" in page


def test_the_package_offers_it_at_its_top() -> None:
    assert dvrenyi_plugin.audit_training is audit_training


def test_workers_batches_and_a_store_change_no_model(tmp_path: pathlib.Path) -> None:
    alone = audit(num_models=24)
    for given in (
        {"workers": 2},
        {"batch_models": 7},
        {"sequential": False},
        {"store": tmp_path / "models.sqlite"},
    ):
        for ours, theirs in zip(audit(num_models=24, **given).samples, alone.samples, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_store_goes_on_and_serves_another_claim(tmp_path, monkeypatch) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setenv(CALLS, str(calls))
    store = tmp_path / "models.sqlite"
    audit(remembered, num_models=10, store=store)
    assert len(calls.read_text().split()) == 20
    audit(remembered, num_models=16, store=store, claim="epsilon=2")
    seeds = calls.read_text().split()
    assert len(seeds) == 32 == len(set(seeds))


def test_a_report_is_written_with_its_pictures(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "new" / "report"
    audit(half_noise, report_dir=folder)
    written = {*REPORT_FILES, "observations.png", "evidence.png", "trade_off.png"}
    assert {path.name for path in folder.iterdir()} == written
    assert "REFUTED" in (folder / "report.md").read_text()
    audit(noisy_sum, report_dir=folder)
    assert "REFUTED" not in (folder / "report.md").read_text()
    assert {path.name for path in folder.iterdir()} == written


def test_a_folder_that_cannot_be_written_is_noticed_before_training(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="report_dir"):
        audit(remembered, report_dir=tmp_path / "file" / "report")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("claim", "tester", "words"),
    [
        ("mu=1", "trade_off", "mu 1 (Gaussian DP"),
        (as_privacy_property(GaussianDp(1.0)), "trade_off", "mu 1 (Gaussian DP"),
        ("epsilon=2", "trade_off", "epsilon 2 (pure DP)"),
        ("epsilon=2,delta=1e-3", "trade_off", "epsilon 2 ((epsilon, delta)-DP at delta 0.001)"),
        ("renyi:alpha=2,epsilon=1", "sequential", "epsilon 1 at order alpha 2"),
        ("rho=0.5", "sequential", "epsilon 1 at order alpha 2 (0.5-zCDP)"),
        ("noise_multiplier=1,sample_rate=0.5,steps=4", "trade_off", "sample rate 0.5, 4 steps"),
    ],
)
def test_every_claim_has_its_tester(claim: Any, tester: str, words: str) -> None:
    report = audit(num_models=20, claim=claim).report
    assert report.settings["tester"] == tester
    assert words in report.summary()


def test_a_canary_is_made_for_arrays_and_given_to_observe() -> None:
    def observe(model: Any, canary: Any) -> float:
        features, label = canary
        np.testing.assert_array_equal(features, np.zeros(5, np.float32))
        return float(model @ examples.CANARY[0]) + 0.0 * float(label)

    dataset = examples.FEATURES, examples.LABELS
    given = {"dataset": dataset, "canary": "blank", "num_models": 20}
    report = audit(examples.numpy_honest, observe, pair=None, **given).report
    assert report.settings["canary"].startswith("blank, label ")
    # A sum does not see a record of zeros.
    assert not report.refuted and report.lower_bound == 0.0


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (PAIR, None),
        (([1, "a"], [1, "a", "b"]), None),
        ((np.zeros(3), np.array([0.0, 1.0, 0.0])), "a record that is replaced"),
        ((object(), object()), "it was not checked"),
    ],
)
def test_how_the_datasets_differ_is_said_where_it_matters(pair: Any, words: str | None) -> None:
    def train(dataset: Any, seed: int) -> float:
        return float(np.random.default_rng(seed).standard_normal())

    notes = audit(train, pair=pair, num_models=10).report.notes
    assert (words is None) or any(words in note for note in notes)
    assert (words is not None) or not any("differ" in note for note in notes)


def test_all_numbers_of_a_vector_are_tested_and_the_clearest_is_shown() -> None:
    def observe(model: float) -> list[float]:
        return [0.001 * model % 1e-4, model]

    report = audit(half_noise, observe, num_models=100).report
    assert report.refuted
    document = report.document()
    first, second = document["d_prime_by_column"]
    assert document["d_prime"] == second > first
    assert "number 1 of 2" in report.to_markdown()


def test_vectors_of_changing_length_are_refused() -> None:
    with pytest.raises(ValueError, match="same number of values for every model, got"):
        audit(observe=lambda model: [model] * (1 + (model > 0.0)))


def test_an_observation_may_change_its_canary() -> None:
    def observe(model: Any, canary: Any) -> float:
        seen = float(model @ canary[0])
        canary[0][:] = 0.0
        return seen

    data = examples.FEATURES, examples.LABELS
    given = {"pair": None, "dataset": data, "canary": examples.CANARY, "num_models": 20}
    assert audit(examples.numpy_faulty, observe, **given).samples[0].std() > 0.0


def test_what_is_no_number_is_counted() -> None:
    report = audit(observe=lambda model: float("nan"), num_models=10).report
    assert any("20 of 20 models gave an observation" in note for note in report.notes)
    assert not report.refuted and report.lower_bound == 0.0


def test_too_few_models_are_said_before_training(capsys: Any) -> None:
    def train(dataset: Any, seed: int) -> float:
        raise KeyboardInterrupt

    for claim, warned in (("epsilon=8,delta=1e-5", True), ("mu=1", False)):
        with pytest.raises(KeyboardInterrupt):
            audit(train, claim=claim, show_progress=True)
        said = "100 models per dataset cannot refute this claim" in capsys.readouterr().err
        assert said is warned


def test_the_report_names_the_label_of_a_canary() -> None:
    data = np.zeros((6, 2)), np.array([0, 0, 0, 0, 0, 1])
    report = audit(
        lambda dataset, seed: noisy_sum(dataset[1], seed),
        lambda model, canary: model,
        pair=None,
        dataset=data,
        canary=np.ones(2),
        num_models=10,
    ).report
    assert report.settings["canary"] == "given, label 1"


def test_models_that_repeat_each_other_end_the_audit_unless_declared() -> None:
    def self_seeded(dataset: Any, seed: int) -> float:
        return noisy_sum(dataset, 7)

    with pytest.raises(ValueError, match="a seed set inside the training"):
        audit(self_seeded)
    assert audit(self_seeded, discrete_outputs=True).samples[0].std() == 0.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"claim": None}, "claim is required"),
        ({"claim": "very private"}, "claim must be written as one of"),
        ({"claim": 1.0}, "claim must be a property, or a text, one of mu=1; .* got 1.0"),
        ({"claim": (4.0, 1e-5)}, r"claim must be a property, or a text, .* got \(4.0, 1e-05\)"),
        ({"train": 3}, "train must be callable, got 3"),
        ({"train": lambda dataset: 0.0}, r"train must be callable as train\(dataset, seed\)"),
        ({"observe": lambda: 0.0}, r"observe must be callable as observe\(model\)"),
        ({"pair": None}, "either pair, or dataset and canary must be given"),
        ({"pair": 3}, "pair must be two datasets"),
        ({"pair": (PAIR[0],)}, "got tuple of 1"),
        ({"canary": "blank"}, "pair is given, so canary must be left out"),
        ({"pair": PAIR[::-1]}, "the second with one record more"),
        ({"pair": (PAIR[0], PAIR[0])}, "got 0 of 3 that differ"),
        ({"num_models": 9}, "num_models must be an integer >= 10, got 9"),
        ({"workers": 0}, "workers must be an integer >= 1"),
    ],
)
def test_mistakes_are_answered_before_training(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(**given)


def test_the_planners_word_says_how_many_models_it_would_take() -> None:
    claim = as_privacy_property(GaussianDp(1.0))
    result = audit(num_models=40)
    assert any("To refute this claim with probability 0.9 takes" in n for n in result.report.notes)

    def words(d_prime: float) -> str:
        (sentence,) = outlook(result.report, claim, Separation(d_prime, 0.1, 1.0))
        return sentence

    assert "takes more models than any audit has if" in words(0.9)
    assert "d-prime 0.3 +- 0.1, lies below this claim" in words(0.3)
    assert "suggest_canaries" in words(0.3)
    # docs/trade_off.md measured a median of 81 pairs at 1.5; nine runs in ten take about twice it.
    needed = int(words(1.5).partition("takes ")[2].split()[0])
    assert 100 < needed < 260
    assert f"({needed - 40} more)" in words(1.5)
    assert "would have refuted" in words(5.0)
    assert outlook(audit(half_noise).report, claim, Separation(2.0, 0.1, 1.0)) == ()
    assert outlook(result.report, claim, Separation(float("nan"), 0.1, 1.0)) == ()
