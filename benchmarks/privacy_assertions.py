"""How often suites of privacy assertions accuse honest mechanisms, and how soon a broken one fails.

    python benchmarks/privacy_assertions.py

A suite makes ten assertions of Laplace and Gaussian mechanisms that keep their claims exactly, at
failure probability 0.01 of the whole, divided as the pytest fixture divides it over ten tests.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import numpy as np
from quick import parse_arguments

from dvrenyi_plugin import assert_private
from dvrenyi_plugin.audits.pytest_plugin import PrivacySuite
from dvrenyi_plugin.mechanisms import (
    GaussianMechanism,
    GaussianMechanismConfig,
    LaplaceMechanism,
    LaplaceMechanismConfig,
)

DATASETS = np.ones((4, 1)), np.ones((5, 1))
WHOLE, TESTS = 0.01, 10


def suite_fails(seed: int, budget: int) -> bool:
    """Returns whether a suite of honest mechanisms fails."""
    for number in range(TESTS):
        suite = PrivacySuite(WHOLE / TESTS)
        seeds = 1000 * seed + number
        mechanism, claim = (
            (LaplaceMechanism(LaplaceMechanismConfig(seed=seeds)), "epsilon=1")
            if number % 2
            else (GaussianMechanism(GaussianMechanismConfig(seed=seeds)), "mu=1")
        )
        try:
            suite.assert_private(mechanism, *DATASETS, claim, budget=budget, seed=seeds)
        except AssertionError:
            return True
    return False


def seconds_to_fail(seed: int) -> float:
    """Returns the time after which Laplace noise of half its scale fails; infinity if it passes."""
    mechanism = LaplaceMechanism(LaplaceMechanismConfig(noise_scale=0.5, seed=seed))
    start = time.perf_counter()
    try:
        assert_private(
            mechanism, *DATASETS, "epsilon=1", failure_probability=WHOLE / TESTS, seed=seed
        )
    except AssertionError:
        return time.perf_counter() - start
    return math.inf


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=int, default=100)
    parser.add_argument("--budget", type=int, default=500, help="outputs per dataset and assertion")
    parser.add_argument("--broken", type=int, default=100, help="runs of half the noise")
    options = parse_arguments(parser, suites=1, budget=40, broken=1)
    failed = sum(suite_fails(seed, options.budget) for seed in range(options.suites))
    print(f"honest suites that fail: {failed} of {options.suites}", flush=True)
    seconds = [seconds_to_fail(seed) for seed in range(options.broken)]
    quick = sum(value <= 5.0 for value in seconds)
    print(
        f"half the noise: {quick} of {options.broken} fail within 5 s,"
        f" median {statistics.median(seconds):.2f} s"
    )


if __name__ == "__main__":
    main()
