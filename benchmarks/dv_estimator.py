"""Accuracy of the neural Rényi estimator on N(mu, 1) against N(0, 1): prints one Markdown table.

    python benchmarks/dv_estimator.py --alpha=2 --seeds=20
    python benchmarks/dv_estimator.py --alpha=2 --seeds=20 --literal=mnist

"held out" is the value on the validation samples (a fifth of each side; they choose only when
training stops); "fresh" is the value on 20,000 new samples a side. Neither is a lower bound with a
stated probability.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import torch
from quick import parse_arguments

from dvrenyi_plugin.critics import (
    DvRenyiEstimator,
    DvRenyiEstimatorConfig,
    donsker_varadhan_value,
)
from dvrenyi_plugin.critics.critic_training import EMA_CONVENTIONS
from dvrenyi_plugin.privacy.divergences import renyi_gaussian

_MUS = (0.5, 1.0, math.sqrt(2.0), 2.0, math.sqrt(10.0))
_NUM_FRESH = 20_000
# The source's settings, by data set and order.
_LITERAL = {
    "mnist": {
        1.25: {"learning_rate": 2e-4, "epochs": 500},
        2.0: {"learning_rate": 1.25e-4, "epochs": 500},
    },
    "cifar10": {
        1.25: {"learning_rate": 7e-5, "epochs": 750},
        2.0: {"learning_rate": 7e-5, "epochs": 350},
    },
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alpha", type=float, default=2.0)
    parser.add_argument("--num_samples", type=int, default=500)
    parser.add_argument("--mus", type=float, nargs="+", default=_MUS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--literal",
        choices=tuple(_LITERAL),
        help="bounded=False, the source's settings for these images",
    )
    parser.add_argument("--ema_weighs", default="past", choices=EMA_CONVENTIONS)
    arguments = parse_arguments(parser, mus=(1.0,), num_samples=60, seeds=2)
    torch.set_num_threads(1)
    print(
        "| alpha | mu | D | training | held out | (sd) | fresh | (sd) | largest | not finite | s /"
        " fit |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for mu in arguments.mus:
        print(_row(arguments, mu), flush=True)


def _row(arguments: argparse.Namespace, mu: float) -> str:
    alpha, count = arguments.alpha, arguments.num_samples
    settings: dict[str, Any] = {"ema_weighs": arguments.ema_weighs}
    if arguments.literal:
        settings |= {"bounded": False, **_LITERAL[arguments.literal][alpha]}
    divergence = renyi_gaussian(alpha, mu, 0.0)
    values, seconds = [], 0.0
    for seed in range(arguments.seeds):
        rng = np.random.default_rng([seed, round(1000 * mu)])
        samples_q, samples_p = rng.normal(mu, 1.0, count), rng.normal(0.0, 1.0, count)
        config = DvRenyiEstimatorConfig(alpha=alpha, seed=seed, **settings)
        start = time.process_time()
        estimate = DvRenyiEstimator(config).estimate(samples_q, samples_p)
        seconds += time.process_time() - start
        fresh = donsker_varadhan_value(
            estimate.critic(rng.normal(mu, 1.0, _NUM_FRESH)),
            estimate.critic(rng.normal(0.0, 1.0, _NUM_FRESH)),
            alpha,
        )
        values.append((estimate.training_estimate, estimate.held_out_estimate, fresh))
    table = np.array(values)
    means, deviations = table.mean(axis=0), table.std(axis=0, ddof=1)
    return (
        f"| {alpha:g} | {mu:.3f} | {divergence:.3f} | {means[0]:.3f} |"
        f" {_error(means[1], divergence)}"
        f" | {deviations[1]:.3f} | {_error(means[2], divergence)} | {deviations[2]:.3f}"
        f" | {np.max(table[:, :2]):.2f} | {int((~np.isfinite(table)).sum())}"
        f" | {seconds / arguments.seeds:.2f} |"
    )


def _error(mean: float, divergence: float) -> str:
    return f"{mean:.3f} ({100.0 * (mean / divergence - 1.0):+.0f}%)"


if __name__ == "__main__":
    main()
