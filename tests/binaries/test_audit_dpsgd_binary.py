"""The command-line audit: exit status, files, one-line errors, and the audit of a true and a false
claim.
"""

import json
import os
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from dvrenyi_plugin.audits.samplers.files import FLOW_FILES
from dvrenyi_plugin.audits.training.audit import OBSERVATIONS
from dvrenyi_plugin.audits.training.sections import CANARY_LOSSES
from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.binaries._output_directory import (
    REPORT_PARTS,
    SETTINGS_FILE,
    staged_output,
)
from dvrenyi_plugin.mechanisms import EnsembleDpSgdMechanism
from dvrenyi_plugin.reports.files import EVIDENCE_FILE, REPORT_FILES, TRADE_OFF_FILE

# Files of an audit that are kept for the next one, and are no part of its report.
KEPT = ("observations-", "initial-weights-", "noise-free-losses-")
TINY = [
    "--dataset=digits",
    "--model=logistic",
    "--num_records=10",
    "--num_models=60",
    "--steps=4",
    "--num_workers=1",
]


def audit(*flags):
    return audit_dpsgd.main(["audit_dpsgd", *TINY, *flags])


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory):
    """An audit of DP-SGD with a twentieth of the noise that its claim needs."""
    folder = tmp_path_factory.mktemp("broken") / "parent" / "report"
    status = audit("--noise_scale=0.05", "--fail_on_violation", f"--output_dir={folder}")
    return status, folder


def test_a_false_claim_is_refuted_with_status_2(broken_run):
    status, folder = broken_run
    report = json.loads((folder / "report.json").read_text())
    assert status == 2
    assert report["refuted"] is True
    assert report["lower_bound"] > report["claim"]["epsilon"] == 1.0
    assert report["claim"] == {"alpha": None, "epsilon": 1.0, "mu": 1.0, "parameter": "mu"}
    assert [claim["alpha"] for claim in report["claims"]] == [None, 2.0]
    assert report["failure_probability"] == 0.05
    assert report["num_models"] == 60
    assert report["d_prime"] > 5.0
    assert report["settings"]["noise_scale"] == 0.05
    assert report["settings"]["engine"] == "ensemble"
    assert report["versions"]["torch"]
    # The images came from there.
    assert report["versions"]["scikit-learn"]
    assert report["wall_seconds"] > 0.0


def test_a_report_is_complete_and_its_observations_are_those_it_was_made_from(broken_run):
    _, folder = broken_run
    pictures = [CANARY_LOSSES.file, TRADE_OFF_FILE]
    assert report_files_in(folder) == sorted([*REPORT_FILES, *pictures, SETTINGS_FILE])
    assert os.listdir(folder.parent) == ["report"]
    report = json.loads((folder / "report.json").read_text())
    with np.load(folder / "observations.npz", allow_pickle=False) as observations:
        for name in ("without_canary", "with_canary"):
            assert observations[name].shape == (60, 1)
            assert report["losses"][name]["mean"] == observations[name].mean()
    assert "REFUTED" in (folder / "report.md").read_text()
    for name in ("losses.png", "bound.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in (folder / "report.md").read_text()


def test_f18_times_are_called_by_what_they_are(broken_run):
    text = (broken_run[1] / "report.md").read_text()
    assert "whole audit" not in text and "training and testing / s" in text


def test_an_honest_claim_is_not_refuted_and_the_status_is_0(tmp_path, capsys):
    status = audit("--fail_on_violation", "--seed=1", f"--output_dir={tmp_path}")
    assert status == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["refuted"] is False
    # The canary's gradient is a little shorter than the clipping norm here; nothing else is lost.
    assert 0.8 < report["noise_free_d_prime"] < 1.1
    # With 60 models a world d-prime has a standard error near 0.2; the claim allows 1.
    assert 0.2 < report["d_prime"] < 1.9
    summary = capsys.readouterr().out
    for part in ("claim ", "point estimate ", "certified lower bound ", "not refuted"):
        assert part in summary


def test_a_rerun_repeats_the_observations_and_replaces_the_report(broken_run, tmp_path):
    _, first = broken_run
    (tmp_path / "notes.txt").write_text("the user's own")
    (tmp_path / "report.json").write_text("old")
    flags = ("--noise_scale=0.05", f"--output_dir={tmp_path}")
    assert audit(*flags, "--overwrite") == 0
    assert (tmp_path / "notes.txt").read_text() == "the user's own"
    assert json.loads((tmp_path / "report.json").read_text())["refuted"] is True
    with np.load(first / "observations.npz") as a, np.load(tmp_path / "observations.npz") as b:
        assert a["with_canary"].tobytes() == b["with_canary"].tobytes()


def test_an_earlier_reports_pictures_do_not_survive_beside_a_new_report(tmp_path):
    flags = ("--num_models=10", "--noise_scale=0.05", f"--output_dir={tmp_path}")
    (tmp_path / "kl.png").write_text("the user's own: there is no report yet")
    assert audit("--sequential", *flags) == 0
    assert (tmp_path / "evidence.png").exists() and (tmp_path / "kl.png").exists()
    (tmp_path / "notes.txt").write_text("the user's own")
    assert audit(*flags, "--overwrite") == 0
    assert report_files_in(tmp_path) == sorted(
        [*REPORT_FILES, CANARY_LOSSES.file, TRADE_OFF_FILE, SETTINGS_FILE, "notes.txt"]
    )


def test_every_file_of_a_report_is_known_as_a_part_of_it():
    files = {*REPORT_FILES, TRADE_OFF_FILE, EVIDENCE_FILE, *FLOW_FILES, SETTINGS_FILE}
    files |= {CANARY_LOSSES.file, OBSERVATIONS.file}
    assert files == set(REPORT_PARTS)


def report_files_in(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith(KEPT))


def stored_models(folder):
    (store,) = folder.glob("observations-*.sqlite")
    connection = sqlite3.connect(store)
    rows = connection.execute(
        "SELECT world, loss, logits FROM models ORDER BY world, number"
    ).fetchall()
    connection.close()
    return rows


def test_models_are_kept_with_their_losses_and_logits(broken_run):
    _, folder = broken_run
    rows = stored_models(folder)
    with np.load(folder / "observations.npz") as observations:
        for world, name in enumerate(("without_canary", "with_canary")):
            losses = np.array([loss for where, loss, _ in rows if where == world])
            assert losses.tobytes() == observations[name][:, 0].tobytes()
    label = json.loads((folder / "report.json").read_text())["settings"]["canary_label"]
    for _, loss, blob in rows:
        logits = np.frombuffer(blob)
        assert len(logits) == 10
        assert loss == pytest.approx(np.log(np.exp(logits).sum()) - logits[label], rel=1e-12)


def test_an_interrupted_audit_goes_on_with_the_models_it_has(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    train, calls = EnsembleDpSgdMechanism.train_models, []

    def interrupted(self, dataset, world, indices):
        # Models of the report are trained ten at a time; those without noise one at a time.
        if len(indices) > 1:
            calls.extend(indices)
            if len(calls) == 50:
                raise KeyboardInterrupt
        return train(self, dataset, world, indices)

    monkeypatch.setattr(EnsembleDpSgdMechanism, "train_models", interrupted)
    assert audit(f"--output_dir={out}") == 130
    assert f"40 models are kept in {out}" in capsys.readouterr().err
    assert len(stored_models(out)) == 40
    assert sum(name.startswith(KEPT) for name in os.listdir(out)) == len(os.listdir(out)) == 3
    assert audit(f"--output_dir={out}") == 0
    assert f"40 models of this experiment were kept in {out}" in capsys.readouterr().err
    # The interrupted task and those that had not begun: 50 models until then, 80 after it.
    assert len(calls) == 130
    monkeypatch.undo()
    assert audit(f"--output_dir={tmp_path / 'whole'}", "--noresume") == 0
    with (
        np.load(out / "observations.npz") as resumed,
        np.load(tmp_path / "whole" / "observations.npz") as whole,
    ):
        assert resumed["with_canary"].tobytes() == whole["with_canary"].tobytes()
        assert resumed["without_canary"].tobytes() == whole["without_canary"].tobytes()


def test_a_store_of_another_experiment_is_an_error_and_is_left_alone(broken_run, tmp_path, capsys):
    _, folder = broken_run
    (store,) = folder.glob("observations-*.sqlite")
    before = store.read_bytes()
    assert audit(f"--output_dir={tmp_path / 'out'}", f"--store={store}", "--steps=5") == 1
    error = capsys.readouterr().err
    assert "holds another experiment, which differs in settings.noise_multiplier" in error
    assert error.count("\n") == 1
    assert store.read_bytes() == before
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mu=abc"], "--mu=abc"),
        (["--mu=nan"], "mu must be a finite number > 0, got nan"),
        (["--num_models=1.5"], "--num_models=1.5"),
        (["--num_models=3"], "num_models must be an integer >= 10, got 3"),
        (["--alpha=1"], "alpha must be a finite number > 1, got 1.0"),
        (["--failure_probability=1"], "failure_probability must be"),
        (["--num_records=100000"], "num_records must be an integer >= 1 and <= 899"),
        (["--dataset=imagenet"], "dataset must be one of mnist5k, digits"),
        (["--dataset=mnist"], "data_dir must be a folder"),
        (["--canary=white"], "canary must be one of blank"),
        (["--canary_label=10"], "canary_label must be an integer >= 0 and <= 9, got 10"),
        (["--model=transformer"], "model must be one of mlp"),
        (["--model=cnn"], "height and width at least"),
        (["--initial_weights=/nowhere.pt"], "/nowhere.pt"),
        (["--engine=jax"], "engine must be one of"),
        (["--engine=opacus", "--device=cuda"], "device must be cpu with engine opacus, got 'cuda'"),
        (["--device=abacus"], "device must be a torch device, got 'abacus'"),
        (["--device=meta"], "device 'meta' cannot be used here"),
        (["--mu=1e300"], "mu must be a claim that noise between 1e-100 and 1e+30"),
        (["--noise_multiplier=1e300"], "noise_multiplier must be a claim that noise"),
        (["--noise_scale=1e300"], "noise_scale * noise_multiplier * clip_norm must be"),
        (["--learning_rate=1e300"], "learning_rate / gradient_denominator must be"),
        (["--num_canaries=99999999999"], "not enough memory"),
        (["--sequential", "--futility_mu=1e300"], "futility_mu must be"),
        (["--backend=mpi"], "backend must be one of loky"),
        (["--scheduler=tcp://host:1"], "scheduler must be given with backend dask or ray only"),
        (["--colour=blue"], "colour"),
        (["extra"], "only flags are taken, got 'extra'"),
    ],
)
def test_a_bad_request_is_one_line_and_status_1_and_leaves_nothing(
    tmp_path, capsys, flags, message
):
    status = audit(f"--output_dir={tmp_path / 'out'}", *flags)
    captured = capsys.readouterr()
    assert status == 1
    assert captured.out == ""
    assert captured.err.startswith("audit_dpsgd: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert os.listdir(tmp_path) == []


def test_output_directory_is_checked_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for output_dir in (
        "",
        str(tmp_path / "file"),
        "/proc/nowhere",
        str(tmp_path / "file" / "below"),
    ):
        assert audit(f"--output_dir={output_dir}", "--dataset=imagenet") == 1
        error = capsys.readouterr().err
        assert "output_dir" in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == ["file"]


def test_help_names_every_flag(capsys):
    assert audit_dpsgd.main(["audit_dpsgd", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("dataset", "mu", "noise_scale", "canary", "output_dir", "fail_on_violation"):
        assert f"--{flag}" in text or f"--[no]{flag}" in text


def test_a_fault_of_ours_keeps_its_traceback_and_leaves_nothing(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        staged_output(str(tmp_path / "out"), "report.json") as staging,
    ):
        with open(os.path.join(staging, "report.json"), "w") as file:
            file.write("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def run_module(*flags, prelude=""):
    code = f"{prelude}\nfrom dvrenyi_plugin.binaries.audit_dpsgd import run\nrun()"
    return subprocess.run(
        [sys.executable, "-c", code, *TINY, *flags], capture_output=True, text=True, timeout=120
    )


def test_console_script_exits_with_status_1_on_a_missing_package(tmp_path):
    prelude = "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.datasets'] = None"
    done = run_module(f"--output_dir={tmp_path / 'out'}", prelude=prelude)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert 'pip install ".[vision]" in a checkout' in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_bad_flag_is_answered_without_loading_torch(tmp_path):
    prelude = "import sys; sys.modules['torch'] = None"
    done = run_module("--mu=abc", f"--output_dir={tmp_path / 'out'}", prelude=prelude)
    assert done.returncode == 1
    assert "--mu=abc" in done.stderr and done.stderr.count("\n") == 1
