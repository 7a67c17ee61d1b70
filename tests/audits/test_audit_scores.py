"""Audits of recorded scores."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import dvrenyi_plugin
from dvrenyi_plugin.audits import audit_scores
from dvrenyi_plugin.binaries import audit_scores as command
from dvrenyi_plugin.data import RecordedScores


def scores(mu: float, n: int = 400, m: int = 400, seed: int = 0) -> RecordedScores:
    rng = np.random.default_rng(seed)
    return RecordedScores(rng.normal(mu, 1.0, (n, 1)), rng.normal(0.0, 1.0, (m, 1)), ("loss",))


def test_a_broken_claim_is_refuted_and_a_true_one_is_not() -> None:
    assert audit_scores(scores(2.0), "mu=1").report.refuted
    result = dvrenyi_plugin.audit_scores(scores(1.0), "mu=1")
    assert not result.report.refuted and 0.5 < result.report.lower_bound < 1.0


@pytest.mark.parametrize("claim", ["mu=0.5", "renyi:alpha=2,epsilon=0.25"])
def test_the_order_of_the_rows_does_not_matter_to_validity(claim: str) -> None:
    # Sorted by score, pairs in the order of the file would look like another law than they have.
    wrong = 0
    for seed in range(40):
        drawn = scores(0.5, 300, 300, seed)
        parts = np.sort(drawn.with_record, axis=0), np.sort(drawn.without, axis=0)[::-1]
        wrong += audit_scores(parts, claim).report.refuted
    assert wrong <= 6  # at failure probability 0.05; more than 6 of 40 has probability 0.003


def test_unequal_counts_are_audited_and_said() -> None:
    report = audit_scores(scores(2.0, 300, 900), "mu=1").report
    assert report.refuted and report.num_samples == 300
    assert "300 models with the canary and 900 without it" in report.summary()


def test_a_seed_gives_the_same_audit_and_what_is_no_number_counts() -> None:
    drawn = scores(1.0)
    drawn.with_record[:40] = np.nan
    first, second = (audit_scores(drawn, "mu=0.5", seed=3) for _ in range(2))
    assert first.report.lower_bound == second.report.lower_bound
    assert (first.samples[0] == 2e30).sum() == 40
    assert any("40 of 800 models gave" in note for note in first.report.notes)


def test_the_report_names_the_scores_and_says_when_there_is_no_d_prime() -> None:
    names = tuple(f"loss {index}" for index in range(9))
    drawn = RecordedScores(*(np.random.default_rng(0).normal(size=(2, 20, 9))), columns=names)
    assert "'loss 7' and 1 more." in audit_scores(drawn, "mu=1").report.notes[0]
    diverged = scores(0.0, 20, 20)
    diverged.with_record[:] = np.inf
    summary = audit_scores(diverged, "mu=1", discrete_outputs=True).report.summary()
    assert "no d-prime over 20 models per dataset" in summary
    assert "none" not in summary


def test_repeated_models_and_bad_arguments_are_refused() -> None:
    drawn = scores(1.0)
    twice = np.repeat(drawn.with_record, 2, axis=0)
    with pytest.raises(ValueError, match="models must be independent, got 796 of 800 models with"):
        audit_scores((twice, drawn.without), "mu=1")
    rounded = np.round(drawn.with_record), np.round(drawn.without)
    assert audit_scores(rounded, "mu=0.2", discrete_outputs=True).report.refuted
    with pytest.raises(ValueError, match="at least 10 models without the record, got 9"):
        audit_scores((drawn.with_record, drawn.without[:9]), "mu=1")
    with pytest.raises(ValueError, match="claim is required"):
        audit_scores(drawn, None)
    with pytest.raises(ValueError, match="as many columns on both sides, got 1 with"):
        audit_scores((drawn.with_record, np.ones((20, 2))), "mu=1")
    with pytest.raises(ValueError, match="scores must be a file, several, or two arrays"):
        audit_scores(3.0, "mu=1")
    with pytest.raises(ValueError, match="scores with the record must be numbers"):
        audit_scores((["x"] * 20, drawn.without), "mu=1")
    with pytest.raises(ValueError, match="failure_probability must be"):
        audit_scores(drawn, "mu=1", failure_probability=2.0)


def test_the_command_needs_no_torch_and_goes_on_from_a_report(tmp_path) -> None:
    drawn = scores(2.0)
    lines = [f"with,{row!r}" for row in drawn.with_record[:, 0].tolist()]
    lines += [f"without,{row!r}" for row in drawn.without[:, 0].tolist()]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["side,loss", *lines]))
    program = (
        "import sys\n"
        "from dvrenyi_plugin.binaries import audit_scores\n"
        "status = audit_scores.main(['audit_scores', *sys.argv[1:]])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(status)\n"
    )
    flags = ["--claim=mu=1", f"--output_dir={tmp_path / 'out'}", "--fail_on_violation", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), *flags], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert document["refuted"] and document["settings"]["scores"] == ["loss"]
    names = {"report.md", "report.html", "report.json", "observations.npz", "observations.png"}
    assert names <= {file.name for file in (tmp_path / "out").iterdir()}
    again = [str(tmp_path / "out" / "observations.npz"), "--claim=mu=1"]
    assert command.main(["audit_scores", *again, f"--output_dir={tmp_path / 'again'}"]) == 0


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, capsys) -> None:
    out = f"--output_dir={tmp_path / 'out'}"
    assert command.main(["audit_scores", "--claim=mu=1", out]) == 1
    assert (
        capsys.readouterr().err == "audit_scores: scores is required: a file, such as scores.csv\n"
    )
    path = tmp_path / "s.csv"
    path.write_text("side,loss\nwith,1\nwithout,2\n")
    assert command.main(["audit_scores", str(path), out]) == 1
    assert "claim is required" in capsys.readouterr().err
    assert command.main(["audit_scores", str(path), "--claim=mu=1", out]) == 1
    assert "at least 10 models with the record, got 1" in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.json").exists()
