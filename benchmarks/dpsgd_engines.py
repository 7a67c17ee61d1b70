"""Time of one model's DP-SGD step in every engine, one thread, on random images of MNIST's shape.

Processor time of this one-threaded process is measured (wall time when the ensemble runs on another
device), engines are timed in turn within each round, and the fastest round counts, so that other
processes on the machine disturb ratios little. The ensemble's time includes setting up and
observing the models.

    python benchmarks/dpsgd_engines.py [--cases mlp:100 cnn:100] [--rounds 5] [--device cpu]
    python benchmarks/dpsgd_engines.py --audit

With --audit: 500 + 500 models, 100 records, 100 steps; Opacus on fewer.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import time
from collections.abc import Callable

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from quick import parse_arguments

from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model, load_weights, random_weights
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)

INPUT_SHAPES = {"mlp": (1, 28, 28), "cnn": (1, 28, 28), "cifar_cnn": (3, 32, 32)}
Dataset = tuple[NDArray[np.float32], NDArray[np.int64]]
# Held ratios: (times faster than Opacus with hooks, times slower than without privacy).
TARGETS = {("mlp", 100): (10.0, 2.0), ("mlp", 1000): (30.0, 2.0), ("cnn", 100): (2.0, 2.0)}


def clock(device: str = "cpu") -> float:
    """Returns processor seconds, or wall seconds when another device does the work."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def make_dataset(model: str, num_records: int) -> Dataset:
    """Returns random images and labels."""
    rng = np.random.default_rng(0)
    images = rng.random((num_records, *INPUT_SHAPES[model]), dtype=np.float32)
    return images, rng.integers(0, 10, num_records)


def settings(model: str, num_steps: int) -> dict[str, object]:
    """Returns the settings that all engines share."""
    shape = INPUT_SHAPES[model]
    return {
        "model": model,
        "initial_weights": random_weights(model, shape),
        "canary": (np.zeros(shape, dtype=np.float32), 3),
        "noise_multiplier": 10.0,
        "num_steps": num_steps,
    }


def ensemble(model: str, data: Dataset, steps: int, models: int, device: str) -> float:
    """Returns seconds per model and step."""
    config = EnsembleDpSgdMechanismConfig(**settings(model, steps), device=device)  # type: ignore[arg-type]
    mechanism = EnsembleDpSgdMechanism(config)
    start = clock(device)
    mechanism.train_models(data, 0, range(models))
    return (clock(device) - start) / (models * steps)


def opacus(model: str, data: Dataset, steps: int, mode: str) -> float:
    """Returns seconds per step of one model."""
    config = OpacusDpSgdMechanismConfig(
        **settings(model, steps),  # type: ignore[arg-type]
        grad_sample_mode=mode,
        max_physical_batch_size=len(data[1]),
    )
    mechanism = OpacusDpSgdMechanism(config)
    start = clock()
    mechanism.train_models(data, 0, [0])
    return (clock() - start) / steps


def torch_func(model: str, data: Dataset, steps: int) -> float:
    """Returns seconds per step of one model with per-example gradients by torch.func."""
    config = DpSgdConfig(**settings(model, steps))  # type: ignore[arg-type]
    network = build_model(model, INPUT_SHAPES[model])
    load_weights(network, config.initial_weights)
    parameters = {name: p.detach().clone() for name, p in network.named_parameters()}
    inputs, labels = torch.from_numpy(data[0]), torch.from_numpy(data[1])

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(network, values, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits, y.unsqueeze(0))

    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    start = clock()
    for _ in range(steps):
        gradients = per_example(parameters, inputs, labels)
        norms = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
        factors = (config.clip_norm / (norms + 1e-6)).clamp(max=1.0)
        for name, gradient in gradients.items():
            total = torch.einsum("n,n...->...", factors, gradient)
            total += config.noise_std(0) * torch.randn_like(total)
            parameters[name] -= config.learning_rate * total
    return (clock() - start) / steps


def without_privacy(model: str, data: Dataset, steps: int) -> float:
    """Returns seconds per step of one model trained by plain SGD on the same batch."""
    network = build_model(model, INPUT_SHAPES[model])
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    inputs, labels = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    start = clock()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels, reduction="sum").backward()
        optimizer.step()
    return (clock() - start) / steps


@dataclasses.dataclass(frozen=True)
class Engine:
    """One row of the table.

    Attributes:
      name: what is timed.
      seconds: runs it and returns seconds per model and step.
    """

    name: str
    seconds: Callable[[], float]


def engines(model: str, data: Dataset, device: str) -> list[Engine]:
    """Returns what to time, with step counts that give each about the same time."""
    light = model == "mlp" and len(data[1]) <= 200
    steps = 20 if light else 5
    models = 128 if light else (32 if model == "mlp" else 4)
    return [
        Engine("ensemble", lambda: ensemble(model, data, steps, models, device)),
        Engine("Opacus, hooks", lambda: opacus(model, data, steps, "hooks")),
        Engine("Opacus, ghost", lambda: opacus(model, data, steps, "ghost")),
        Engine("torch.func", lambda: torch_func(model, data, steps)),
        Engine("without privacy", lambda: without_privacy(model, data, 10 * steps)),
    ]


def run_case(model: str, num_records: int, rounds: int, device: str) -> None:
    """Times every engine on one case and prints a table."""
    data = make_dataset(model, num_records)
    candidates = engines(model, data, device)
    best = {engine.name: float("inf") for engine in candidates}
    for _ in range(rounds):
        for engine in candidates:
            best[engine.name] = min(best[engine.name], engine.seconds())
    print(f"\n{model}, {num_records} records, best of {rounds} rounds")
    print("| engine | ms per model and step | against the ensemble |\n|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {1e3 * seconds:.3f} | {seconds / best['ensemble']:.2f} |")
    if (model, num_records) in TARGETS:
        faster, slower = TARGETS[model, num_records]
        got = best["Opacus, hooks"] / best["ensemble"], best["ensemble"] / best["without privacy"]
        print(
            f"{got[0]:.1f} times faster than Opacus's hooks (held to {faster:g}),"
            f" {got[1]:.2f} times a step without privacy (held to {slower:g}):"
            f" {'met' if got[0] >= faster and got[1] <= slower else 'NOT met'}"
        )


def audit_job(engine: str, world: int, first: int, count: int) -> float:
    """Trains some of an audit's models and returns the processor seconds it took."""
    torch.set_num_threads(1)
    start = time.process_time()
    data = make_dataset("mlp", 101)
    dataset = (data[0][:-1], data[1][:-1]) if world == 0 else data
    values = settings("mlp", 100)
    mechanism: EnsembleDpSgdMechanism | OpacusDpSgdMechanism
    if engine == "ensemble":
        mechanism = EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**values))  # type: ignore[arg-type]
    else:
        mechanism = OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**values))  # type: ignore[arg-type]
    mechanism.train_models(dataset, world, range(first, first + count))
    return time.process_time() - start


def run_audit(workers: int, ensemble_models: int, opacus_models: int) -> None:
    """Times the training of 500 + 500 mlp models, 100 records, 100 steps, by the ensemble and by
    Opacus.

    With fewer models than 500 per dataset, the time for 500 is theirs in proportion. Processor
    seconds over the number of workers are what the wall time would be on an idle machine.
    """
    print("| engine | models | wall s | processor s | processor s for 1,000 models, by worker |")
    print("|---|---|---|---|---|")
    for engine, models, count in (
        ("ensemble", ensemble_models, 50),
        ("opacus", opacus_models, 5),
    ):
        with Parallel(n_jobs=workers) as parallel:
            # Workers import torch and the engine before the clock starts.
            parallel(delayed(audit_job)(engine, 0, 0, 1) for _ in range(2 * workers))
            start = time.perf_counter()
            processor = sum(
                parallel(
                    delayed(audit_job)(engine, world, first, min(count, models - first))
                    for world in (0, 1)
                    for first in range(0, models, count)
                )
            )
            wall = time.perf_counter() - start
        share = processor * 500 / models / workers
        print(
            f"| {engine} | {models} + {models} | {wall:.1f} | {processor:.1f} | {share:.1f} |",
            flush=True,
        )
    print("(the ensemble is held to 120 s of wall time with 2 workers)")


def main() -> None:
    """Parses flags and runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=["mlp:100", "mlp:1000", "cnn:100"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="of the ensemble; the others use the CPU")
    parser.add_argument("--audit", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--ensemble_models", type=int, default=500, help="per dataset, with --audit"
    )
    parser.add_argument("--opacus_models", type=int, default=10, help="per dataset, with --audit")
    flags = parse_arguments(
        parser, cases=["mlp:10"], rounds=1, workers=1, ensemble_models=2, opacus_models=1
    )
    torch.set_num_threads(1)
    print(f"{platform.machine()}, torch {torch.__version__}, one thread")
    if flags.audit:
        run_audit(flags.workers, flags.ensemble_models, flags.opacus_models)
        return
    for case in flags.cases:
        model, num_records = case.split(":")
        run_case(model, int(num_records), flags.rounds, flags.device)


if __name__ == "__main__":
    main()
