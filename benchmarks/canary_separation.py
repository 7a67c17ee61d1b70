"""How much of a claim the canary's loss shows: d-prime over mu, by model, canary and mu.

Two figures a row. "measured" is d-prime of the losses of trained models, with its standard error.
"noise-free" divides the shift of the loss between two models trained without noise, which has no
sampling error, by the measured standard deviation. A claim of mu-Gaussian DP allows d-prime = mu.

    python benchmarks/canary_separation.py --num_models=200 --models=mlp --canaries=blank --mus=1,2
    python benchmarks/canary_separation.py --models=mlp,cnn --mus=1 --observe=loss,white_box
"""

from __future__ import annotations

import argparse
import itertools
import time

from quick import parse_arguments

from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig, ModelTrainingConfig
from dvrenyi_plugin.audits.training.models import train_both_worlds
from dvrenyi_plugin.audits.training.sections import Separation


def main() -> None:
    """Prints one row a setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mlp,logistic,cnn")
    parser.add_argument("--canaries", default="blank,clipbkd,mislabelled,random")
    parser.add_argument("--mus", default="1,2")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--observe", default="loss")
    parser.add_argument("--canary_label", type=int)
    parser.add_argument("--num_records", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--num_models", type=int, default=200)
    parser.add_argument("--num_workers", type=int, default=2)
    options = parse_arguments(
        parser, models="logistic", mus="1", num_records=10, steps=3, num_models=4, num_workers=1
    )
    print(
        "model     canary       label  gradient norm  mu  seed  observed   measured       "
        " noise-free  seconds"
    )
    settings = itertools.product(
        options.models.split(","),
        options.canaries.split(","),
        map(float, options.mus.split(",")),
        map(int, options.seeds.split(",")),
        options.observe.split(","),
    )
    for model, canary, mu, seed, observe in settings:
        config = DpSgdExperimentConfig(
            model=model,
            canary=canary,
            canary_label=options.canary_label,
            num_records=options.num_records,
            steps=options.steps,
            mu=mu,
            observe=observe,
            seed=seed,
        )
        print_row(config, options.num_models, options.num_workers)


def print_row(config: DpSgdExperimentConfig, num_models: int, num_workers: int) -> None:
    """Trains one setting's models and prints what they show."""
    start = time.perf_counter()
    experiment = build_dp_sgd_experiment(config)
    observations = train_both_worlds(
        experiment.mechanism,
        experiment.pair,
        range(num_models),
        ModelTrainingConfig(num_workers=num_workers),
    )
    without, with_canary = observations.without[:, 0], observations.with_canary[:, 0]
    separation = Separation.of(without, with_canary)
    print(
        f"{config.model:<9} {config.canary:<12} {experiment.canary.label:<6}"
        f" {experiment.canary.initial_gradient_norm:<14.3g} {config.mu:<3g} {config.seed:<5}"
        f" {config.observe:<10}"
        f" {separation.d_prime:.3f} +- {separation.standard_error:.3f}"
        f"  {experiment.noise_free_shift / separation.standard_deviation:<11.3f}"
        f" {time.perf_counter() - start:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
