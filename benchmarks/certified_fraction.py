"""Measures how much of the true divergence each method certifies, beside the information limit.

    python benchmarks/certified_fraction.py    # everything, then the page and the picture
    python benchmarks/certified_fraction.py --methods=ours --families=gaussian --num_pairs 500
    python benchmarks/certified_fraction.py --page_only

One row is appended to the results file as soon as it is known, and rows that are there are not
computed again. Methods:

- ours: SequentialRenyiPropertyTester, nothing known about the laws.
- betting: DvRenyiPropertyTester, a neural critic on a part of the samples, two betting bounds on
  the rest.
- threshold: ThresholdAttackTester, a 0/1 rule and joint Clopper-Pearson bounds.
- radius: the Chernoff radius log((1 + g) / (1 - g)) of DP-Auditorium's Renyi tester, in the best
  case: all samples test, the critic is the true log ratio clipped to [-C, C], and C is the best of
  a grid in hindsight.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Iterable

import numpy as np
from joblib import Parallel, delayed
from known_pairs import (
    KnownPair,
    gaussian,
    gaussian_scales,
    laplace,
    mixture,
    packing,
    student,
)
from quick import parse_arguments, scratch_file

from dvrenyi_plugin.bounds.information_limit import certifiable_fraction
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
FAILURE_PROBABILITY = 0.05
MUS = (0.5, 1.0, math.sqrt(2.0), 2.0, math.sqrt(10.0))
NUM_PAIRS = (500, 5_000, 50_000)
ALPHAS = (1.25, 2.0, 4.0)
_RADIUS_BOUNDS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_COLUMNS = ("family", "pair", "alpha", "num_pairs", "method", "seeds", "divergence", "limit",
            "mean", "sd", "seconds")  # fmt: skip

FAMILIES: dict[str, Callable[[], list[KnownPair]]] = {
    "gaussian": lambda: [gaussian(mu) for mu in MUS],
    "laplace": lambda: [laplace(shift) for shift in (0.5, 1.0, 2.0)],
    "packing": lambda: [packing(10, 0.3), packing(10, 0.6), packing(10, 0.9), packing(40, 0.6)],
    "outside": lambda: [
        mixture(0.3, (1.5,), "mixture, 0.7 N(0, 1) + 0.3 N(1.5, 1)"),
        mixture(1.0, (-1.5, 1.5), "mixture, N(-1.5, 1) and N(1.5, 1) evenly"),
        gaussian(1.0, dimension=10),
        gaussian(2.0, dimension=10),
    ],
    "tails": lambda: [student(3.0, 1.0), gaussian_scales(1.0, 1.5)],
    "vectors": lambda: [gaussian(2.0, dimension=columns) for columns in (20, 100, 400)],
}


@dataclasses.dataclass(frozen=True)
class Task:
    """One row of the results."""

    family: str
    pair_index: int
    alpha: float
    num_pairs: int
    method: str
    seeds: int


def bound_of(method: str, pair: KnownPair, alpha: float, q: np.ndarray, p: np.ndarray) -> float:
    """Returns the method's lower bound on D_alpha."""
    claim = PrivacyProperty(renyi_dp=RenyiDp(alpha, 1.0))
    if method == "radius":
        return _radius_bound(pair, alpha, q, p)
    tester = {
        "ours": lambda: SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(claim)),
        "betting": lambda: DvRenyiPropertyTester(
            DvRenyiPropertyTesterConfig(claim, bound_method="betting")
        ),
        "threshold": lambda: ThresholdAttackTester(ThresholdAttackTesterConfig(claim)),
    }[method]()
    return tester.estimate_lower_bound(q, p, FAILURE_PROBABILITY)


def _radius_bound(pair: KnownPair, alpha: float, q: np.ndarray, p: np.ndarray) -> float:
    count, log_term = min(len(q), len(p)), math.log(2.0 / FAILURE_PROBABILITY)
    ratio_q, ratio_p = (pair.log_ratio(s.reshape(len(s), -1)) for s in (q, p))
    best = 0.0
    for bound in _RADIUS_BOUNDS:
        g = max(
            math.sqrt(3.0 * log_term * math.exp(2.0 * (alpha - 1.0) * bound) / count),
            math.sqrt(2.0 * log_term * math.exp(2.0 * alpha * bound) / count),
        )
        if g >= 1.0:
            continue  # NaN there
        first = np.exp((alpha - 1.0) * np.clip(ratio_q, -bound, bound)).mean()
        second = np.exp(alpha * np.clip(ratio_p, -bound, bound)).mean()
        value = alpha / (alpha - 1.0) * math.log(first) - math.log(second)
        best = max(best, value - math.log((1.0 + g) / (1.0 - g)))
    return best


def measure(task: Task) -> dict[str, object]:
    """Returns the row of one task."""
    pair = FAMILIES[task.family]()[task.pair_index]
    divergence = pair.grid.renyi(task.alpha)
    bounds, start = [], time.perf_counter()
    for seed in range(task.seeds):
        rng = np.random.default_rng([seed, task.num_pairs])
        q, p = pair.sample_q(rng, task.num_pairs), pair.sample_p(rng, task.num_pairs)
        bounds.append(bound_of(task.method, pair, task.alpha, q, p) / divergence)
    seconds = (time.perf_counter() - start) / task.seeds
    limit = certifiable_fraction(pair.grid, task.alpha, task.num_pairs, FAILURE_PROBABILITY)
    return {
        "family": task.family,
        "pair": pair.name,
        "alpha": task.alpha,
        "num_pairs": task.num_pairs,
        "method": task.method,
        "seeds": task.seeds,
        "divergence": round(divergence, 6),
        "limit": round(limit, 4),
        "mean": round(float(np.mean(bounds)), 4),
        "sd": round(float(np.std(bounds)), 4),
        "seconds": round(seconds, 4),
    }


def seeds_for(method: str, num_pairs: int, family: str, seeds: int) -> int:
    """Returns how many data sets a cell gets; networks take seconds each."""
    if family == "vectors" and num_pairs > 500:
        return 0
    if method == "betting":
        return {500: min(seeds, 10), 5_000: min(seeds, 3)}.get(num_pairs, 0)
    return seeds if family == "gaussian" else min(seeds, 20)


def run(tasks: Iterable[Task], results: pathlib.Path, jobs: int) -> None:
    """Measures what the results file lacks, in parallel, and appends each row as it comes."""
    done = {_key(row) for row in read(results)}
    pairs = {name: make() for name, make in FAMILIES.items()}
    todo = [
        task
        for task in tasks
        if task.seeds
        and (
            pairs[task.family][task.pair_index].name,
            task.alpha,
            task.num_pairs,
            task.method,
            task.seeds,
        )
        not in done
    ]
    for row in Parallel(n_jobs=jobs, return_as="generator")(delayed(measure)(t) for t in todo):
        fresh = not results.exists()
        with results.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        print(*(row[name] for name in _COLUMNS), sep=", ", flush=True)


def read(results: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows measured so far."""
    if not results.exists():
        return []
    with results.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _key(row: dict[str, str]) -> tuple[str, float, int, str, int]:
    return (
        row["pair"],
        float(row["alpha"]),
        int(row["num_pairs"]),
        row["method"],
        int(row["seeds"]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=("ours", "threshold", "radius", "betting"))
    parser.add_argument("--families", nargs="+", default=tuple(FAMILIES))
    parser.add_argument("--num_pairs", type=int, nargs="+", default=NUM_PAIRS)
    parser.add_argument("--alphas", type=float, nargs="+", default=ALPHAS)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=DOCS / "certified_fraction.csv")
    parser.add_argument(
        "--page_only", action="store_true", help="rewrite the page, measure nothing"
    )
    arguments = parse_arguments(
        parser,
        num_pairs=(500,),
        alphas=(2.0,),
        seeds=1,
        jobs=1,
        results=scratch_file("certified_fraction.csv"),
    )
    if not arguments.page_only:
        tasks = [
            Task(
                family,
                index,
                alpha,
                count,
                method,
                seeds_for(method, count, family, arguments.seeds),
            )
            for method in arguments.methods
            for family in arguments.families
            for count in arguments.num_pairs
            for index in range(len(FAMILIES[family]()))
            for alpha in arguments.alphas
        ]
        run(tasks, arguments.results, arguments.jobs)
    from certified_fraction_page import write_page

    write_page(read(arguments.results), arguments.results.parent)


if __name__ == "__main__":
    main()
