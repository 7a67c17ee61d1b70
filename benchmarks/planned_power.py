"""Checks the planner: how often a claim is refuted with just the number of pairs that was planned
for it.

    python benchmarks/planned_power.py --repeats=200

Claim and truth are Gaussian. "known" is the optimal e-process with the true log ratio, in one
direction. "fixed" is an audit of a number of models that is fixed beforehand, "batches" one that
trains in batches: both directions, each at half of the failure probability, refuted when either of
them refutes. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from quick import parse_arguments

from dvrenyi_plugin.audits.planner import plan_refutation
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.information_limit import closest_null
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.privacy.divergences import renyi_gaussian
from dvrenyi_plugin.testers import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
)

FAILURE_PROBABILITY = 0.05
# Order, claimed mu, true mu.
SETTINGS = (
    (2.0, 1.0, 4.0), (2.0, 1.0, 3.0), (2.0, 1.0, 2.0), (1.25, 1.0, 2.0), (4.0, 1.0, 2.5),
    (2.0, 1.0, 1.5), (1.25, 0.5, 0.8),
)  # fmt: skip


def refuted_with_known_ratio(
    alpha: float, epsilon: float, mu: float, pairs: int, runs: int
) -> float:
    """Returns the fraction of runs whose optimal log e-value reaches the threshold."""
    pair = gaussian_pair(mu, alpha)
    null = closest_null(pair, alpha, epsilon)
    rng = np.random.default_rng(1)
    refuted = 0
    for _ in range(runs):
        x = rng.choice(pair.log_q.size, pairs, p=np.exp(pair.log_q))
        y = rng.choice(pair.log_q.size, pairs, p=np.exp(pair.log_p))
        walk = np.cumsum(null.log_first[x] + null.log_second[y])
        refuted += walk.max() >= -np.log(FAILURE_PROBABILITY / 2.0)
    return refuted / runs


def _refuted_by_audit(tester: SequentialRenyiPropertyTester, x: np.ndarray, y: np.ndarray) -> bool:
    half = FAILURE_PROBABILITY / 2.0
    return any(tester.audit(*samples, half).refuted for samples in ((x, y), (y, x)))


def _refuted_in_batches(
    tester: SequentialRenyiPropertyTester, x: np.ndarray, y: np.ndarray
) -> bool:
    half = FAILURE_PROBABILITY / 2.0
    for samples in ((x, y), (y, x)):
        process = tester.start(half)
        process.update(*samples)
        if tester.reject_property(process.lower_bound):
            return True
    return False


Audit = Callable[[SequentialRenyiPropertyTester, np.ndarray, np.ndarray], bool]
# Name: (warm-up that is planned for, audit).
AUDITS: dict[str, tuple[int | None, Audit]] = {
    "fixed": (None, _refuted_by_audit),
    "batches": (STREAM_WARM_UP, _refuted_in_batches),
}


def refuted_share(
    audit: Audit, alpha: float, epsilon: float, mu: float, pairs: int, runs: int
) -> float:
    """Returns the fraction of audits that refute the claim."""
    refuted = 0
    for seed in range(runs):
        rng = np.random.default_rng([2, seed])
        claim = PrivacyProperty(renyi_dp=RenyiDp(alpha, epsilon))
        tester = SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(claim))
        refuted += audit(tester, rng.normal(mu, 1.0, pairs), rng.normal(0.0, 1.0, pairs))
    return refuted / runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parse_arguments(parser, repeats=1)
    runs = arguments.repeats
    header = ("alpha", "claimed mu", "true mu", "wanted", "pairs, known", "refuted")
    header += tuple(word for name in AUDITS for word in (f"pairs, {name}", "refuted"))
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    for alpha, claimed, mu in SETTINGS[: 1 if arguments.quick else None]:
        epsilon = renyi_gaussian(alpha, claimed, 0.0)
        pair, half = gaussian_pair(mu, alpha), FAILURE_PROBABILITY / 2.0
        known = plan_refutation(pair, alpha, epsilon, half, known_log_ratio=True)
        for power in (0.5, 0.9):
            few = known.pairs_for_power(power)
            assert few is not None
            share = refuted_with_known_ratio(alpha, epsilon, mu, few, 10 * runs)
            cells = [
                f"{alpha:g}",
                f"{claimed:g}",
                f"{mu:g}",
                f"{power:.0%}",
                f"{few:,}",
                f"{share:.0%}",
            ]
            for warm_up, audit in AUDITS.values():
                plan = plan_refutation(pair, alpha, epsilon, half, warm_up=warm_up)
                pairs = plan.pairs_for_power(power)
                assert pairs is not None
                share = refuted_share(audit, alpha, epsilon, mu, pairs, runs)
                cells += [f"{pairs:,}", f"{share:.0%}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
