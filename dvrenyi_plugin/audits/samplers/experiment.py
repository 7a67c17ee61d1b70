"""From a handful of plain settings to a sampler on a grid and a pair of neighbouring datasets."""

from __future__ import annotations

import dataclasses
import math
import os
import zipfile
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.validation import check_samples
from dvrenyi_plugin.audits.samplers.settings import EXTREME, ShkExperimentConfig
from dvrenyi_plugin.flows.grid import FloatArray
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.exponential.broken import (
    BrokenShkMechanism,
    BrokenShkMechanismConfig,
    balanced_circle_pair,
)
from dvrenyi_plugin.mechanisms.exponential.exact import (
    ExponentialMechanism,
    ExponentialMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism
from dvrenyi_plugin.mechanisms.exponential.grid import GridMechanism
from dvrenyi_plugin.mechanisms.exponential.langevin import (
    LangevinMechanism,
    LangevinMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.losses import (
    CircularMeanLoss,
    LogisticLoss,
    Loss,
    MeanLoss,
    QuantileLoss,
)
from dvrenyi_plugin.mechanisms.exponential.shk import (
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
)


@dataclasses.dataclass(frozen=True)
class ShkExperiment:
    """What an audit needs.

    Attributes:
      mechanism: the sampler.
      pair: two neighbouring datasets.
      tester_seed: for the tester, apart from the mechanism's streams.
      settings: everything that decided the rest, names to plain values.
    """

    mechanism: GridMechanism
    pair: NeighboringDatasets[Any]
    tester_seed: int
    settings: dict[str, Any]


def build_shk_experiment(config: ShkExperimentConfig) -> ShkExperiment:
    """Returns the sampler and the pair that the settings describe.

    Raises:
      ValueError: settings out of range, a file without the two arrays, or datasets that are not
        neighbouring.
    """
    children = np.random.SeedSequence(config.seed).spawn(3)
    mechanism_seed, pair_seed, tester_seed = (int(c.generate_state(1)[0]) for c in children)
    if config.pair.endswith(".npz"):
        pair = _read_pair(config.pair)
        num_records = max(len(pair[0]), len(pair[1]))
    else:
        num_records = config.num_records
        pair = _make_pair(config, np.random.default_rng(pair_seed))
    check_record_neighbours(*pair)
    common: dict[str, Any] = {
        "loss": _make_loss(config.loss, num_records),
        "inverse_temperature": config.inverse_temperature,
        "cells": config.cells,
        "alphas": config.alphas,
        "seed": mechanism_seed,
    }
    mechanism = _make_mechanism(config, common)
    return ShkExperiment(
        mechanism=mechanism,
        pair=pair,
        tester_seed=tester_seed,
        settings=_settings(config, mechanism, num_records),
    )


def _settings(
    config: ShkExperimentConfig, mechanism: GridMechanism, num_records: int
) -> dict[str, Any]:
    """Returns what was used: defaults filled in, what the mechanism does not have left out."""
    settings = dataclasses.asdict(config)
    del settings["seed"]  # reported as the root of everything, not as a setting of this part
    settings |= {"num_records": num_records, "cells": mechanism.grid.shape[0]}
    if isinstance(mechanism, FlowMechanism):
        flow = mechanism.config.flow_config(mechanism.dynamics)
        settings["num_steps"] = flow.steps_for(config.run_time)
    else:
        del settings["run_time"], settings["num_steps"]
    return settings


def check_record_neighbours(dataset1: Any, dataset2: Any) -> None:
    """Refuses datasets that differ by more than one record added, removed or replaced, whatever
    their order.

    Raises:
      ValueError: with the number of records that are in one dataset only.
    """
    first, second = (_row_counts(dataset) for dataset in (dataset1, dataset2))
    only_first = sum(max(0, n - second.get(row, 0)) for row, n in first.items())
    only_second = sum(max(0, n - first.get(row, 0)) for row, n in second.items())
    if max(only_first, only_second) > 1:
        raise ValueError(
            f"dataset1 and dataset2 must differ in at most one record, got {only_first} and"
            f" {only_second}"
            " records that only one of them has"
        )


def _row_counts(dataset: Any) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for row in np.asarray(dataset, dtype=np.float64):
        counts[row.tobytes()] = counts.get(row.tobytes(), 0) + 1
    return counts


def _make_loss(name: str, num_records: int) -> Loss:
    match name:
        case "circular_mean":
            return CircularMeanLoss(num_records=num_records)
        case "mean":
            return MeanLoss(num_records=num_records)
        case "median":
            return QuantileLoss(num_records=num_records)
        case _:
            return LogisticLoss(num_records=num_records)


def _make_mechanism(config: ShkExperimentConfig, common: dict[str, Any]) -> GridMechanism:
    if config.mechanism == "exponential":
        return ExponentialMechanism(ExponentialMechanismConfig(**common))
    common |= {"run_time": config.run_time, "num_steps": config.num_steps}
    if config.mechanism == "langevin":
        return LangevinMechanism(LangevinMechanismConfig(**common))
    if config.mechanism == "shk":
        return ShkExponentialMechanism(ShkExponentialMechanismConfig(**common))
    defect = config.mechanism.removeprefix("shk_")
    return BrokenShkMechanism(BrokenShkMechanismConfig(defect=defect, **common))


def _make_pair(
    config: ShkExperimentConfig, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    count = config.num_records
    rest: FloatArray
    records: FloatArray
    if config.pair == EXTREME:
        match config.loss:
            case "circular_mean":
                return balanced_circle_pair(count)
            case "logistic":
                # Records without features: the loss is flat but for the moved one.
                rest = np.zeros((count - 1, 3))
                direction = 1.0 / math.sqrt(2.0)
                ends = [[direction, direction, 1.0]], [[direction, direction, -1.0]]
            case _:
                rest = np.resize([[0.0], [1.0]], (count - 1, 1))
                ends = [[0.0]], [[1.0]]
        return np.concatenate([ends[0], rest]), np.concatenate([ends[1], rest])
    match config.loss:
        case "circular_mean":
            records = rng.vonmises(0.25, 4.0, size=(count + 1, 1))
        case "logistic":
            features = rng.normal(size=(count + 1, 2)) / 2.0
            noise = rng.logistic(size=(count + 1, 1)) / 4.0
            labels = np.where(features[:, :1] + noise > 0.0, 1.0, -1.0)
            records = np.concatenate([features, labels], axis=1)
        case _:
            records = rng.beta(2.0, 4.0, size=(count + 1, 1))
    return records[:-1], np.concatenate([records[-1:], records[1:-1]])


def _read_pair(path: str) -> tuple[FloatArray, FloatArray]:
    if not os.path.isfile(path):
        raise ValueError(f"pair must be a file that exists, got {path!r}")
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array only")
        with arrays:
            first, second = (
                check_samples(name, arrays[name], min_samples=0)
                for name in ("dataset1", "dataset2")
            )
        return first, second
    except (KeyError, zipfile.BadZipFile, ValueError) as error:
        raise ValueError(
            f"pair must be an .npz file with arrays dataset1 and dataset2 of numbers, got {path!r}:"
            f" {error}"
        ) from None
