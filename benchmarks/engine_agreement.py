"""Do the engines train the same law? Canary losses of many models from each, on one protocol, and
two-sample tests.

Every engine trains its models on the same neighbouring datasets from the same weights, each with
noise of its own. Losses go to one CSV an engine as models finish; a later call goes on where the
file ends. Run inside an environment that has TensorFlow Privacy (requirements/tensorflow.txt).

    python benchmarks/engine_agreement.py train [--engine=tf_privacy_loop] [--stop_after=240]
    python benchmarks/engine_agreement.py [compare]
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import json
import pathlib
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from dvrenyi_plugin.audits.dp_sgd.experiment import DpSgdExperiment, build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig
from dvrenyi_plugin.audits.training.sections import Separation

# name here -> (engine, changes of its config)
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "ensemble": ("ensemble", {}),
    "opacus": ("opacus", {}),
    "tf_privacy_vectorized": ("tf_privacy", {"optimizer": "vectorized"}),
    "tf_privacy_loop": ("tf_privacy", {"optimizer": "loop"}),
}
WORLDS = ("without canary", "with canary")
MODELS_A_PART = 10
# Of the experiment's settings, those that decide the law of a loss; they head each file.
PROTOCOL = (
    "engine",
    "dataset",
    "model",
    "num_records",
    "steps",
    "mu",
    "noise_multiplier",
    "clip_norm",
    "learning_rate",
    "canary",
    "canary_label",
    "initial_weights",
)
COLUMNS = ["world", "index", "loss", "cpu_seconds"]


def build(name: str, dataset: str, steps: int) -> tuple[DpSgdExperiment, Any]:
    """Returns the protocol and this engine's mechanism for it.

    The engines' seeds differ: independent samples are what two-sample tests need. (Full batches
    leave nothing but noise to a seed.)
    """
    engine, changes = ENGINES[name]
    experiment = build_dp_sgd_experiment(
        DpSgdExperimentConfig(dataset=dataset, engine=engine, mu=1.0, num_records=100, steps=steps)
    )
    mechanism: Any = experiment.mechanism
    seed = mechanism.config.seed + list(ENGINES).index(name)
    return experiment, type(mechanism)(dataclasses.replace(mechanism.config, seed=seed, **changes))


def path_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns where an engine's losses are kept."""
    return folder / f"{name}.csv"


def read_losses(path: pathlib.Path) -> dict[tuple[int, int], tuple[float, float]]:
    """Returns (world, index) -> (loss, processor seconds) of the models trained so far."""
    with path.open() as file:
        next(file)  # the protocol
        rows = list(csv.DictReader(file))
    return {
        (int(row["world"]), int(row["index"])): (float(row["loss"]), float(row["cpu_seconds"]))
        for row in rows
    }


def train(
    name: str, dataset: str, steps: int, num_models: int, folder: pathlib.Path, deadline: float
) -> None:
    """Trains this engine's missing models in both worlds and appends their losses."""
    start = time.perf_counter()
    experiment, mechanism = build(name, dataset, steps)
    protocol = json.dumps(
        {name: experiment.settings[name] for name in PROTOCOL}
        | {"canary_initial_loss": round(experiment.settings["canary_initial_loss"], 4)}
        | {"engine_seed": mechanism.config.seed}
    )
    path = path_of(folder, name)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {protocol}\n{','.join(COLUMNS)}\n")
    elif path.read_text().splitlines()[0] != f"# {protocol}":
        raise ValueError(f"{path} holds the losses of another protocol")
    done = read_losses(path)
    # Compiling is paid once, not by the first models.
    mechanism.train_models(experiment.pair[0], 0, [0])
    for first, world in itertools.product(range(0, num_models, MODELS_A_PART), (0, 1)):
        numbers = range(first, min(first + MODELS_A_PART, num_models))
        if all((world, number) in done for number in numbers):
            continue
        clock = time.process_time()
        losses = mechanism.train_models(experiment.pair[world], world, numbers)[:, 0]
        seconds = (time.process_time() - clock) / len(numbers)
        with path.open("a") as file:
            for number, loss in zip(numbers, losses, strict=True):
                file.write(f"{world},{number},{float(loss)!r},{seconds:.4f}\n")
        if time.perf_counter() > deadline:
            break
    print(
        f"{name}: {len(read_losses(path))} of {2 * num_models} models,"
        f" {time.perf_counter() - start:.0f} s"
    )


def compare(folder: pathlib.Path) -> None:
    """Prints d-prime and time of each engine, and the two-sample tests between them."""
    losses: dict[str, list[NDArray[np.float64]]] = {}
    print(
        "| engine | models per dataset | mean without | mean with | d-prime"
        " | processor seconds a model |"
    )
    print("|---|---|---|---|---|---|")
    for name in ENGINES:
        if not path_of(folder, name).exists():
            continue
        rows = read_losses(path_of(folder, name))
        losses[name] = [
            np.array(
                [loss for (row_world, _), (loss, _) in sorted(rows.items()) if row_world == world]
            )
            for world in (0, 1)
        ]
        without, with_canary = losses[name]
        separation = Separation.of(without, with_canary)
        seconds = np.median([seconds for _, seconds in rows.values()])
        means = " | ".join(
            f"{sample.mean():.4f} ± {sample.std(ddof=1) / np.sqrt(len(sample)):.4f}"
            for sample in losses[name]
        )
        print(
            f"| {name} | {min(map(len, losses[name]))} | {means} |"
            f" {separation.d_prime:.3f} ± {separation.standard_error:.3f} | {seconds:.3f} |"
        )
    pairs = list(itertools.combinations(losses, 2))
    tests = 2 * 2 * len(pairs)
    print(
        f"\n{tests} tests: at a level of 0.05 over all of them, differ when p <"
        f" {0.05 / tests:.5f}\n"
    )
    print(
        "| engines | world | Kolmogorov-Smirnov p | Mann-Whitney p | standard deviations, ratio |"
    )
    print("|---|---|---|---|---|")
    smallest = 1.0
    for first, second in pairs:
        for world, label in enumerate(WORLDS):
            one, other = losses[first][world], losses[second][world]
            p_values = (
                stats.ks_2samp(one, other).pvalue,
                stats.mannwhitneyu(one, other).pvalue,
            )
            smallest = min(smallest, *p_values)
            ratio = one.std(ddof=1) / other.std(ddof=1)
            print(
                f"| {first}, {second} | {label} | {p_values[0]:.3f} | {p_values[1]:.3f} |"
                f" {ratio:.3f} |"
            )
    verdict = "no difference found" if smallest >= 0.05 / tests else "THE ENGINES DIFFER"
    print(
        f"\nsmallest p {smallest:.4f}, times {tests}: {min(1.0, smallest * tests):.3f}: {verdict}"
    )


def main() -> None:
    """Parses flags and trains or compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "compare"), nargs="?", default="compare")
    parser.add_argument("--engine", choices=tuple(ENGINES), help="to train; all if not given")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--num_models", type=int, default=200, help="per dataset")
    parser.add_argument(
        "--folder", type=pathlib.Path, default=pathlib.Path("docs/engine_agreement")
    )
    parser.add_argument("--stop_after", type=float, default=float("inf"), help="seconds")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    if flags.action == "compare":
        compare(flags.folder)
        return
    deadline = time.perf_counter() + flags.stop_after
    for name in [flags.engine] if flags.engine else ENGINES:
        if time.perf_counter() < deadline:
            train(name, flags.dataset, flags.steps, flags.num_models, flags.folder, deadline)


if __name__ == "__main__":
    main()
