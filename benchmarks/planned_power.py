"""Checks the planner: how often a claim is refuted with just the number of pairs that was planned for it.

    python benchmarks/planned_power.py --repeats=200

Claim and truth are Gaussian. "known" is the optimal e-process with the true log ratio, "learned" is the one of
`SequentialRenyiPropertyTester`. Prints a Markdown table.
"""

from __future__ import annotations

import argparse

import numpy as np
from quick import parse_arguments

from dvrenyi_plugin.audits.planner import plan_refutation
from dvrenyi_plugin.bounds.eprocess import GrowthOptimalEProcess, sample_size_warm_up
from dvrenyi_plugin.bounds.limit import closest_null, gaussian_pair
from dvrenyi_plugin.divergences import renyi_gaussian

FAILURE_PROBABILITY = 0.05
# Order, claimed mu, true mu.
SETTINGS = ((2.0, 1.0, 2.0), (1.25, 1.0, 2.0), (2.0, 1.0, 1.5), (1.25, 0.5, 0.8), (2.0, 2.0, 2.5))


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
        refuted += walk.max() >= -np.log(FAILURE_PROBABILITY)
    return refuted / runs


def refuted_with_learned_ratio(
    alpha: float, epsilon: float, mu: float, pairs: int, runs: int
) -> float:
    """Returns the fraction of runs that refute the claim, all smaller nulls included."""
    refuted = 0
    for seed in range(runs):
        rng = np.random.default_rng([2, seed])
        process = GrowthOptimalEProcess(
            alpha, FAILURE_PROBABILITY, claims=[epsilon], warm_up=sample_size_warm_up(pairs)
        )
        process.update(rng.normal(mu, 1.0, pairs), rng.normal(0.0, 1.0, pairs))
        refuted += process.lower_bound > epsilon
    return refuted / runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parse_arguments(parser, repeats=1)
    runs = arguments.repeats
    print(
        "| alpha | claimed mu | true mu | wanted | pairs, known | refuted | pairs, learned | refuted |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for alpha, claimed, mu in SETTINGS[: 1 if arguments.quick else None]:
        epsilon = renyi_gaussian(alpha, claimed, 0.0)
        pair = gaussian_pair(mu, alpha)
        known, learned = (
            plan_refutation(pair, alpha, epsilon, FAILURE_PROBABILITY, known_log_ratio=flag)
            for flag in (True, False)
        )
        for power in (0.5, 0.9):
            few, more = known.pairs_for_power(power), learned.pairs_for_power(power)
            assert few is not None
            assert more is not None
            cells = (
                f"{alpha:g}", f"{claimed:g}", f"{mu:g}", f"{power:.0%}",
                f"{few:,}", f"{refuted_with_known_ratio(alpha, epsilon, mu, few, 10 * runs):.0%}",
                f"{more:,}", f"{refuted_with_learned_ratio(alpha, epsilon, mu, more, runs):.0%}",
            )  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
