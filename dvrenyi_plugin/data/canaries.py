"""Canaries: the one record in which the neighbouring datasets differ.

Any record is a legal canary. A good one has a gradient that stays longer than the clipping norm, so
that it moves the weights by as much as the claim is about, and a loss that is nearly linear in the
weights over the range of the noise, so that the observation keeps what the weights carry.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.files import errors_that_name_argument
from dvrenyi_plugin._internal.validation import check_int, check_seed
from dvrenyi_plugin.data.canary_names import check_canary_name, is_canary_file
from dvrenyi_plugin.data.file_formats import read_npy
from dvrenyi_plugin.data.labelled import AuditSplit, read_only_view

# Of a unit vector's projection: far above rounding, far below the longest one, which is at least
# 1 / sqrt(size).
_SHORTEST = 1e-6


@dataclasses.dataclass(frozen=True)
class Canary:
    """A canary, and how the initial model sees it.

    Attributes:
      name: how it was made.
      features: shape of one record, float32, read-only.
      label: its class.
      initial_loss: cross-entropy under the initial model, in nats.
      initial_gradient_norm: L2 norm of its loss's gradient in all weights of the initial model.
        Where this is below the clipping norm, the canary moves the weights by less than the claim
        allows for.
    """

    name: str
    features: NDArray[np.float32]
    label: int
    initial_loss: float
    initial_gradient_norm: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", read_only_view(self.features))


def make_canary(
    name: str,
    network: nn.Module,
    split: AuditSplit,
    *,
    label: int | None = None,
    seed: int = 0,
    clip_norm: float = 1.0,
) -> Canary:
    """Returns a canary by name.

    Args:
      name: "blank": all zeros (Nasr et al. 2023). "clipbkd": the audited records' last principal
        component scaled to their mean norm (Jagielski, Ullman and Oprea 2020); where it is not
        unique, as with fewer records than coordinates, the one of `_least_used_direction`. It does
        not depend on the records' order. "mislabelled": the record of the part that is not audited
        which surprises the initial model most under the canary's label. "random": the one of 256
        images of uniform noise whose gradient is the least aligned with the sum of the audited
        records' gradients, so that their pull disturbs it least. Or the path of an `.npy` file that
        holds one record's features, taken as they are.
      network: the model with its initial weights.
      split: what is audited and what is not.
      label: class of the canary; None for the class that the initial model finds least likely.
      seed: of the random images.
      clip_norm: of the training, > 0; "random" looks at the records' clipped gradients.

    Raises:
      ValueError: unknown name, a label that is no class, or a file without one record's numbers.
      OSError: the file cannot be read.
    """
    check_canary_name("canary", name)
    if label is not None:
        check_int("canary_label", label, at_least=0, at_most=split.audited.num_classes - 1)
    rng = np.random.default_rng(check_seed(seed))
    is_file = is_canary_file(name)
    candidates = _own_record(name, split) if is_file else _CANDIDATES[name](split, rng)
    labels = (
        _least_likely(network, candidates) if label is None else np.full(len(candidates), label)
    )
    chosen = _choose(name, network, split, candidates, labels, clip_norm)
    loss, gradient = _loss_and_gradient(network, candidates[chosen], int(labels[chosen]))
    return Canary(
        name, candidates[chosen].copy(), int(labels[chosen]), loss, float(gradient.norm())
    )


def least_likely_label(network: nn.Module, features: NDArray[np.float32]) -> int:
    """Returns the class to which the network gives the least probability for one record."""
    return int(_least_likely(network, features[np.newaxis])[0])


def _least_likely(network: nn.Module, batch: NDArray[np.float32]) -> NDArray[np.int64]:
    with torch.no_grad():
        logits = network(torch.tensor(batch)).numpy()
    labels: NDArray[np.int64] = np.argmin(logits, axis=1).astype(np.int64)
    return labels


def _blank(split: AuditSplit, rng: np.random.Generator) -> NDArray[np.float32]:
    return np.zeros((1, *split.audited.record_shape), dtype=np.float32)


def _last_principal_component(split: AuditSplit, rng: np.random.Generator) -> NDArray[np.float32]:
    flat = split.audited.features.reshape(len(split.audited), -1).astype(np.float64)
    if len(flat) < 2:
        raise ValueError(f"num_records must be an integer >= 2 for clipbkd, got {len(flat)}")
    # In an order of their own, so that no rounding depends on the order in which the records came.
    flat = flat[sorted(range(len(flat)), key=lambda index: flat[index].tobytes())]
    direction = _least_used_direction(flat)
    scaled = direction * np.linalg.norm(flat, axis=1).mean()
    result: NDArray[np.float32] = scaled.astype(np.float32)
    return result.reshape(1, *split.audited.record_shape)


def _least_used_direction(records: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a unit vector along which records of shape (n, d) vary least, shape (d,).

    Fewer records than coordinates, or coordinates that are the same in all records, leave many such
    directions, and what a principal component analysis calls the last one is then an accident. Of
    all of them the one nearest to the vector of equal entries is taken, its sign such that the
    entry of largest size is positive.
    """
    size = records.shape[1]
    # The triangle has the records' singular values, and is small however many records there are.
    triangle = np.linalg.qr(records - records.mean(axis=0), mode="r")
    _, values, components = np.linalg.svd(triangle)
    spread = np.zeros(size)
    spread[: len(values)] = values
    tolerance = spread[0] * max(records.shape) * np.finfo(np.float64).eps
    least = components[spread <= spread.min() + tolerance]
    # Where equal entries are orthogonal to all of them, the first coordinate that is not takes
    # their place.
    wanted = itertools.chain(
        [np.full(size, size**-0.5)], (np.eye(1, size, k)[0] for k in range(size))
    )
    projections = ((vector @ least.T) @ least for vector in wanted)
    direction = next(vector for vector in projections if np.linalg.norm(vector) > _SHORTEST)
    sign = np.sign(direction[np.argmax(np.abs(direction))])
    unit: NDArray[np.float64] = sign * direction / np.linalg.norm(direction)
    return unit


def _outside_records(split: AuditSplit, rng: np.random.Generator) -> NDArray[np.float32]:
    return split.pretraining.features


def _own_record(path: str, split: AuditSplit) -> NDArray[np.float32]:
    with errors_that_name_argument("canary", path):
        record = read_npy(path)
    shape = split.audited.record_shape
    if record.shape != shape or record.dtype.kind not in "uif":
        raise ValueError(
            f"canary {path} must hold numbers of shape {shape}, got {record.dtype} of shape"
            f" {record.shape}"
        )
    with np.errstate(over="ignore"):
        result: NDArray[np.float32] = record[np.newaxis].astype(np.float32)
    if not np.isfinite(result).all():
        raise ValueError(f"canary {path} must be finite in float32, got NaN or infinite entries")
    return result


def _noise_images(split: AuditSplit, rng: np.random.Generator) -> NDArray[np.float32]:
    return rng.random((256, *split.audited.record_shape), dtype=np.float32)


_CANDIDATES: dict[str, Callable[[AuditSplit, np.random.Generator], NDArray[np.float32]]] = {
    "blank": _blank,
    "clipbkd": _last_principal_component,
    "mislabelled": _outside_records,
    "random": _noise_images,
}


def _choose(
    name: str,
    network: nn.Module,
    split: AuditSplit,
    candidates: NDArray[np.float32],
    labels: NDArray[np.int64],
    clip_norm: float,
) -> int:
    if len(candidates) == 1:
        return 0
    if name == "mislabelled":
        with torch.no_grad():
            losses = nn.functional.cross_entropy(
                network(torch.tensor(candidates)), torch.tensor(labels), reduction="none"
            )
        # A record that happens to have the canary's label is not mislabelled.
        losses[torch.tensor(split.pretraining.labels == labels)] = -1.0
        return int(losses.argmax())
    features, true_labels = split.audited.records
    pull = sum(
        _clipped(_loss_and_gradient(network, record, int(label))[1], clip_norm)
        for record, label in zip(features, true_labels, strict=True)
    )
    alignments = []
    for record, label in zip(candidates, labels, strict=True):
        gradient = _loss_and_gradient(network, record, int(label))[1]
        alignments.append(abs(float(gradient @ pull / gradient.norm().clamp(min=1e-12))))
    return int(np.argmin(alignments))


def _clipped(gradient: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """Returns the clipped gradient in units of the clipping norm."""
    result: torch.Tensor = gradient / gradient.norm().clamp(min=clip_norm)
    return result


def _loss_and_gradient(
    network: nn.Module, record: NDArray[np.float32], label: int
) -> tuple[float, torch.Tensor]:
    """Returns one record's loss and the gradient in all weights, shape (number of weights,)."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    loss = nn.functional.cross_entropy(
        network(torch.tensor(record[np.newaxis])), torch.tensor([label])
    )
    gradients = torch.autograd.grad(loss, weights)
    return float(loss.detach()), torch.cat([gradient.flatten() for gradient in gradients])
