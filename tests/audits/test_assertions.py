"""Privacy assertions, by themselves and in a test run that divides its failure probability."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

import numpy as np
import pytest

from dvrenyi_plugin import assert_private
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty
from dvrenyi_plugin.mechanisms import LaplaceMechanism, LaplaceMechanismConfig

DATASETS = np.ones((4, 1)), np.ones((5, 1))


def laplace(noise_scale=1.0, seed=0):
    return LaplaceMechanism(LaplaceMechanismConfig(noise_scale=noise_scale, seed=seed))


def gaussian(shift, seed=0):
    rng = np.random.default_rng(seed)
    return lambda dataset, count: rng.normal(shift * len(dataset), 1.0, count)


@pytest.mark.parametrize("claim", ["epsilon=1", "alpha=2,epsilon=0.7", "epsilon=0.9,delta=0.1"])
def test_an_honest_mechanism_passes_with_its_audit(claim):
    report = assert_private(laplace(), *DATASETS, claim, budget=300)
    assert not report.refuted and report.num_samples == 300
    assert report.failure_probability == 0.01


@pytest.mark.parametrize(
    ("mechanism", "claim", "said"),
    [
        (laplace(0.5), "epsilon=1", "not epsilon=1: at least epsilon 1"),
        (gaussian(2.0), PrivacyProperty(gaussian_dp=GaussianDp(1.0)), "not mu 1 (Gaussian DP"),
        (gaussian(2.0), "alpha=2,epsilon=1", "at least D_2 1"),
        (gaussian(2.0), "noise_multiplier=1,sample_rate=0.5", "at least trade-off curve"),
    ],
)
def test_a_broken_mechanism_fails_early_with_bound_claim_and_seed(mechanism, claim, said):
    with pytest.raises(AssertionError) as failure:
        assert_private(mechanism, *DATASETS, claim, failure_probability=0.001, seed=3)
    message = str(failure.value)
    assert said in message and "failure_probability=0.001, seed=3" in message
    assert int(re.search(r"from (\d+) of at most 2000", message)[1]) < 1000


@pytest.mark.parametrize(
    ("mechanism", "settings", "error"),
    [
        (gaussian(0.0), {"budget": 9}, "budget must be an integer >= 10"),
        (gaussian(0.0), {"budget": 10}, "budget must be large enough to refute the claim"),
        (gaussian(0.0), {"failure_probability": 1.0}, "failure_probability must be"),
        (gaussian(0.0), {"claim": "mu=-1"}, "claim must be written as one of"),
        (lambda dataset, count: ["a"] * count, {}, "mechanism must give numbers"),
        (lambda dataset, count: np.zeros(3), {}, r"mechanism must give 50 outputs, shape"),
        (lambda dataset, count: np.full(count, np.nan), {}, "mechanism must give finite numbers"),
        (
            lambda dataset, count: np.random.default_rng(0).normal(size=count),
            {},
            "mechanism must return fresh samples at every call",
        ),
    ],
)
def test_what_cannot_be_asserted_is_refused(mechanism, settings, error):
    claim = settings.pop("claim", "mu=1")
    with pytest.raises(ValueError, match=error):
        assert_private(mechanism, *DATASETS, claim, **settings)


def test_what_the_mechanism_raises_is_told():
    def broken(dataset, count):
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column"):
        assert_private(broken, *DATASETS, "mu=1")


SUITE = """
import numpy as np

rng = np.random.default_rng({seed})
D1, D2 = np.ones((4, 1)), np.ones((5, 1))

def noisy(shift):
    return lambda dataset, count: rng.normal(shift * len(dataset), 1.0, count)

def test_first(privacy_suite):
    for _ in range(2):
        report = privacy_suite.assert_private(noisy(0.5), D1, D2, "mu=1", budget=100)
    assert abs(report.failure_probability - 0.02 / 3 * 6 / (2 * np.pi) ** 2) < 1e-12

def test_second(privacy_suite):
    privacy_suite.assert_private(noisy({shift}), D1, D2, "mu=1", budget=400)

def test_third(privacy_suite):
    try:
        privacy_suite.assert_private(noisy(0.5), D1, D2, "mu=1", failure_probability=0.5)
    except ValueError as error:
        assert "left to the suite" in str(error)

def test_of_something_else():
    pass
"""


def run_suite(folder, *flags, shift=0.5, ini="0.02"):
    (folder / "test_suite.py").write_text(SUITE.format(seed=1, shift=shift))
    (folder / "pytest.ini").write_text(f"[pytest]\nprivacy_failure_probability = {ini}\n")
    installed = importlib.metadata.entry_points(group="pytest11", name="dvrenyi_plugin")
    plugin = [] if installed else ["-p", "dvrenyi_plugin.audits.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_suite_divides_one_failure_probability_over_its_tests(tmp_path, workers):
    status, output = run_suite(tmp_path, *workers)
    assert status == 0, output
    # Three parts of 0.02 / 3; two assertions of the first spend 6 / pi^2 (1 + 1/4) of theirs.
    spent = 0.02 / 3 * 6 / np.pi**2 * (1.0 + 0.25 + 1.0)
    assert f"3 assertions in 3 tests spent {spent:.4g} of the failure probability 0.02" in output


def test_a_broken_mechanism_fails_its_test_of_the_suite(tmp_path):
    status, output = run_suite(tmp_path, shift=3.0)
    assert status == 1 and "1 failed, 3 passed" in output
    assert "the mechanism is not mu=1: at least mu" in output


def test_the_command_line_beats_the_file_and_a_bad_number_is_one_line(tmp_path):
    assert (
        "failure probability 0.5"
        in run_suite(tmp_path, "-k", "second", "--privacy_failure_probability=0.5")[1]
    )
    status, output = run_suite(tmp_path, ini="two")
    assert status != 0 and "privacy_failure_probability must be a number in (0, 1)" in output


def test_the_plugin_loads_nothing_heavy():
    program = (
        "import sys; import dvrenyi_plugin.audits.pytest_plugin;"
        "print([name for name in ('numpy', 'scipy', 'torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
