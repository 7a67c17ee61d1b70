"""Counts how often each tester refutes a claim that is exactly true.

    python benchmarks/coverage.py                                   # everything that is missing, then the page
    python benchmarks/coverage.py --testers=sequential --cells null "heavy tails"
    python benchmarks/coverage.py --page_only

In every cell the claim is the true divergence itself (0 for equal laws), where a valid test has the least room. One data set serves
all three failure probabilities. A row is appended to the results file as soon as it is known and is not computed again.

The sequential tester is counted by the e-value of the claim's own null, in the e-process and in the order of samples it uses. The tester itself
also needs every smaller null rejected, so it can only refute less often.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from known_pairs import KnownPair, finite, gaussian, on_grid, rounded_gaussian, student
from scipy import stats

from dvrenyi_plugin.bounds.eprocess import GrowthOptimalEProcess, sample_size_warm_up
from dvrenyi_plugin.bounds.limit import closest_null, discrete_pair, gaussian_pair
from dvrenyi_plugin.bounds.log_ratio import fit_log_ratio
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    LikelihoodRatioTester,
    LikelihoodRatioTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
ALPHA = 2.0
FAILURE_PROBABILITIES = (0.01, 0.05, 0.2)
SIGNIFICANCE = 1e-3
REPEATS, NETWORK_REPEATS = 2_000, 200
_CHUNK = 100
_COLUMNS = ("cell", "tester", "failure_probability", "repeats", "refuted", "p_value", "seconds")


def _null() -> KnownPair:
    pair = gaussian(1.0)
    return KnownPair(
        "N(0, 1) twice",
        pair.sample_p,
        pair.sample_p,
        lambda x: np.zeros(len(x)),
        discrete_pair([1.0], [1.0]),
        0.0,
    )


def _closest_gaussian() -> KnownPair:
    pair = gaussian_pair(1.5, ALPHA)
    null = closest_null(pair, ALPHA, 1.0).null
    return on_grid(
        "null pair closest to N(1.5, 1), N(0, 1)", null, np.arange(pair.log_q.size, dtype=float)
    )


def _closest_discrete() -> KnownPair:
    null = closest_null(discrete_pair([0.6, 0.3, 0.1], [0.1, 0.3, 0.6]), ALPHA, 0.4).null
    return finite(
        "null pair closest to (.6 .3 .1), (.1 .3 .6)", np.exp(null.log_q), np.exp(null.log_p)
    )


# Name: (pair, samples of law 1, samples of law 2).
CELLS: dict[str, tuple[Callable[[], KnownPair], int, int]] = {
    "null": (_null, 200, 200),
    "at the claim": (lambda: gaussian(1.0), 200, 200),
    "at the claim, least favourable": (_closest_gaussian, 200, 200),
    "heavy tails": (lambda: student(3.0, 1.0), 200, 200),
    "heavier tails": (lambda: student(1.0, 1.5), 200, 200),
    "ties": (lambda: rounded_gaussian(1.0, 0.5), 200, 200),
    "discrete": (_closest_discrete, 200, 200),
    "unequal counts": (lambda: gaussian(1.0), 120, 400),
}
TESTERS = ("sequential", "threshold", "markov", "bounded", "dv_renyi", "gdp_baseline")
_NETWORK_CELLS = ("null", "at the claim, least favourable", "heavy tails", "ties", "discrete")


def refutations(tester: str, pair: KnownPair, counts: tuple[int, int], seed: int) -> list[bool]:
    """Returns, for each failure probability, whether the true claim is refuted on one data set."""
    rng = np.random.default_rng(seed)
    q, p = pair.sample_q(rng, counts[0]), pair.sample_p(rng, counts[1])
    divergence = pair.grid.renyi(ALPHA)
    if tester == "sequential":
        return _sequential_refutations(q, p, divergence, seed)
    claim = PrivacyProperty(renyi_dp=RenyiDp(ALPHA, divergence))
    made: Any = _make(tester, claim, pair, seed)
    return [made.audit(q, p, beta).refuted for beta in FAILURE_PROBABILITIES]


def _make(tester: str, claim: PrivacyProperty, pair: KnownPair, seed: int) -> Any:
    match tester:
        case "threshold":
            return ThresholdAttackTester(ThresholdAttackTesterConfig(claim, seed=seed))
        case "dv_renyi":
            made = DvRenyiPropertyTester(DvRenyiPropertyTesterConfig(claim, seed=seed))
            # The critic does not depend on the failure probability: train it once for all three.
            made._estimator = _TrainedOnce(made._estimator)
            return made
        case "gdp_baseline":
            return GdpBaselineTester(GdpBaselineTesterConfig(claim, seed=seed))
        case "markov":
            return LikelihoodRatioTester(LikelihoodRatioTesterConfig(claim, pair.log_ratio))
        case "bounded":
            return LikelihoodRatioTester(
                LikelihoodRatioTesterConfig(
                    claim,
                    pair.log_ratio,
                    certificate="bounded",
                    largest_log_ratio=pair.largest_log_ratio,
                )
            )
    raise ValueError(f"tester must be one of {TESTERS}, got {tester!r}")


class _TrainedOnce:
    """An estimator that is asked about one data set only."""

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._estimate = estimator, None

    def estimate(self, samples1: np.ndarray, samples2: np.ndarray) -> Any:
        if self._estimate is None:
            self._estimate = self._estimator.estimate(samples1, samples2)
        return self._estimate


def _sequential_refutations(
    q: np.ndarray, p: np.ndarray, divergence: float, seed: int
) -> list[bool]:
    rng = np.random.default_rng(seed)
    q, p = rng.permutation(q), rng.permutation(p)
    fits: dict[int, Any] = {}

    def fit(past_q: np.ndarray, past_p: np.ndarray) -> Any:
        # What is fitted depends on the past alone, not on the failure probability.
        if len(past_q) not in fits:
            fits[len(past_q)] = fit_log_ratio(past_q, past_p)
        return fits[len(past_q)]

    refuted = []
    for beta in FAILURE_PROBABILITIES:
        process = GrowthOptimalEProcess(
            ALPHA,
            beta,
            epsilons=np.array([max(divergence, 1e-9)]),
            fit=fit,
            warm_up=sample_size_warm_up(min(len(q), len(p))),
        )
        process.update(q, p)
        refuted.append(process.lower_bound > 0.0)
    return refuted


def measure(cell: str, tester: str, repeats: int, jobs: int) -> list[dict[str, object]]:
    """Returns one row a failure probability."""
    make, *counts = CELLS[cell]
    start = time.perf_counter()

    def chunk(first: int) -> np.ndarray:
        pair = make()
        seeds = range(first, min(first + _CHUNK, repeats))
        return np.sum(
            [refutations(tester, pair, (counts[0], counts[1]), seed) for seed in seeds], axis=0
        )

    totals = sum(Parallel(n_jobs=jobs)(delayed(chunk)(i) for i in range(0, repeats, _CHUNK)))
    seconds = (time.perf_counter() - start) / repeats
    return [
        {
            "cell": cell,
            "tester": tester,
            "failure_probability": beta,
            "repeats": repeats,
            "refuted": int(count),
            "p_value": f"{stats.binom.sf(count - 1, repeats, beta):.3g}",
            "seconds": round(seconds, 5),
        }
        for beta, count in zip(FAILURE_PROBABILITIES, totals, strict=True)
    ]


def read(results: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows measured so far."""
    if not results.exists():
        return []
    with results.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_page(rows: list[dict[str, str]], docs: pathlib.Path) -> None:
    """Writes coverage.md and coverage.png, keeping the notes below the page's last rule."""
    page = docs / "coverage.md"
    notes = page.read_text(encoding="utf-8").partition("\n---\n")[2] if page.exists() else ""
    lines = [
        "# How often a true claim is refuted",
        "",
        "`python benchmarks/coverage.py` writes this page. The claim is exactly the true divergence at alpha = 2, so every refutation is an error; 200"
        " samples a side (120 and 400 where counts are unequal). Entries are the fraction of runs that refute, at failure probabilities"
        f" {', '.join(f'{b:g}' for b in FAILURE_PROBABILITIES)}. **Bold**: significantly more than allowed (one-sided binomial test at {SIGNIFICANCE:g}).",
        "",
        "`gdp_baseline` is the published baseline, which is *not valid* at its stated level: it is here for comparison.",
        "",
        "| cell | tester | runs | " + " | ".join(f"{b:g}" for b in FAILURE_PROBABILITIES) + " |",
        "|---" * (3 + len(FAILURE_PROBABILITIES)) + "|",
    ]
    by_line: dict[tuple[str, str], dict[float, dict[str, str]]] = {}
    for row in rows:
        key = (row["cell"], row["tester"])
        by_line.setdefault(key, {})[float(row["failure_probability"])] = row
    order = {name: index for index, name in enumerate((*TESTERS, *CELLS))}
    for cell, tester in sorted(by_line, key=lambda key: (order[key[0]], order[key[1]])):
        entries = by_line[(cell, tester)]
        some = next(iter(entries.values()))
        values = [_entry(entries[beta]) for beta in FAILURE_PROBABILITIES]
        lines.append(
            f"| {cell} | {tester} | {int(some['repeats']):,} | " + " | ".join(values) + " |"
        )
    page.write_text(
        "\n".join([*lines, "", "![coverage](coverage.png)", ""]) + "\n---\n" + notes,
        encoding="utf-8",
    )
    _plot(rows, docs / "coverage.png")


def failures(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Returns the rows of testers that claim validity and significantly break it."""
    return [
        row
        for row in rows
        if row["tester"] != "gdp_baseline" and float(row["p_value"]) < SIGNIFICANCE
    ]


def _entry(row: dict[str, str]) -> str:
    rate = f"{int(row['refuted']) / int(row['repeats']):.4f}"
    return f"**{rate}**" if float(row["p_value"]) < SIGNIFICANCE else rate


def _plot(rows: list[dict[str, str]], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.0, 3.6))
    at_005 = [row for row in rows if float(row["failure_probability"]) == 0.05]
    cells = [cell for cell in CELLS if any(row["cell"] == cell for row in at_005)]
    for offset, tester in enumerate(TESTERS):
        points = [
            (cells.index(row["cell"]), int(row["refuted"]) / int(row["repeats"]))
            for row in at_005
            if row["tester"] == tester
        ]
        if points:
            x, y = np.array(points).T
            axis.plot(x + 0.08 * (offset - 2.5), y, "o", markersize=4, label=tester)
    axis.axhline(0.05, color="black", linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(cells)), [cell.replace(", ", ",\n") for cell in cells], fontsize=7)
    axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylabel("true claims refuted at 0.05")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--testers", nargs="+", default=TESTERS, choices=TESTERS)
    parser.add_argument("--cells", nargs="+", default=tuple(CELLS), choices=tuple(CELLS))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--network_repeats", type=int, default=NETWORK_REPEATS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=DOCS / "coverage.csv")
    parser.add_argument(
        "--page_only", action="store_true", help="rewrite the page, measure nothing"
    )
    arguments = parser.parse_args()
    for tester in () if arguments.page_only else arguments.testers:
        for cell in arguments.cells:
            repeats = arguments.repeats
            if tester == "dv_renyi":
                if cell not in _NETWORK_CELLS:
                    continue
                repeats = arguments.network_repeats
            if tester == "bounded" and CELLS[cell][0]().largest_log_ratio is None:
                continue
            done = {(row["cell"], row["tester"]) for row in read(arguments.results)}
            if (cell, tester) in done:
                continue
            rows = measure(cell, tester, repeats, arguments.jobs)
            fresh = not arguments.results.exists()
            with arguments.results.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerows(rows)
            for row in rows:
                print(*row.values(), sep=", ", flush=True)
    rows_so_far = read(arguments.results)
    write_page(rows_so_far, arguments.results.parent)
    broken = failures(rows_so_far)
    for row in broken:
        print("NOT VALID:", row)
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
