"""Plausible arguments for the fuzzer, by parameter name or by annotation.

A new function joins by itself when its parameters have names or annotations that are known here.
One that does not is reported, so that its parameter is added here or the function is put on its
room's list of what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from fuzz_arguments import Drawer

Examples = dict[str, Callable[[Drawer], Any]]


def one_of(*values: Any) -> Callable[[Drawer], Any]:
    """Returns an example that is one of the values."""
    return lambda draw: draw.choose(*values)


def uniform(low: float, high: float) -> Callable[[Drawer], float]:
    """Returns an example that is a float between the two."""
    return lambda draw: float(draw.rng.uniform(low, high))


def normal(*shapes: tuple[int, ...]) -> Callable[[Drawer], np.ndarray]:
    """Returns an example that is an array of one of the shapes."""
    return lambda draw: draw.rng.normal(size=draw.choose(*shapes))


def log_masses(draw: Drawer, size: int = 4) -> np.ndarray:
    """Returns the logarithms of a random law."""
    with np.errstate(divide="ignore"):
        return np.log(draw.rng.dirichlet(np.full(size, draw.choose(0.05, 1.0, 10.0))))


def samples(draw: Drawer) -> np.ndarray:
    """Returns samples as testers and mechanisms get them: continuous, discrete, constant, heavy, in
    one or more columns.
    """
    count = draw.choose(2, 8, 20, 30, 200)
    columns = draw.choose(1, 1, 1, 2, 11)
    rng = draw.rng
    kind = draw.choose("normal", "normal", "whole", "constant", "heavy", "tiny", "large")
    shape = (count, columns)
    values = {
        "normal": lambda: rng.normal(rng.normal(), 1.0, shape),
        "whole": lambda: rng.integers(0, 3, shape),
        "constant": lambda: np.full(shape, rng.normal()),
        "heavy": lambda: rng.standard_cauchy(shape) ** 3,
        "tiny": lambda: rng.normal(size=shape) * 1e-300,
        "large": lambda: rng.normal(size=shape) * 1e307,
    }[kind]()
    return values[:, 0] if columns == 1 and rng.random() < 0.5 else values


def dataset(draw: Drawer) -> Any:
    """Returns records for a mechanism: continuous, whole numbers, or between 0 and 1."""
    count, rng = draw.choose(1, 2, 20), draw.rng
    shape = draw.choose((count,), (count, 1), (count, 2), (count, 3))
    return draw.choose(
        rng.random(shape), rng.normal(size=shape), rng.integers(0, 2, shape),
        rng.random(shape) * 1e308
    )  # fmt: skip


def claims() -> Examples:
    """Returns examples of privacy properties, and of the curves and families that they are tested
    in.
    """
    from dvrenyi_plugin import interfaces as i
    from dvrenyi_plugin.privacy import trade_off, trade_off_families
    from dvrenyi_plugin.privacy.claim_text import CLAIM_EXAMPLES

    made: list[Callable[[Drawer], Any]] = [
        lambda d: i.RenyiDp(d.choose(1.25, 2.0, 8.0), d.choose(0.1, 1.0)),
        lambda d: i.PureDp(d.choose(0.1, 1.0, 10.0)),
        lambda d: i.GaussianDp(d.choose(0.5, 1.0)),
        lambda d: i.ZeroConcentratedDp(d.choose(0.1, 1.0)),
        lambda d: i.ApproximateDp(d.choose(0.5, 2.0), d.choose(1e-5, 0.1)),
        lambda d: i.BoundedRangeDp(d.choose(0.2, 3.0)),
        lambda d: i.SubsampledGaussianDp(d.choose(0.5, 2.0), d.choose(0.1, 1.0), d.choose(1, 30)),
        lambda d: i.RenyiDp(1.0 + 10.0 ** d.rng.uniform(-9, 6), 10.0 ** d.rng.uniform(-300, 300)),
    ]

    def claim(draw: Drawer) -> Any:
        return draw.choose(*made)(draw)

    def privacy_property(draw: Drawer) -> Any:
        return i.as_privacy_property(claim(draw))

    def text(draw: Drawer) -> str:
        written = draw.choose(*CLAIM_EXAMPLES)
        return str(written.replace("1", draw.choose("1", "-1", "1e308", "nan", "=", ",", "")))

    return {
        "text": text,
        "claim": claim,
        "privacy_property": privacy_property,
        "claimed_privacy": lambda d: [privacy_property(d)],
        "renyi": lambda d: made[0](d),
        "approximate": lambda d: made[4](d),
        "TradeOffCurve": lambda d: d.choose(trade_off.GaussianCurve, trade_off.ApproximateDpCurve)(
            d.choose(0.0, 1.0, 30.0)
        ),
        "curves": lambda d: [trade_off.GaussianCurve(1.0), trade_off.ApproximateDpCurve(1.0, 0.01)],
        "pld": lambda d: None,
        "event": lambda d: None,
        "claimed": lambda d: trade_off.GaussianCurve(1.0),
        "TradeOffFamily": lambda d: d.choose(
            trade_off_families.GaussianFamily(), trade_off_families.ApproximateDpFamily(0.01)
        ),
    }


NUMBERS: Examples = {
    "float": uniform(0.05, 3.0),
    "int": one_of(1, 2, 5, 30),
    "bool": one_of(True, False),
    "str": one_of("x", "auto", "both"),
    "None": one_of(None),
    "alpha": one_of(1.25, 2.0, 4.0, 8.0, 32.0),
    "order": one_of(1, 2, 4),
    "epsilon": one_of(0.01, 0.5, 1.0, 4.0, 10.0),
    "delta": one_of(1e-9, 1e-5, 0.1),
    "failure_probability": one_of(0.01, 0.05, 0.5),
    "fit_fraction": uniform(0.1, 0.9),
    "seed": one_of(0, 1, 12345),
    "sample_rate": one_of(1.0, 0.01, 0.3, 1e-8),
    "noise_multiplier": one_of(0.5, 1.0, 2.0, 10.0),
    "direction": one_of("both", "add", "remove"),
    "true_positive_rate": lambda d: d.rng.random(d.choose((), (3,))),
    "false_positive_rate": lambda d: d.rng.random(d.choose((), (3,))),
    "p": lambda d: d.rng.dirichlet(np.ones(4)) if d.rng.random() < 0.7 else float(d.rng.random()),
    "q": lambda d: d.rng.dirichlet(np.ones(4)) if d.rng.random() < 0.7 else float(d.rng.random()),
    "quantile": uniform(0.05, 0.95),
    "successes": one_of(0, 1, 3, 10),
    "trials": one_of(10, 20, 1000),
    "true_positives": one_of(0, 3, 10),
    "false_positives": one_of(0, 3, 10),
    "num_samples1": one_of(10, 100),
    "num_samples2": one_of(10, 100),
    "low": one_of(-1.0, 0.0),
    "high": one_of(1.0, 2.0),
    "num_samples": one_of(1, 2, 50),
    "num_cells": one_of(2, 50, 301),
    "num_candidates": one_of(2, 3, 5),
    "num_categories": one_of(2, 3),
    "statistic": one_of("sum", "mean"),
    "neighbours": one_of("add_remove", "replace_one"),
    "noise": one_of("gumbel", "laplace"),
    "score": one_of("either", "observation", "negative_observation"),
    "bound_method": one_of("eprocess", "betting", "markov", "bounded"),
    "SequentialRenyiPropertyTesterConfig.log_ratio": one_of("auto"),
    "TradeOffPropertyTesterConfig.log_ratio": one_of("auto"),
    "fraction": uniform(0.05, 0.95),
    "smallest_probability": uniform(0.01, 0.5),
    "power": uniform(0.1, 0.95),
    "doublings": one_of(0, 1, 3),
    "orders": one_of((), (1.25, 2.0), (2.0, 8.0, 64.0)),
    "alphas": one_of((2.0,), (1.25, 2.0, 8.0)),
    "epsilons": one_of((0.1, 0.5, 1.0), (0.5, 2.0)),
    "claims": one_of((), (1.0,), (0.1, 0.5)),
    "powers": one_of((0.5, 0.9)),
    "num_models": one_of((100, 500)),
    "num_statements": one_of(1, 2),
    "norm_order": one_of(1, 2),
    "axis": one_of(0, 1),
    "value": one_of(0, 1),
    "verbose": one_of(0),
    "epochs": one_of(1, 3),
    "training_epochs": one_of(1, 3),
    "num_critics": one_of(1, 2),
    "batch_size": one_of(8, 400),
    "warm_up": one_of(2, 10),
    "refit_ratio": one_of(1.45, 2.0),
    "lower_bound": one_of(0.0, 0.3, 5.0),
    "block_sizes": one_of((1.0, 1.0), (2.5, 1.0)),
    "dataset": dataset,
    "dataset1": dataset,
    "dataset2": dataset,
    "records": lambda d: d.rng.normal(size=(5, 2)),
    "samples": samples,
    "samples1": samples,
    "samples2": samples,
    "samples_q": samples,
    "samples_p": samples,
    "values": lambda d: d.rng.random(d.choose(1, 5, 50)),
    "loss_values": normal((20,), (5, 4)),
    "log_ratios": normal((1,), (50,)),
    "log_p": log_masses,
    "log_q": log_masses,
    "critic_q": normal((20,)),
    "critic_p": normal((30,)),
    "weights_q": lambda d: d.rng.dirichlet(np.ones(5)),
    "weights_p": lambda d: d.rng.dirichlet(np.ones(5)),
    "scores1": normal((30,)),
    "scores2": normal((20,)),
    "Array": normal((5,)),
    "ArrayLike": normal((5,)),
    "FloatArray": normal((5,)),
    "NDArray[np.float64]": normal((5,), (5, 2)),
    "stream": lambda d: np.random.SeedSequence(1),
    "generator": lambda d: np.random.default_rng(1),
    "rng": lambda d: np.random.default_rng(1),
    "np.random.SeedSequence": lambda d: np.random.SeedSequence(1),
    "np.random.Generator": lambda d: np.random.default_rng(1),
    "rejects": lambda d: (lambda limit: lambda epsilon: epsilon < limit)(d.rng.random()),
    "log_ratio": lambda d: (
        (lambda x: x[:, 0]) if d.rng.random() < 0.7 else (lambda x: -(x[:, 0] ** 2))
    ),
    "read_training_config.config": lambda d: d.plausible("", "", "TrainingConfig"),
    "modules": one_of(()),
    "train": lambda d: lambda records, seed: np.max(records) + np.random.default_rng(seed).normal(),
    "observe": lambda d: lambda model: np.atleast_1d(model),
}  # fmt: skip


def flow_examples() -> Examples:
    """Returns examples for flows and the mechanisms on them."""
    from dvrenyi_plugin.flows.grid import Axis, Grid
    from dvrenyi_plugin.flows.paper.gaussian_flows import gaussian
    from dvrenyi_plugin.flows.particles.domain import ParticleDomain
    from dvrenyi_plugin.mechanisms.exponential import losses

    def axis(draw: Drawer) -> Any:
        return Axis(-1.0, 1.0, draw.choose(2, 16, 48), draw.choose("periodic", "reflecting"))

    def law(draw: Drawer) -> Any:
        d = draw.choose(1, 2)
        return gaussian(draw.rng.normal(size=d), np.diag(draw.rng.uniform(0.1, 3.0, d)))

    def potential(draw: Drawer) -> Any:
        return np.cos(np.linspace(0, 2 * math.pi, draw.choose(16, 48, 192))) * draw.choose(
            0.1, 1, 9
        )

    def loss(draw: Drawer) -> Any:
        made: Iterable[Callable[[], Any]] = (
            lambda: losses.CircularMeanLoss(num_records=20),
            lambda: losses.MeanLoss(num_records=2),
            lambda: losses.QuantileLoss(num_records=20),
            lambda: losses.LogisticLoss(num_records=20, dimension=1),
        )
        return draw.choose(*made)()

    def domain(draw: Drawer) -> Any:
        kind = draw.choose("torus", "box", "euclidean")
        d = draw.choose(1, 2)
        return ParticleDomain(kind, (-1.0,) * d, (1.0,) * d)

    return {
        "axis": axis,
        "Axis": axis,
        "axes": lambda d: tuple(axis(d) for _ in range(d.choose(1, 1, 2))),
        "grid": lambda d: Grid((axis(d),)),
        "points": lambda d: d.rng.uniform(-1.0, 1.0, (5, d.choose(1, 2))),
        "start": lambda d: law(d),
        "target": lambda d: law(d),
        "potential": potential,
        "potential1": potential,
        "potential2": potential,
        "initial_log_density": one_of(None),
        "covariance": lambda d: np.diag(d.rng.uniform(0.1, 2.0, 2)),
        "mean": normal((2,)),
        "loss": loss,
        "domain": domain,
        "kind": one_of("torus", "box", "euclidean", "exponential", "implicit", "auto"),
        "lower": one_of((-1.0,), (0.0, 0.0)),
        "upper": one_of((1.0,), (1.0, 2.0)),
        "dynamics": one_of("shk", "langevin", "birth_death"),
        "boundary": one_of("periodic", "reflecting"),
        "transport": one_of("auto", "exponential", "implicit"),
        "inverse_temperature": one_of(0.5, 2.0, 5.0),
        "run_time": one_of(0.1, 1.0, 6.0),
        "time": one_of(0.0, 0.1, 1.0, 6.0),
        "num_records": one_of(1, 2, 20),
        "num_steps": one_of(1, 8, 20),
        "cells": one_of(8, 48),
        "dimension": one_of(1, 2),
        "bounds": one_of((0.0, 1.0)),
        "evaluate.function": lambda d: lambda points: np.cos(points[:, 0]),
        "function": lambda d: lambda points, records: np.cos(points[..., 0]),
        "num_ensembles": one_of(1, 2),
        "num_particles": one_of(2, 20),
        "particles": lambda d: d.rng.uniform(-1.0, 1.0, (2, 8, 1)),
        "step_size": one_of(0.01, 0.1),
        "start_oscillation": one_of(0.0, 1.0),
        "gradient": one_of(None),
        "bandwidth": one_of(None, (0.1,)),
        "young": uniform(0.1, 3.0),
    }


def audit_examples() -> Examples:
    """Returns examples for the settings of audits and trainings."""
    weights = {"0.weight": np.zeros((2, 3), np.float32), "0.bias": np.zeros(2, np.float32)}
    return {
        "model": one_of("logistic", "mlp"),
        "initial_weights": lambda d: dict(weights) if d.rng.random() < 0.8 else {},
        "canary": lambda d: (np.ones(3), d.choose(0, 1)),
        "num_classes": one_of(2),
        "num_steps": one_of(0, 10),
        "learning_rate": one_of(1e-4, 0.1),
        "defect": one_of("none", "no_clipping", "mean_by_private_count"),
        "observe": one_of("loss", "logits", "weights"),
        "output_dir": one_of("unused"),
        "num_models": one_of(4, 200),
        "dataset": dataset,
        "dataset_pair": lambda d: (dataset(d), dataset(d)),
        "canaries": lambda d: [np.zeros(2)],
        "replacements": lambda d: [np.zeros(2)],
        "post_processing": one_of(None),
        "low": one_of(0.0),
        "divergence": one_of(None, 0.3),
        "max_num_trials": one_of(1, 5),
        "num_workers": one_of(1),
    }
