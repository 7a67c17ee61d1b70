"""Samples of two laws for training and validation, dealt out in minibatches."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What trains a critic and what decides when that ends, of each law, as features of shape (n,
    d)."""

    training_q: torch.Tensor
    validation_q: torch.Tensor
    training_p: torch.Tensor
    validation_p: torch.Tensor


def minibatches(
    data: TrainingData, batch_size: int, rng: np.random.Generator
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns one epoch of the larger sample; the smaller one is gone through more than once."""
    sides = (data.training_q, data.training_p)
    largest = max(len(side) for side in sides)
    if batch_size >= largest:
        return [sides]
    order_q, order_p = (torch.from_numpy(rng.permutation(len(side))) for side in sides)
    batches = []
    for start in range(0, largest, batch_size):
        positions = torch.arange(start, min(start + batch_size, largest))
        batch_q = data.training_q[order_q[positions % len(order_q)]]
        batch_p = data.training_p[order_p[positions % len(order_p)]]
        batches.append((batch_q, batch_p))
    return batches
