"""Are broken trainings caught, and honest ones left alone? One row per case and seed, appended to a
CSV as it is done.

Every case claims what its noise multiplier says and is audited in batches, by its canary's loss
alone, at order 2 and failure probability 0.05, until the claim is refuted or 500 models per dataset
are trained. What broken training truly leaks:

- half_noise: 2 mu.
- no_clipping: mu times the canary's gradient norm (blank canary: about 2) over the clipping norm.
- noise_every_fourth_step: 2 mu; all steps move the weights, a quarter of the noise's variance is
  there.
- mean_by_private_count: two records, so the mean's noise falls by a third when the canary joins.
  The weights' standard deviations differ by the factor 3/2, for which no divergence of order 2 is
  finite.

    python benchmarks/broken_training.py --output=broken_training.csv [--cases half_noise ...]
    python benchmarks/broken_training.py --output=broken_training.csv --table

A run goes on where the CSV ends.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from quick import parse_arguments, scratch_file

from dvrenyi_plugin.audits.dp_sgd.audit import audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import (
    DpSgdAuditConfig,
    DpSgdExperimentConfig,
    ModelTrainingConfig,
)
from dvrenyi_plugin.audits.settings import SequentialAuditConfig

MAX_MODELS = 500
# Smaller than the command's default protocol (100 records, 100 steps) to be run often; d-prime is
# that of the claim in both.
USUAL = {"num_records": 20, "steps": 25}
ONE_RECORD = {"num_records": 1, "steps": 25, "mu": 0.5}
TWO_RECORDS = {"num_records": 2, "steps": 25, "mu": 0.5}


@dataclasses.dataclass(frozen=True)
class Case:
    """One way of training.

    Attributes:
      settings: of `DpSgdExperimentConfig`, beyond its defaults.
      seeds: how many are run.
      is_honest: whether the claim is true.
    """

    settings: Mapping[str, Any]
    seeds: int
    is_honest: bool = False


CASES = {
    "half_noise": Case({"noise_scale": 0.5, **USUAL}, 5),
    "no_clipping": Case({"defect": "no_clipping", **USUAL}, 5),
    "noise_every_fourth_step": Case({"defect": "noise_every_fourth_step", **USUAL}, 5),
    "mean_by_private_count": Case({"defect": "mean_by_private_count", **ONE_RECORD}, 5),
    "mean_by_private_count_two_records": Case(
        {"defect": "mean_by_private_count", **TWO_RECORDS}, 5
    ),
    "honest": Case(USUAL, 10, is_honest=True),
    "honest_one_record": Case(ONE_RECORD, 10, is_honest=True),
    "honest_two_records": Case(TWO_RECORDS, 10, is_honest=True),
}
COLUMNS = (
    "case",
    "seed",
    "claim",
    "refuted_after",
    "models_per_world",
    "lower_bound",
    "d_prime",
    "noise_free_d_prime",
    "deviation_ratio",
    "seconds",
)


def run(case: str, seed: int, workers: int, num_models: int) -> dict[str, Any]:
    """Returns one audit as a row of the CSV."""
    start = time.perf_counter()
    experiment = build_dp_sgd_experiment(
        DpSgdExperimentConfig(**CASES[case].settings, seed=seed, tester="sequential")
    )
    result = audit_dp_sgd(
        experiment.mechanism,
        experiment.claims,
        experiment.pair,
        DpSgdAuditConfig(
            num_models=num_models, training=ModelTrainingConfig(num_workers=workers), seed=seed
        ),
        SequentialAuditConfig(batch_models=20),
        claimed_mu=experiment.claimed_mu,
        noise_free_shift=experiment.noise_free_shift,
    )
    report = result.report
    assert report.sequential is not None
    losses = report.document()["losses"]
    without, with_canary = (
        losses[name].standard_deviation for name in ("without_canary", "with_canary")
    )
    return {
        "case": case,
        "seed": seed,
        "claim": f"{report.claim.epsilon:.6g}",
        "refuted_after": report.sequential.refuted_after_models or "",
        "models_per_world": report.num_samples,
        "lower_bound": f"{report.lower_bound:.4f}",
        "d_prime": f"{report.document()['d_prime']:.4f}",
        "noise_free_d_prime": f"{report.document()['noise_free_d_prime']:.4f}",
        "deviation_ratio": f"{without / with_canary:.4f}",
        "seconds": f"{time.perf_counter() - start:.1f}",
    }


def read_rows(path: str) -> list[dict[str, str]]:
    """Returns the rows that are done; none when there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def wanted(cases: list[str], rows: list[dict[str, str]]) -> Iterator[tuple[str, int]]:
    """Yields what is still to be done, the first seeds of all cases first."""
    done = {(row["case"], int(row["seed"])) for row in rows}
    for seed in range(max(CASES[case].seeds for case in cases)):
        for case in cases:
            if seed < CASES[case].seeds and (case, seed) not in done:
                yield case, seed


def print_table(rows: list[dict[str, str]]) -> None:
    """Prints a markdown table with one line a case."""
    print("| training | claim | seeds | refuted | after models per dataset | d-prime | bound |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        mine = sorted(
            (row for row in rows if row["case"] == case), key=lambda row: int(row["seed"])
        )
        if not mine:
            continue
        after = [row["refuted_after"] for row in mine if row["refuted_after"]]
        mean = sum(float(row["d_prime"]) for row in mine) / len(mine)
        bounds = [float(row["lower_bound"]) for row in mine]
        print(
            f"| {case} | {float(mine[0]['claim']):.3g} | {len(mine)} | {len(after)} |"
            f" {', '.join(after) or 'none'}"
            f" | {mean:.2f} | {min(bounds):.2f} to {max(bounds):.2f} |"
        )


def main() -> None:
    """Runs what the CSV lacks, or prints it as a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", required=True)
    parser.add_argument("--cases", nargs="*", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--num_models", type=int, default=MAX_MODELS, help="per dataset, at most")
    parser.add_argument(
        "--max_seconds", type=float, default=float("inf"), help="start no case later"
    )
    parser.add_argument("--table", action="store_true")
    flags = parse_arguments(
        parser,
        cases=list(CASES)[:1],
        workers=1,
        num_models=10,
        max_seconds=0.01,
        output=str(scratch_file("broken_training.csv")),
    )
    rows = read_rows(flags.output)
    if flags.table:
        print_table(rows)
        return
    start = time.perf_counter()
    for case, seed in wanted(flags.cases, rows):
        if time.perf_counter() - start > flags.max_seconds:
            return
        row = run(case, seed, flags.workers, flags.num_models)
        is_new = not os.path.exists(flags.output)
        with open(flags.output, "a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
