"""Prints how often the published Gaussian-DP baseline refutes a claim that holds.

The claim is mu-Gaussian DP and the data are N(mu, 1) against N(0, 1), so the claim is exactly true;
mu = 0 is null
data. Run: python benchmarks/gdp_baseline_false_alarms.py --repeats=2000
"""

from __future__ import annotations

import argparse

import numpy as np
from quick import parse_arguments

from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty
from dvrenyi_plugin.testers import (
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

FAILURE_PROBABILITY = 0.05
SEED = 7


def false_alarm_rates(num_samples: int, mu: float, repeats: int) -> dict[str, float]:
    """Returns, for each way of testing, the fraction of runs that refute the true claim."""
    claim = PrivacyProperty(gaussian_dp=GaussianDp(mu))
    testers = {
        "baseline, either sign": GdpBaselineTester(GdpBaselineTesterConfig(claim)),
        "baseline, fixed sign": GdpBaselineTester(
            GdpBaselineTesterConfig(claim, score="observation")
        ),
        "baseline, held out": GdpBaselineTester(
            GdpBaselineTesterConfig(claim, held_out_threshold=True)
        ),
        "threshold attack": ThresholdAttackTester(ThresholdAttackTesterConfig(claim)),
    }
    refuted = dict.fromkeys(testers, 0)
    rng = np.random.default_rng(SEED)
    for _ in range(repeats):
        samples1, samples2 = rng.normal(mu, 1.0, num_samples), rng.normal(0.0, 1.0, num_samples)
        for name, tester in testers.items():
            refuted[name] += tester.audit(samples1, samples2, FAILURE_PROBABILITY).refuted
    return {name: count / repeats for name, count in refuted.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    repeats = parse_arguments(parser, repeats=2).repeats
    print(f"failure probability {FAILURE_PROBABILITY}, {repeats} repeats, seed {SEED}")
    for num_samples in (100, 500):
        for mu in (0.0, 1.0):
            rates = false_alarm_rates(num_samples, mu, repeats)
            cells = ", ".join(f"{name} {rate:.4f}" for name, rate in rates.items())
            print(f"n = {num_samples}, mu = {mu:g}: {cells}", flush=True)


if __name__ == "__main__":
    main()
