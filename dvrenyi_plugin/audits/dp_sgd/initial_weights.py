"""Where every audited run starts: weights fixed before private training.

DP-SGD's guarantee holds for any initial weights that do not depend on the audited records, so the
auditor may choose them to make the canary as visible as possible. Pretraining without privacy on
records that are not audited does that: the model is sure of itself, the other records' gradients
are small, and the canary's gradient stays longer than the clipping norm.

Source: Annamalai and De Cristofaro (2024), "Nearly Tight Black-Box Auditing of Differentially
Private Machine Learning", section 4 (worst-case initial parameters); Kim, Varshney and Alabi
(2026), "Optimal Guarantees for Auditing Rényi Differentially Private Machine Learning", section 4.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
import zipfile
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, Int, Positive, Seed
from dvrenyi_plugin._internal.progress import progress_bar
from dvrenyi_plugin.data.file_formats import (
    check_data_file,
    check_unpacked_size,
    errors_that_name,
)
from dvrenyi_plugin.data.labelled import LabelledDataset
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model, load_weights, weights_of

Weights = dict[str, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class PretrainingConfig(CheckedSettings):
    """Training without privacy on the records that are not audited: SGD on the mean cross-entropy.

    Attributes:
      epochs: passes over the records, >= 0.
      batch_size: records a step, >= 1.
      learning_rate: > 0.
      max_records: no more records than this are used, the first ones, >= 1. A model that is sure of
        itself is wanted and not the best one: after five passes over 10,000 records it is, and a
        convolutional one is within a minute.
      seed: of the first weights and of the order of records.
    """

    epochs: Annotated[int, Int(at_least=0)] = 5
    batch_size: Count = 32
    learning_rate: Positive = 0.1
    max_records: Count = 10_000
    seed: Seed = 0


def pretrain_weights(
    model: str, dataset: LabelledDataset, config: PretrainingConfig, *, show_progress: bool = False
) -> Weights:
    """Returns the weights of a named model trained without privacy, name -> array. Deterministic.

    Args:
      model: a name known to `build_model`.
      dataset: the records that are not audited.
      config: of the training.
      show_progress: draw a progress bar on standard error.
    """
    dataset = dataset.take(slice(0, config.max_records))
    weights_seed, order_seed = np.random.SeedSequence(config.seed).spawn(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(weights_seed.generate_state(1)[0]))
        network = build_model(model, dataset.record_shape, dataset.num_classes)
    rng = np.random.default_rng(order_seed)
    features, labels = torch.tensor(dataset.features), torch.tensor(dataset.labels)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.learning_rate)
    starts = range(0, len(dataset), config.batch_size)
    total = config.epochs * len(starts)
    with progress_bar("pretraining", "step", total, show_progress) as progress:
        for _ in range(config.epochs):
            order = torch.from_numpy(rng.permutation(len(dataset)))
            for start in starts:
                batch = order[start : start + config.batch_size]
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(features[batch]), labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                progress.update()
    return weights_of(network)


def read_weights_file(path: str | os.PathLike[str]) -> Weights:
    """Returns the weights in a file written by `torch.save(model.state_dict(), path)`.

    Only tensors are unpickled (`weights_only`): the file cannot run code.

    Raises:
      ValueError: not such a file, or one that holds more than `dataset_files.MOST_BYTES`.
      OSError: the file cannot be read.
    """
    name = check_data_file(path)
    with errors_that_name(name, "is not a file of plain weights"), warnings.catch_warnings():
        # Of pickles that torch did not write, before it refuses them.
        warnings.simplefilter("ignore")
        _check_archive(name)
        content = torch.load(name, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    ):
        raise ValueError(
            f"{name} must map parameter names to tensors, got {type(content).__name__}"
        )
    # A view that repeats one number takes no room in the file.
    check_unpacked_size(name, sum(4 * value.numel() for value in content.values()))
    for key, value in content.items():
        if value.layout != torch.strided or value.is_meta or not value.is_floating_point():
            raise ValueError(
                f"{name} must hold dense tensors of floats, got {key!r} in"
                f" {'meta' if value.is_meta else value.layout}, {value.dtype}"
            )
    return {key: value.detach().float().numpy() for key, value in content.items()}


def _check_archive(name: str) -> None:
    """Raises ValueError for an archive that unpacks to too much, or whose checksums, which torch
    ignores, are wrong.
    """
    if not zipfile.is_zipfile(name):
        return
    with zipfile.ZipFile(name) as archive:
        check_unpacked_size(name, sum(member.file_size for member in archive.infolist()))
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged, or was saved without a checksum")


def model_with_weights(model: str, dataset: LabelledDataset, weights: Weights) -> nn.Sequential:
    """Returns a named model with the given weights, to look at before training.

    Raises:
      ValueError: the weights do not fit the model.
    """
    network = build_model(model, dataset.record_shape, dataset.num_classes)
    load_weights(network, weights)
    return network


def accuracy(network: nn.Module, dataset: LabelledDataset) -> float:
    """Returns the fraction of records the network classifies right."""
    with torch.no_grad():
        predicted = network(torch.tensor(dataset.features)).argmax(dim=1).numpy()
    return float(np.mean(predicted == dataset.labels))
