"""How the critic of the neural estimator is trained, and the settings of it.

Source: algorithm 1 of Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi
Differentially Private Machine Learning"; `bounded=False` is the algorithm taken literally.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
from torch import nn

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    Fraction,
    NotNegative,
    OneOf,
    Order,
    Positive,
    Real,
    Seed,
    Switch,
    Widths,
)
from dvrenyi_plugin.critics.minibatches import TrainingData, minibatches
from dvrenyi_plugin.critics.networks import CriticNetwork, SkipMlp
from dvrenyi_plugin.critics.neural_objective import (
    DonskerVaradhanLoss,
    RegularisedLoss,
    classification_loss,
)

# One sample a side to validate on and three to fit on is the least that trains at all.
MIN_SAMPLES = 4
# Narrower, the clamp's rounding takes over; no divergence worth measuring needs less.
_SMALLEST_WIDTH = 0.05
_LEAST_LOOKS = 3

EMA_CONVENTIONS = ("past", "batch")

_Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class DvRenyiEstimatorConfig(CheckedSettings):
    """How the critic is built and trained.

    Attributes:
      alpha: Rényi order, > 1.
      epochs: largest number of passes over the fitting samples, for each of the two stages, >= 1.
      batch_size: samples a minibatch and side, >= 1; whole passes when it covers the fitting
        samples.
      learning_rate: Adam's step size, > 0.
      hidden_sizes: widths of the hidden layers of the default critic.
      weight_decay: decoupled weight decay of the default critic and of a given one, >= 0.
      classification_weight: weight of the logistic loss beside the Donsker-Varadhan objective in
        the second stage, >= 0. Both have the same optimum, log dQ/dP; the logistic loss holds the
        critic there when few denominator samples reach the region that carries the divergence.
        Unused when not bounded.
      critic_bound: largest absolute critic value; None leaves the range to the samples.
      validation_fraction: part of each sample kept for early stopping, in (0, 1).
      patience: optimiser steps without improvement on the validation samples before a stage ends,
        >= 1. They are looked at after every epoch, and a stage ends after no fewer than three
        looks.
      ema_rate: rate of the moving average that corrects the gradient's minibatch bias, in [0, 1).
        Whole passes have no such bias, and the bounded estimator then leaves the correction out.
      ema_weighs: which side `ema_rate` weighs when the averages are updated: "past", or "batch"
        (the current batch's mean), as in the source's public code; the source does not say which is
        meant.
      bounded: False for the source's algorithm taken literally: unbounded critic on raw inputs,
        plain gradient ascent (no Adam, no weight decay), averages that start at 0, the last
        `validation_fraction` of each sample in the order given for validation, no early stopping.
        Its values may be off by any factor, infinite or NaN.
      seed: of initial weights, split and minibatches.
    """

    alpha: Order
    epochs: Count = 200
    batch_size: Count = 400
    learning_rate: Positive = 1e-3
    hidden_sizes: Widths = (100, 100)
    weight_decay: NotNegative = 1e-2
    classification_weight: NotNegative = 5.0
    critic_bound: Positive | None = None
    validation_fraction: Fraction = 0.2
    patience: Count = 40
    ema_rate: Annotated[float, Real(at_least=0.0, below=1.0)] = 0.99
    ema_weighs: Annotated[str, OneOf(EMA_CONVENTIONS)] = "past"
    bounded: Switch = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_bound is not None and not self.bounded:
            raise ValueError(
                f"critic_bound must be None when bounded is False, got {self.critic_bound}"
            )

    @property
    def past_weight(self) -> float:
        """Weight of the past in the moving averages, by either convention; 0 leaves them out."""
        if self.ema_weighs == "past" or self.ema_rate == 0.0:
            return self.ema_rate
        return 1.0 - self.ema_rate


def train_critic(
    network: CriticNetwork,
    data: TrainingData,
    config: DvRenyiEstimatorConfig,
    rng: np.random.Generator,
) -> int:
    """Trains in place and returns the epochs run.

    Args:
      network: its range is set, too, when the estimator is bounded.
      data: features of both samples.
      config: of the estimator.
      rng: of the minibatches.
    """
    fit = _fit_bounded if config.bounded else _fit_literally
    return fit(network, data, config, rng)


def _fit_bounded(
    network: CriticNetwork,
    data: TrainingData,
    config: DvRenyiEstimatorConfig,
    rng: np.random.Generator,
) -> int:
    if isinstance(network.body, SkipMlp):
        _fit_linear_part(network.body, data)
    epochs_run = _train(network, data, classification_loss, classification_loss, config, rng)
    network.critic_range = _choose_range(network, data, config.critic_bound)
    covers = config.batch_size >= max(len(data.training_q), len(data.training_p))
    weight = config.classification_weight
    ema_rate = 0.0 if covers else config.past_weight
    objective = RegularisedLoss(DonskerVaradhanLoss(config.alpha, ema_rate), weight)
    validation = RegularisedLoss(DonskerVaradhanLoss(config.alpha, 0.0), weight)
    return epochs_run + _train(network, data, objective, validation, config, rng)


def _fit_literally(
    network: CriticNetwork,
    data: TrainingData,
    config: DvRenyiEstimatorConfig,
    rng: np.random.Generator,
) -> int:
    objective = DonskerVaradhanLoss(config.alpha, config.past_weight, from_zero=True)
    return _train(network, data, objective, None, config, rng)


def _fit_linear_part(body: SkipMlp, data: TrainingData) -> None:
    """Logistic regression: a few quasi-Newton steps instead of thousands of Adam's."""
    linear = body.linear
    # One unit of prior for each column: without it, columns as many as samples separate any two
    # samples.
    num_samples, num_features = len(data.training_q) + len(data.training_p), linear.in_features
    ridge = num_features / num_samples
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = classification_loss(
            linear(data.training_q).squeeze(1), linear(data.training_p).squeeze(1)
        )
        loss = loss + ridge * linear.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _train(
    network: CriticNetwork,
    data: TrainingData,
    objective: _Loss,
    validation: _Loss | None,
    config: DvRenyiEstimatorConfig,
    rng: np.random.Generator,
) -> int:
    """Trains in place, ends with the best weights on the validation samples, returns the epochs
    run.

    Without `validation` all epochs are run and the last weights stay.
    """
    parameters = [weight for weight in network.parameters() if weight.requires_grad]
    if not parameters:
        return 0
    optimizer = _optimizer(parameters, config)
    best_loss, best_epoch, best_weights = math.inf, 0, _copy_weights(network)
    if validation is not None:
        best_loss = _validation_loss(network, data, validation)
    steps = math.ceil(max(len(data.training_q), len(data.training_p)) / config.batch_size)
    patience_epochs = max(_LEAST_LOOKS, math.ceil(config.patience / steps))
    for epoch in range(1, config.epochs + 1):
        network.train()
        for batch_q, batch_p in minibatches(data, config.batch_size, rng):
            optimizer.zero_grad()
            values = network(torch.cat((batch_q, batch_p)))
            objective(values[: len(batch_q)], values[len(batch_q) :]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if validation is None:
            continue
        loss = _validation_loss(network, data, validation)
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best_weights = _copy_weights(network)
        elif epoch - best_epoch >= patience_epochs:
            break
    if validation is not None:
        network.load_state_dict(best_weights)
    network.eval()
    return epoch


def _optimizer(
    parameters: list[nn.Parameter], config: DvRenyiEstimatorConfig
) -> torch.optim.Optimizer:
    if not config.bounded:
        return torch.optim.SGD(parameters, lr=config.learning_rate)
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def _copy_weights(network: CriticNetwork) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _validation_loss(network: CriticNetwork, data: TrainingData, validation: _Loss) -> float:
    network.eval()
    with torch.no_grad():
        values = network(torch.cat((data.validation_q, data.validation_p)))
        count = len(data.validation_q)
        return float(validation(values[:count], values[count:]))


def _choose_range(
    network: CriticNetwork, data: TrainingData, critic_bound: float | None
) -> tuple[float, float]:
    """Returns the range that the samples of both laws can check.

    E_P[e^{alpha T}] is carried by the largest values of T, where the denominator has few samples or
    none. The range leaves about sqrt(n) samples of the numerator above it and of the denominator
    below it. Nor does it pass log(n / 2): the critic comes from a classifier, so T estimates log
    dQ/dP, and of n denominator samples at most n e^{-t} are expected where that exceeds t.
    """
    with torch.no_grad():
        values_q = network(data.training_q).double().numpy()
        values_p = network(data.training_p).double().numpy()
    low = float(np.quantile(values_p, 1.0 / math.sqrt(len(values_p))))
    high = float(np.quantile(values_q, 1.0 - 1.0 / math.sqrt(len(values_q))))
    low = max(low, -math.log(max(len(values_q), MIN_SAMPLES) / 2.0))
    high = min(high, math.log(max(len(values_p), MIN_SAMPLES) / 2.0))
    if critic_bound is not None:
        low, high = max(low, -critic_bound), min(high, critic_bound)
    if high - low < _SMALLEST_WIDTH:
        middle = 0.5 * (low + high)
        half = _SMALLEST_WIDTH if critic_bound is None else min(_SMALLEST_WIDTH, critic_bound)
        if critic_bound is not None:
            middle = min(max(middle, half - critic_bound), critic_bound - half)
        low, high = middle - half, middle + half
    return low, high
