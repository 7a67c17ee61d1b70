"""The trade-off e-process: false alarms at true claims, certified mu over its limit, pairs to
refute, time per call.

python benchmarks/trade_off.py
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from quick import parse_arguments

from dvrenyi_plugin.bounds.eprocess import EProcess, sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP, TradeOffEProcess
from dvrenyi_plugin.bounds.trade_off_limit import certifiable_parameter
from dvrenyi_plugin.privacy.claim_families import SingleCurveFamily
from dvrenyi_plugin.privacy.trade_off import ApproximateDpCurve, GaussianCurve, TradeOffCurve
from dvrenyi_plugin.privacy.trade_off_families import GaussianFamily

Array = NDArray[np.float64]
FAILURE_PROBABILITY = 0.05
# N(mu, 1) against N(0, 1) has D_2 = mu^2.
ORDER = 2.0

Laws = Callable[[np.random.Generator, int], tuple[Array, Array]]


def gaussian(mu: float) -> Laws:
    """Returns N(mu, 1) and N(0, 1)."""
    return lambda rng, n: (rng.normal(mu, 1.0, (n, 1)), rng.normal(0.0, 1.0, (n, 1)))


def laplace(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Keeps pure DP of epsilon 1 with equality."""
    return rng.laplace(1.0, 1.0, (n, 1)), rng.laplace(0.0, 1.0, (n, 1))


def coins(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Randomised response of epsilon 1."""
    truth = math.e / (1.0 + math.e)
    return (rng.random((n, 1)) < truth) * 1.0, (rng.random((n, 1)) > truth) * 1.0


def rounded(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """N(1, 1) and N(0, 1) rounded to whole numbers."""
    return np.round(rng.normal(1.0, 1.0, (n, 1))), np.round(rng.normal(0.0, 1.0, (n, 1)))


def unequal(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Three times as many samples of N(1, 1) as of N(0, 1)."""
    return rng.normal(1.0, 1.0, (3 * n, 1)), rng.normal(0.0, 1.0, (n, 1))


def heavy(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Equal laws with heavy tails."""
    return rng.standard_cauchy((n, 1)), rng.standard_cauchy((n, 1))


KEPT: dict[str, tuple[Laws, TradeOffCurve]] = {
    "Gaussian, mu 1": (gaussian(1.0), GaussianCurve(1.0)),
    "Laplace, pure DP of 1": (laplace, ApproximateDpCurve(1.0)),
    "randomised response, pure DP of 1": (coins, ApproximateDpCurve(1.0)),
    "rounded Gaussian, mu 1": (rounded, GaussianCurve(1.0)),
    "3:1 counts, mu 1": (unequal, GaussianCurve(1.0)),
    "equal Cauchy, mu 0.01": (heavy, GaussianCurve(0.01)),
}


def false_alarms(repeats: int, pairs: int) -> None:
    """Prints how often claims are refuted that the laws keep."""
    print(f"\nFalse alarms, {pairs} pairs, {repeats} repeats, failure probability 0.05")
    for name, (laws, curve) in KEPT.items():
        alarms = 0
        for seed in range(repeats):
            process = TradeOffEProcess(
                SingleCurveFamily(curve),
                FAILURE_PROBABILITY,
                warm_up=sample_size_warm_up(pairs),
            )
            process.update(*laws(np.random.default_rng(seed), pairs))
            alarms += process.lower_bound > 0.0
        print(f"{name}: {alarms / repeats:.4f}", flush=True)


def certified(sizes: list[int], most_pairs: int) -> None:
    """Prints the mean certified mu over the limit, and the time of a call over that of the Rényi
    e-process.
    """
    print("\nCertified mu over its limit")
    for pairs in sizes:
        repeats = max(2, min(40, most_pairs // pairs))
        for mu in (1.0, 2.0):
            limit = certifiable_parameter(
                gaussian_pair(mu, 8.0), GaussianFamily(), pairs, FAILURE_PROBABILITY
            )
            ours = [_timed(_trade_off, mu, pairs, seed) for seed in range(repeats)]
            renyi = [_timed(_renyi, mu, pairs, seed) for seed in range(max(2, repeats // 4))]
            bounds = [bound for bound, _ in ours]
            ratio = statistics.median(t for _, t in ours) / statistics.median(t for _, t in renyi)
            at_order = math.sqrt(statistics.mean(bound for bound, _ in renyi))
            print(
                f"{pairs} pairs, mu {mu:g}, {repeats} repeats: {statistics.mean(bounds):.3f},"
                f" {statistics.mean(bounds) / limit:.3f} of {limit:.3f}; order 2 certifies mu"
                f" {at_order:.3f}; time over Renyi's {ratio:.2f}",
                flush=True,
            )


def _trade_off(pairs: int) -> EProcess:
    return TradeOffEProcess(
        GaussianFamily(), FAILURE_PROBABILITY, warm_up=sample_size_warm_up(pairs)
    )


def _renyi(pairs: int) -> EProcess:
    return GrowthOptimalEProcess(ORDER, FAILURE_PROBABILITY, warm_up=sample_size_warm_up(pairs))


def _timed(
    new_process: Callable[[int], EProcess], mu: float, pairs: int, seed: int
) -> tuple[float, float]:
    samples = gaussian(mu)(np.random.default_rng(seed), pairs)
    start = time.process_time()
    process = new_process(pairs)
    process.update(*samples)
    return process.lower_bound, time.process_time() - start


def pairs_to_refute(seeds: int) -> None:
    """Prints after how many pairs "mu = 1" is refuted when the truth is 1.25, 1.5, 2 and 4."""
    print("\nPairs to refute mu = 1, median (order 2 on the same samples, one direction)")
    for mu in (1.25, 1.5, 2.0, 4.0):
        counts: list[list[int]] = [[], []]
        for seed in range(seeds):
            processes = (
                TradeOffEProcess(
                    SingleCurveFamily(GaussianCurve(1.0)),
                    FAILURE_PROBABILITY,
                    warm_up=TRADE_OFF_WARM_UP,
                ),
                GrowthOptimalEProcess(
                    ORDER, FAILURE_PROBABILITY, epsilons=np.array([1.0]), warm_up=TRADE_OFF_WARM_UP
                ),
            )
            for process, found in zip(processes, counts, strict=True):
                rng = np.random.default_rng(seed)
                while process.num_pairs < 2000 and process.lower_bound == 0.0:
                    process.update(*gaussian(mu)(rng, 2))
                found.append(process.num_pairs)
        ours, renyi = (statistics.median(found) for found in counts)
        print(f"mu {mu:g}, {seeds} seeds: {ours:g} ({renyi:g})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="of every true claim")
    parser.add_argument("--pairs", type=int, default=300, help="samples a side of true claims")
    parser.add_argument("--sizes", default="500,5000,50000", help="pairs of the certified mu")
    parser.add_argument("--most_pairs", type=int, default=200_000, help="of a size, all repeats")
    parser.add_argument("--seeds", type=int, default=40, help="of the pairs to refute")
    arguments = parse_arguments(parser, repeats=2, pairs=60, sizes="100", most_pairs=200, seeds=1)
    false_alarms(arguments.repeats, arguments.pairs)
    certified([int(size) for size in arguments.sizes.split(",")], arguments.most_pairs)
    pairs_to_refute(arguments.seeds)


if __name__ == "__main__":
    main()
