"""Trainings as users write them: each honest, and with noise that a batch size scales wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

NUM_RECORDS, STEPS, MU = 30, 5, 1.0
_rng = np.random.default_rng(0)
FEATURES = _rng.normal(size=(NUM_RECORDS, 5)).astype(np.float32)
FEATURES /= np.linalg.norm(FEATURES, axis=1, keepdims=True)
LABELS = (FEATURES[:, 0] > 0.0).astype(np.int64)
CANARY = np.array([-1.0, 0.0, 0.0, 0.0, 0.0], np.float32), np.int64(1)
PAIR = (
    (FEATURES, LABELS),
    (np.concatenate([FEATURES, CANARY[0][np.newaxis]]), np.append(LABELS, CANARY[1])),
)


def _torch_dp_sgd(dataset: Any, seed: int, noise_scale: float) -> nn.Module:
    """DP-SGD with full batches, clipping norm 1 and noise for mu = 1 at noise_scale 1."""
    torch.manual_seed(seed)
    features, labels = map(torch.as_tensor, dataset)
    model = nn.Linear(5, 2)
    sigma = STEPS**0.5 / MU
    for _ in range(STEPS):
        total = [torch.zeros_like(weight) for weight in model.parameters()]
        for x, y in zip(features, labels, strict=True):
            loss = nn.functional.cross_entropy(model(x), y)
            gradient = torch.autograd.grad(loss, list(model.parameters()))
            norm = torch.cat([g.flatten() for g in gradient]).norm().clamp(min=1.0)
            total = [t + g / norm for t, g in zip(total, gradient, strict=True)]
        with torch.no_grad():
            for weight, t in zip(model.parameters(), total, strict=True):
                noise = noise_scale * sigma * torch.randn_like(weight)
                weight -= 4.0 * (t + noise) / NUM_RECORDS
    return model


def torch_honest(dataset: Any, seed: int) -> nn.Module:
    return _torch_dp_sgd(dataset, seed, 1.0)


def torch_faulty(dataset: Any, seed: int) -> nn.Module:
    # The noise of a sum is divided by the batch size as if it were that of a mean, and then again.
    return _torch_dp_sgd(dataset, seed, 1.0 / NUM_RECORDS)


def torch_loss(model: nn.Module) -> torch.Tensor:
    x, y = torch.as_tensor(CANARY[0]), torch.as_tensor(CANARY[1])
    return nn.functional.cross_entropy(model(x), y)


def torch_logits(model: nn.Module) -> torch.Tensor:
    return model(torch.as_tensor(CANARY[0]))


def _sklearn_output_perturbation(dataset: Any, seed: int, noise_scale: float) -> Any:
    """Regularised logistic regression: a record of norm 1 moves the weights by at most 1 at C = 1
    (Chaudhuri, Monteleoni and Sarwate 2011), so noise of standard deviation 1 is 1-Gaussian DP."""
    features, labels = dataset
    model = LogisticRegression(C=1.0, fit_intercept=False).fit(features, labels)
    model.coef_ += noise_scale * np.random.default_rng(seed).normal(size=model.coef_.shape)
    return model


def sklearn_honest(dataset: Any, seed: int) -> Any:
    return _sklearn_output_perturbation(dataset, seed, 1.0)


def sklearn_faulty(dataset: Any, seed: int) -> Any:
    return _sklearn_output_perturbation(dataset, seed, 1.0 / NUM_RECORDS)


def sklearn_score(model: Any) -> Any:
    return model.decision_function(CANARY[0][np.newaxis])[0]


def numpy_honest(dataset: Any, seed: int, noise_scale: float = 1.0) -> Any:
    """Sum of records of norm at most 1, with noise of standard deviation 1: 1-Gaussian DP."""
    noise = noise_scale * np.random.default_rng(seed).normal(size=5)
    return dataset[0].sum(axis=0) + noise


def numpy_faulty(dataset: Any, seed: int) -> Any:
    return numpy_honest(dataset, seed, 1.0 / NUM_RECORDS)


def numpy_score(model: Any) -> float:
    return float(model @ CANARY[0])
