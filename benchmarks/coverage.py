"""Counts how often each tester refutes a claim that is exactly true.

    python benchmarks/coverage.py    # everything that is missing, then the page
    python benchmarks/coverage.py --testers=sequential --cells null "heavy tails"
    python benchmarks/coverage.py --page_only

In every cell the claim is the true divergence itself (0 for equal laws), where a valid test has the
least room. One data set serves all three failure probabilities. Runs are made in chunks, each
cell's first chunk before any second one; a chunk is appended to the results file as soon as it is
done and is not computed again, so that an interrupted benchmark goes on where it was.

Every entry is `audit` of the tester itself, in one direction: with its own split or order of the
samples, its warm-up, and every smaller null of the sequential tester rejected too. Only what does
not depend on the failure probability (a fit, a critic) is computed once for all three.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from known_pairs import KnownPair, finite, gaussian, on_grid, rounded_gaussian, student
from quick import parse_arguments, scratch_file
from scipy import stats

from dvrenyi_plugin.bounds.grid_pairs import discrete_pair, gaussian_pair
from dvrenyi_plugin.bounds.information_limit import closest_null
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    LikelihoodRatioTester,
    LikelihoodRatioTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
ALPHA = 2.0
FAILURE_PROBABILITIES = (0.01, 0.05, 0.2)
SIGNIFICANCE = 1e-3
REPEATS, NETWORK_REPEATS = 2_000, 200
_CHUNK, _NETWORK_CHUNK = 200, 20
_COLUMNS = ("cell", "tester", "first_seed", "repeats", "failure_probability", "refuted", "seconds")


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
TESTERS = (
    "sequential",
    "threshold",
    "markov",
    "bounded",
    "dv_eprocess",
    "dv_betting",
    "gdp_baseline",
)
_NETWORK_CELLS = ("null", "at the claim, least favourable", "heavy tails", "ties", "discrete")


def refutations(tester: str, pair: KnownPair, counts: tuple[int, int], seed: int) -> list[bool]:
    """Returns, for each failure probability, whether the true claim is refuted on one data set."""
    rng = np.random.default_rng(seed)
    q, p = pair.sample_q(rng, counts[0]), pair.sample_p(rng, counts[1])
    divergence = pair.grid.renyi(ALPHA)
    claim = PrivacyProperty(renyi_dp=RenyiDp(ALPHA, divergence))
    made: Any = _make(tester, claim, pair, seed)
    return [made.audit(q, p, beta).refuted for beta in FAILURE_PROBABILITIES]


def _make(tester: str, claim: PrivacyProperty, pair: KnownPair, seed: int) -> Any:
    match tester:
        case "sequential":
            sequential = SequentialRenyiPropertyTester(
                SequentialRenyiPropertyTesterConfig(claim, seed=seed)
            )
            # What is fitted depends on the past alone, not on the failure probability.
            fit, new_process = _FittedOnce(fit_log_ratio), sequential._new_process

            def with_shared_fits(index: int, beta: float, warm_up: int) -> Any:
                process = new_process(index, beta, warm_up)
                process._fit = fit
                return process

            sequential._new_process = with_shared_fits
            return sequential
        case "threshold":
            return ThresholdAttackTester(ThresholdAttackTesterConfig(claim, seed=seed))
        case "dv_eprocess" | "dv_betting":
            made = DvRenyiPropertyTester(
                DvRenyiPropertyTesterConfig(
                    claim, bound_method=tester.removeprefix("dv_"), seed=seed
                )
            )
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
                    bound_method="bounded",
                    largest_log_ratio=pair.largest_log_ratio,
                )
            )
    raise ValueError(f"tester must be one of {TESTERS}, got {tester!r}")


class _FittedOnce:
    """A log ratio fitter that is asked about the pasts of one data set only, in one order."""

    def __init__(self, fit: Any) -> None:
        self._fit, self._known = fit, {}

    def __call__(self, past_q: np.ndarray, past_p: np.ndarray) -> Any:
        key = (len(past_q), len(past_p))
        if key not in self._known:
            self._known[key] = self._fit(past_q, past_p)
        return self._known[key]


class _TrainedOnce:
    """An estimator that is asked about one data set only."""

    has_base_model = False

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._estimate = estimator, None

    def estimate(self, samples1: np.ndarray, samples2: np.ndarray) -> Any:
        if self._estimate is None:
            self._estimate = self._estimator.estimate(samples1, samples2)
        return self._estimate


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Runs with consecutive seeds."""

    cell: str
    tester: str
    first_seed: int
    repeats: int


def chunks(testers: Sequence[str], cells: Sequence[str], limits: tuple[int, int]) -> list[Chunk]:
    """Returns what there is to do, one round over all cells after another.

    Args:
      testers: names of testers.
      cells: names of cells.
      limits: runs a cell, without and with a network.
    """
    planned = []
    for tester in testers:
        network = tester.startswith("dv_")
        size = _NETWORK_CHUNK if network else _CHUNK
        for cell in cells:
            if network and cell not in _NETWORK_CELLS:
                continue
            if tester == "bounded" and CELLS[cell][0]().largest_log_ratio is None:
                continue
            limit = limits[1] if network else limits[0]
            planned += [
                (first // size, Chunk(cell, tester, first, min(size, limit - first)))
                for first in range(0, limit, size)
            ]
    return [chunk for _, chunk in sorted(planned, key=lambda item: item[0])]


def measure(chunk: Chunk) -> list[dict[str, object]]:
    """Returns one row a failure probability."""
    make, *counts = CELLS[chunk.cell]
    start = time.perf_counter()
    pair = make()
    seeds = range(chunk.first_seed, chunk.first_seed + chunk.repeats)
    totals = np.sum(
        [refutations(chunk.tester, pair, (counts[0], counts[1]), seed) for seed in seeds], axis=0
    )
    seconds = (time.perf_counter() - start) / chunk.repeats
    return [
        dataclasses.asdict(chunk)
        | {"failure_probability": beta, "refuted": int(count), "seconds": round(seconds, 5)}
        for beta, count in zip(FAILURE_PROBABILITIES, totals, strict=True)
    ]


def read(results: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows measured so far, one a chunk and failure probability."""
    if not results.exists():
        return []
    with results.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclasses.dataclass(frozen=True)
class Total:
    """All runs of a cell, a tester and a failure probability."""

    cell: str
    tester: str
    failure_probability: float
    repeats: int
    refuted: int

    @property
    def rate(self) -> float:
        return self.refuted / self.repeats

    @property
    def p_value(self) -> float:
        """One-sided: probability of so many refutations if the failure probability is kept."""
        return float(stats.binom.sf(self.refuted - 1, self.repeats, self.failure_probability))


def totals_of(rows: Sequence[dict[str, str]]) -> list[Total]:
    """Returns the chunks' sums."""
    sums: dict[tuple[str, str, float], tuple[int, int]] = {}
    for row in rows:
        key = (row["cell"], row["tester"], float(row["failure_probability"]))
        repeats, refuted = sums.get(key, (0, 0))
        sums[key] = (repeats + int(row["repeats"]), refuted + int(row["refuted"]))
    return [Total(*key, *value) for key, value in sums.items()]


def write_page(rows: Sequence[dict[str, str]], docs: pathlib.Path) -> None:
    """Writes coverage.md and coverage.png, keeping the notes below the page's last rule."""
    page = docs / "coverage.md"
    notes = page.read_text(encoding="utf-8").partition("\n---\n")[2] if page.exists() else ""
    lines = [
        "# How often a true claim is refuted",
        "",
        "`python benchmarks/coverage.py` writes this page. The claim is exactly the true divergence"
        " at alpha = 2, so every refutation is an error; 200"
        " samples a side (120 and 400 where counts are unequal). Entries are the fraction of runs"
        " that refute, at failure probabilities"
        f" {', '.join(f'{b:g}' for b in FAILURE_PROBABILITIES)}. **Bold**: significantly more than"
        f" allowed (one-sided binomial test at {SIGNIFICANCE:g}).",
        "",
        "`gdp_baseline` is the published baseline, which is *not valid* at its stated level: it is"
        " here for comparison.",
        "",
        "| cell | tester | runs | " + " | ".join(f"{b:g}" for b in FAILURE_PROBABILITIES) + " |",
        "|---" * (3 + len(FAILURE_PROBABILITIES)) + "|",
    ]
    totals = totals_of(rows)
    by_line: dict[tuple[str, str], dict[float, Total]] = {}
    for total in totals:
        by_line.setdefault((total.cell, total.tester), {})[total.failure_probability] = total
    order = {name: index for index, name in enumerate((*TESTERS, *CELLS))}
    for cell, tester in sorted(by_line, key=lambda key: (order[key[0]], order[key[1]])):
        line = by_line[(cell, tester)]
        values = [_entry(line[beta]) for beta in FAILURE_PROBABILITIES]
        repeats = next(iter(line.values())).repeats
        lines.append(f"| {cell} | {tester} | {repeats:,} | " + " | ".join(values) + " |")
    page.write_text(
        "\n".join([*lines, "", "![coverage](coverage.png)", ""]) + "\n---\n" + notes,
        encoding="utf-8",
    )
    _plot(totals, docs / "coverage.png")


def failures(rows: Sequence[dict[str, str]]) -> list[Total]:
    """Returns where a tester that claims validity significantly breaks it."""
    return [
        total
        for total in totals_of(rows)
        if total.tester != "gdp_baseline" and total.p_value < SIGNIFICANCE
    ]


def _entry(total: Total) -> str:
    return f"**{total.rate:.4f}**" if total.p_value < SIGNIFICANCE else f"{total.rate:.4f}"


def _plot(totals: Sequence[Total], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.0, 3.6))
    at_005 = [total for total in totals if total.failure_probability == 0.05]
    cells = [cell for cell in CELLS if any(total.cell == cell for total in at_005)]
    for offset, tester in enumerate(TESTERS):
        points = [
            (cells.index(total.cell), total.rate) for total in at_005 if total.tester == tester
        ]
        if points:
            x, y = np.array(points).T
            axis.plot(x + 0.08 * (offset - 2.5), y, f"C{offset}o", markersize=4, label=tester)
    axis.axhline(0.05, color="black", linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(cells)), [cell.replace(", ", ",\n") for cell in cells], fontsize=7)
    axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylim(-0.002, 1.0)
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
    arguments = parse_arguments(
        parser,
        cells=("null", "ties"),
        repeats=2,
        network_repeats=1,
        jobs=1,
        results=scratch_file("coverage.csv"),
    )
    if not arguments.page_only:
        done = {
            (row["cell"], row["tester"], int(row["first_seed"])) for row in read(arguments.results)
        }
        limits = (arguments.repeats, arguments.network_repeats)
        todo = [
            chunk
            for chunk in chunks(arguments.testers, arguments.cells, limits)
            if (chunk.cell, chunk.tester, chunk.first_seed) not in done
        ]
        work = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
        for rows in work(delayed(measure)(chunk) for chunk in todo):
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
