"""The command that audits a user's own training, and what hostile modules do to it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dvrenyi_plugin.binaries import audit_training

MODULE = """
import os, pathlib, sys, time
import numpy as np

print("a module that talks")
pair = np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])
data = np.zeros((4, 1)), np.array([0, 0, 0, 1])
text = "no function"

def make_pair():
    return pair

def train(dataset, seed):
    print("a training that talks")
    return dataset.sum() + 0.1 * np.random.default_rng(seed).standard_normal()

def loss(model):
    return model

def score(model, canary):
    return model

def on_labels(dataset, seed):
    return train(dataset[1], seed)

def raises(dataset, seed):
    return {}["weights"]

def ends(dataset, seed):
    sys.exit(0)

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__("odd")

def odd(dataset, seed):
    raise Odd(1, 2)

def mutates(dataset, seed):
    seen = train(dataset, seed)
    dataset -= 1.0
    return seen

def self_seeded(dataset, seed):
    return train(dataset, 1)

def tensor(model):
    import torch
    return torch.tensor([model], requires_grad=True)

def nothing(model):
    return []

def word(model):
    return "good"

def hangs(dataset, seed):
    done = pathlib.Path("done")
    if done.exists() and len(done.read_text().split()) >= 12 and not os.path.exists("go"):
        time.sleep(1000.0)
    with open(done, "a") as file:
        file.write(f"{seed}\\n")
    return train(dataset, seed)
"""
NAME = "hostile_training"
FLAGS = (f"--observe={NAME}:loss", f"--pair={NAME}:pair", "--claim=mu=1", "--num_models=60")


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Returns a function that runs the command in a folder with the module."""
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, NAME, raising=False)

    def main(train, *flags, workers=1):
        argv = ("x", f"{NAME}:{train}", *FLAGS, f"--workers={workers}", "--output_dir=out", *flags)
        status = audit_training.main(argv)
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return main


@pytest.mark.parametrize("workers", [1, 2])
def test_standard_output_is_the_document_whatever_a_training_prints(workers, run, capfd) -> None:
    argv = ("x", f"{NAME}:train", *FLAGS, f"--workers={workers}", "--output_dir=out", "--json")
    assert audit_training.main((*argv, "--fail_on_violation")) == 2
    document = json.loads(capfd.readouterr().out)
    assert document["refuted"] is True
    assert document["settings"]["train"] == f"{NAME}.train"
    assert {"report.html", "observations.png"} <= set(os.listdir("out"))


def test_a_pair_may_be_a_function_and_a_dataset_a_file(run) -> None:
    assert run("train", f"--pair={NAME}:make_pair", "--quiet")[0] == 0
    status, _, error = run("train", f"--dataset={NAME}:data", "--canary=blank", "--overwrite")
    assert status == 1 and "pair is given, so dataset, canary must be left out" in error
    np.savez("data.npz", features=np.zeros((4, 1)), labels=np.array([0, 0, 0, 1]))
    np.save("canary.npy", np.ones(1))
    for dataset in (f"{NAME}:data", "data.npz"):
        for canary in ("blank", "canary.npy"):
            argv = (
                *("x", f"--train={NAME}:on_labels", f"--observe={NAME}:score", "--claim=mu=1"),
                *(f"--dataset={dataset}", f"--canary={canary}", "--canary_label=1"),
                *("--output_dir=out", "--overwrite", "--fail_on_violation", "--num_models=60"),
            )
            assert audit_training.main(argv) == 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("train", "line"),
    [
        ("raises", "train raised KeyError: 'weights' (hostile_training.py, line 27)"),
        (
            "ends",
            "train raised RuntimeError: sys.exit(0) was called (hostile_training.py, line 30)",
        ),
        ("odd", "odd (hostile_training.py, line 37)"),
        ("self_seeded", "The likely cause is a seed set inside the training"),
    ],
)
def test_a_training_that_fails_is_told_in_one_line(train, line, workers, run) -> None:
    status, out, error = run(train, "--quiet", workers=workers)
    told = [one for one in error.splitlines() if one.startswith("audit_training: ")]
    assert status == 1 and out == ""
    assert len(told) == 1 and line in told[0]
    assert "Traceback" not in error


def test_a_training_may_change_its_dataset_and_give_tensors(run) -> None:
    bounds = [
        json.loads(run(train, "--json", "--overwrite", *flags)[1])["lower_bound"]
        for train, flags in (
            ("train", ()),
            ("mutates", ()),
            ("train", (f"--observe={NAME}:tensor",)),
        )
    ]
    assert bounds[0] == bounds[1] == bounds[2] > 1.0


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ((f"--observe={NAME}:nothing",), "observe must give at least one number, got []"),
        ((f"--observe={NAME}:word",), "observe must give numbers, got 'good'"),
        ((f"--observe={NAME}:los",), "has no 'los'; there is loss"),
        ((f"--observe={NAME}:text",), "observe must be callable, got 'no function'"),
        ((f"--observe={NAME}",), f"observe must be written module:name, got '{NAME}'"),
        (("--observe=nonesuch:loss",), "got 'nonesuch', which is neither in"),
        (("--claim=mu",), "claim must be written as one of mu=1;"),
        ((f"--pair={NAME}:text",), "pair must be two datasets"),
        (("--nonesuch=1",), "Unknown command line flag 'nonesuch'"),
        (("more",), "only flags are taken"),
    ],
)
def test_mistakes_are_one_line(flags, line, run) -> None:
    status, _, error = run("train", *flags)
    told = [one for one in error.splitlines() if one.startswith("audit_training: ")]
    assert status == 1 and len(told) == 1 and line in told[0]


def test_a_module_that_cannot_be_imported_is_told_in_one_line(run) -> None:
    pathlib.Path("broken_training.py").write_text("import os\n\n1 / 0\n")
    pathlib.Path("unmet_training.py").write_text("import nonesuch_library\n")
    error = run("train", "--observe=broken_training:loss")[2]
    assert "importing broken_training raised ZeroDivisionError" in error
    assert "(broken_training.py, line 3)" in error
    error = run("train", "--observe=unmet_training:loss")[2]
    assert "importing unmet_training raised ModuleNotFoundError: No module named" in error


def test_a_training_that_hangs_is_ended_and_its_models_are_kept(tmp_path) -> None:
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    command = [sys.executable, "-m", "dvrenyi_plugin.binaries.audit_training", f"{NAME}:hangs"]
    command += [*FLAGS, "--workers=1", "--output_dir=out", "--fail_on_violation"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    done, deadline = tmp_path / "done", time.monotonic() + 120.0
    while not (done.exists() and len(done.read_text().split()) >= 12):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "12 models are kept in" in error and "the same command goes on" in error
    (tmp_path / "go").touch()
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120).returncode == 2
    seeds = done.read_text().split()
    assert len(seeds) == len(set(seeds))


def test_a_dataset_of_unknown_content_is_audited_without_a_store(run) -> None:
    text = MODULE + "\npair = [0.0], [0.0, object()]\n\ndef train(dataset, seed):\n"
    text += "    return len(dataset) + np.random.default_rng(seed).standard_normal()\n"
    pathlib.Path(f"{NAME}.py").write_text(text)
    status, _, error = run("train")
    assert status == 0 and "audit_training: models are not kept: " in error
