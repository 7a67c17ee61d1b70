"""The trade-off e-process: false alarms at true claims, certified mu over its limit, certified
epsilon beside Clopper-Pearson with a held-out threshold, pairs to refute, time per call.

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
from scipy.stats import norm

from dvrenyi_plugin.bounds.eprocess import EProcess, sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP, TradeOffEProcess
from dvrenyi_plugin.bounds.trade_off_factor import nearest_null
from dvrenyi_plugin.bounds.trade_off_limit import certifiable_parameter
from dvrenyi_plugin.interfaces import ApproximateDp, GaussianDp, PrivacyProperty, PureDp
from dvrenyi_plugin.privacy.claim_families import SingleCurveFamily
from dvrenyi_plugin.privacy.trade_off import ApproximateDpCurve, GaussianCurve, TradeOffCurve
from dvrenyi_plugin.privacy.trade_off_claims import dp_sgd_curve
from dvrenyi_plugin.privacy.trade_off_families import GaussianFamily
from dvrenyi_plugin.testers import (
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
    TradeOffPropertyTester,
    TradeOffPropertyTesterConfig,
)

Array = NDArray[np.float64]
FAILURE_PROBABILITY = 0.05
# N(mu, 1) against N(0, 1) has D_2 = mu^2.
ORDER = 2.0
# Of the subsampled Gaussian mechanism: one step, of which a quarter sees the record.
RATE, NOISE = 0.25, 0.5
MOST_WATCHED_PAIRS = 1000
LARGEST_OF_EPSILONS = 5000

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


def ten_columns(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Vectors whose means are 1 apart, spread evenly over ten columns."""
    return rng.normal(math.sqrt(0.1), 1.0, (n, 10)), rng.normal(0.0, 1.0, (n, 10))


def subsampled(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """One Gaussian release with noise 0.5 of a sum that a quarter of the runs sees the record of,
    and one of a sum that never does.
    """
    return rng.normal(rng.random((n, 1)) < RATE, NOISE), rng.normal(0.0, NOISE, (n, 1))


def swapped(laws: Laws) -> Laws:
    """Returns the two laws in the other order."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        first, second = laws(rng, n)
        return second, first

    return draw


def least_favourable() -> Laws:
    """Returns the laws that keep mu = 1 and lie nearest to N(1.5, 1) and N(0, 1), on 60 cells."""
    edges = np.linspace(-3.0, 4.5, 59)
    masses = [np.diff(np.pad(norm.cdf(edges, mu), 1, constant_values=(0, 1))) for mu in (1.5, 0)]
    null = nearest_null(*masses, GaussianCurve(1.0))
    tails = (GaussianCurve(1.0).power(null.levels), null.levels)
    q, p = (-np.diff(np.concatenate([[1.0], tail, [0.0]])) for tail in tails)

    def draw(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        first, second = (rng.choice(q.size, (n, 1), p=masses).astype(float) for masses in (q, p))
        return first, second

    return draw


KEPT: dict[str, tuple[Laws, TradeOffCurve]] = {
    "Gaussian, mu 1": (gaussian(1.0), GaussianCurve(1.0)),
    "Laplace, pure DP of 1": (laplace, ApproximateDpCurve(1.0)),
    "randomised response, pure DP of 1": (coins, ApproximateDpCurve(1.0)),
    "rounded Gaussian, mu 1": (rounded, GaussianCurve(1.0)),
    "3:1 counts, mu 1": (unequal, GaussianCurve(1.0)),
    "equal Cauchy, mu 0.01": (heavy, GaussianCurve(0.01)),
    "ten columns, mu 1": (ten_columns, GaussianCurve(1.0)),
    "nearest to N(1.5, 1), mu 1": (least_favourable(), GaussianCurve(1.0)),
    "subsampled, remove": (subsampled, dp_sgd_curve(1, NOISE, RATE, "remove")),
    "subsampled, add": (swapped(subsampled), dp_sgd_curve(1, NOISE, RATE, "add")),
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
    alarms = 0
    for seed in range(repeats):
        watched, rng = _single(GaussianCurve(1.0)), np.random.default_rng(seed)
        while watched.num_pairs < MOST_WATCHED_PAIRS and watched.lower_bound == 0.0:
            watched.update(*gaussian(1.0)(rng, 20))
        alarms += watched.lower_bound > 0.0
    print(f"Gaussian, mu 1, watched to {MOST_WATCHED_PAIRS} pairs: {alarms / repeats:.4f}")


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


def epsilons(sizes: list[int], repeats: int) -> None:
    """Prints mean certified epsilons beside those of an attack with a held-out threshold and exact
    binomial bounds: at delta 1e-5 read from Gaussian DP, and of claims without a family.
    """
    print(f"\nMean certified epsilon, {repeats} repeats (threshold attack on the same samples)")
    claims: dict[str, tuple[Laws, PrivacyProperty]] = {
        f"N({mu:g}, 1), Gaussian DP at 1e-5": (
            gaussian(mu),
            PrivacyProperty(gaussian_dp=GaussianDp(mu)),
        )
        for mu in (1.0, 2.0)
    }
    claims |= {
        f"N({mu:g}, 1), (epsilon, 1e-5)": (
            gaussian(mu),
            PrivacyProperty(approximate_dp=ApproximateDp(1.0, 1e-5)),
        )
        for mu in (1.0, 2.0)
    }
    claims["Laplace, shift 1, pure"] = (laplace, PrivacyProperty(pure_dp=PureDp(1.0)))
    for pairs in sizes:
        for name, (laws, claim) in claims.items():
            found: list[list[float]] = [[], []]
            for seed in range(repeats):
                samples = laws(np.random.default_rng(seed), pairs)
                testers = (
                    TradeOffPropertyTester(TradeOffPropertyTesterConfig(claim)),
                    ThresholdAttackTester(ThresholdAttackTesterConfig(claim)),
                )
                for tester, bounds in zip(testers, found, strict=True):
                    bound = tester.audit(*samples, FAILURE_PROBABILITY).lower_bound
                    bounds.append(
                        GaussianCurve(bound).epsilon(1e-5) if claim.gaussian_dp else bound
                    )
            ours, attack = map(statistics.mean, found)
            print(f"{pairs} pairs, {name}: {ours:.2f} ({attack:.2f})", flush=True)


def _single(curve: TradeOffCurve) -> EProcess:
    return TradeOffEProcess(
        SingleCurveFamily(curve), FAILURE_PROBABILITY, warm_up=TRADE_OFF_WARM_UP
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
                _single(GaussianCurve(1.0)),
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
    sizes = [int(size) for size in arguments.sizes.split(",")]
    certified(sizes, arguments.most_pairs)
    epsilons([size for size in sizes if size <= LARGEST_OF_EPSILONS], arguments.seeds)
    pairs_to_refute(arguments.seeds)


if __name__ == "__main__":
    main()
