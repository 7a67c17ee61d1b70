"""How many models a sequential audit of DP-SGD needs: repeats of the default audit, with other
images, weights and noise.

One row a noise scale and seed goes to --csv as soon as it is known; rows that are there are not
made again, so the run may be stopped and resumed, or spread over several processes by --seeds. The
table at the end summarises the whole file.

    python benchmarks/sequential_audit.py --noise_scales=0.25,0.5,1 --seeds=0-19 --csv=FILE

With --losses_dir every model's loss is kept and never trained again, so other batches or claims
take seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from quick import parse_arguments, scratch_file

from dvrenyi_plugin.audits.dp_sgd.audit import audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig, DpSgdExperimentConfig
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.audits.training.models import ModelTrainer

COLUMNS = (
    "noise_scale",
    "seed",
    "max_models",
    "stopped",
    "models",
    "refuted_after",
    "lower_bound",
    "claim",
    "largest_log_e",
    "d_prime",
    "noise_free_d_prime",
    "stopped_with_futility",
    "models_with_futility",
    "seconds",
)


class RecordingTrainer:
    """Trains each model once, in the order of the numbers, and keeps its loss."""

    def __init__(self, mechanism: ModelTrainer, path: str | None) -> None:
        self._mechanism = mechanism
        self._path = path
        self._rows: list[list[NDArray[np.float64]]] = [[], []]
        if path is not None and os.path.exists(path):
            with np.load(path, allow_pickle=False) as losses:
                self._rows = [list(losses["without"]), list(losses["with_canary"])]

    def train_models(self, dataset: Any, world: int, indices: Any) -> NDArray[np.float64]:
        """Returns one row a model, from the record where it is there."""
        rows = self._rows[world]
        missing = [index for index in indices if index >= len(rows)]
        if missing:
            rows.extend(self._mechanism.train_models(dataset, world, missing))
            self._save()
        return np.stack([rows[index] for index in indices])

    def _save(self) -> None:
        if self._path is None or not all(self._rows):
            return
        partial = f"{self._path}.{os.getpid()}.npz"
        np.savez(partial, without=self._rows[0], with_canary=self._rows[1])
        os.replace(partial, self._path)


def main() -> None:
    """Runs what is missing and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise_scales", default="0.25,0.5,1")
    parser.add_argument("--seeds", default="0-19", help="first-last, or a list with commas")
    parser.add_argument("--num_models", type=int, default=500)
    parser.add_argument("--batch_models", type=int, default=20)
    parser.add_argument("--mu", type=float, default=1.0, help="claimed")
    parser.add_argument(
        "--futility_mu", type=float, default=2.0, help="of the columns with futility"
    )
    parser.add_argument("--tester", default="auto", help="see dvrenyi-audit-dpsgd")
    parser.add_argument("--csv", required=True)
    parser.add_argument("--losses_dir")
    options = parse_arguments(
        parser,
        noise_scales="0.25",
        seeds="0",
        num_models=10,
        csv=str(scratch_file("sequential_audit.csv")),
    )
    with contextlib.suppress(FileExistsError), open(options.csv, "x", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
    done = {(row["noise_scale"], row["seed"]) for row in _read(options.csv)}
    for noise_scale in options.noise_scales.split(","):
        for seed in _seeds(options.seeds):
            if (f"{float(noise_scale):g}", str(seed)) not in done:
                row = _run(float(noise_scale), seed, options)
                _append(options.csv, row)
                print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    print(_table(_read(options.csv)))


def _run(noise_scale: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    experiment = build_dp_sgd_experiment(
        DpSgdExperimentConfig(
            mu=options.mu, noise_scale=noise_scale, seed=seed, tester=options.tester
        )
    )
    path = None
    if options.losses_dir:
        os.makedirs(options.losses_dir, exist_ok=True)
        path = os.path.join(options.losses_dir, f"{noise_scale:g}_{seed}.npz")
    trainer = RecordingTrainer(experiment.mechanism, path)
    reports = [
        audit_dp_sgd(
            trainer,
            experiment.claims,
            experiment.pair,
            DpSgdAuditConfig(num_models=options.num_models, seed=seed),
            SequentialAuditConfig(options.batch_models, futility_mu),
            noise_free_shift=experiment.noise_free_shift,
        ).report
        for futility_mu in (None, options.futility_mu)
    ]
    report, outcome = reports[0], reports[0].sequential
    with_futility = reports[1].sequential
    if outcome is None or with_futility is None:
        raise AssertionError("a sequential audit must say how it stopped")
    return {
        "noise_scale": f"{noise_scale:g}",
        "seed": str(seed),
        "max_models": str(options.num_models),
        "stopped": outcome.stopped,
        "models": str(outcome.models_trained_per_world),
        "refuted_after": str(outcome.refuted_after_models or ""),
        "lower_bound": f"{report.lower_bound:.4f}",
        "claim": f"{report.claim.epsilon:g}",
        "largest_log_e": f"{max(max(path.log_e_values) for path in outcome.evidence):.3f}",
        "d_prime": f"{report.document()['d_prime']:.3f}",
        "noise_free_d_prime": f"{report.document()['noise_free_d_prime']:.3f}",
        "stopped_with_futility": with_futility.stopped,
        "models_with_futility": str(with_futility.models_trained_per_world),
        "seconds": f"{time.perf_counter() - start:.0f}",
    }


def _table(rows: list[dict[str, str]]) -> str:
    lines = [
        "| noise scale | runs | refuted | models per dataset when refuted: median (range)"
        " | models per dataset saved: median"
        " | d-prime: mean | with futility: refuted, futile | median models per dataset |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for noise_scale in sorted({row["noise_scale"] for row in rows}, key=float):
        group = [row for row in rows if row["noise_scale"] == noise_scale]
        models = [int(row["models"]) for row in group if row["stopped"] == "refuted"]
        saved = [int(row["max_models"]) - int(row["models"]) for row in group]
        futility = [row["stopped_with_futility"] for row in group]
        spread = f"{statistics.median(models):g} ({min(models)} to {max(models)})" if models else ""
        lines.append(
            f"| {noise_scale} | {len(group)} | {len(models)} | {spread} |"
            f" {statistics.median(saved):g}"
            f" | {statistics.mean(float(row['d_prime']) for row in group):.2f}"
            f" | {futility.count('refuted')}, {futility.count('futile')}"
            f" | {statistics.median(int(row['models_with_futility']) for row in group):g} |"
        )
    return "\n".join(lines)


def _seeds(text: str) -> list[int]:
    if "-" in text:
        first, last = map(int, text.split("-"))
        return list(range(first, last + 1))
    return list(map(int, text.split(",")))


def _read(path: str) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _append(path: str, row: dict[str, Any]) -> None:
    with open(path, "a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()
