"""Neural estimation of the Rényi divergence by its Donsker-Varadhan formula.

Every number here is a point estimate. A lower bound that holds with a stated probability needs
samples the critic has not seen: see `dvrenyi_plugin.testers.DvRenyiPropertyTester`.

Source: algorithm 1 of Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi
Differentially Private Machine Learning". Taken literally (`bounded=False` here) it is not stable:
with finitely many samples one numerator sample beyond every denominator sample lets the objective
run to infinity. The default therefore bounds the critic and starts it from a classifier;
docs/dv_estimator.md has the comparison.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin._internal.streams import seed_of, streams_of
from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin._internal.validation import check_sample_pair
from dvrenyi_plugin.critics.critic_training import (
    MIN_SAMPLES,
    DvRenyiEstimatorConfig,
    train_critic,
)
from dvrenyi_plugin.critics.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.critics.minibatches import TrainingData
from dvrenyi_plugin.critics.networks import (
    CriticNetwork,
    FittedCritic,
    SkipMlp,
    identity_features,
    plain_mlp,
    standardised_features,
)
from dvrenyi_plugin.critics.sample_split import split_samples

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class DvRenyiEstimate:
    """Point estimates of D_alpha(Q || P) and the critic they come from. No confidence statement.

    Attributes:
      training_estimate: V(T) on the samples that trained the critic; biased upwards.
      held_out_estimate: V(T) on the validation samples, which chose the stopping time only. Noisy
        when they are few; may be negative.
      critic: the fitted critic, a function of arrays of shape (n, d).
      critic_range: (low, high) of the critic, None when unbounded.
      epochs_run: epochs of both stages together.
      num_training: samples (of Q, of P) that trained the critic.
      num_validation: samples (of Q, of P) that decided when to stop.
      alpha: Rényi order.
      seed: of every random choice.
    """

    training_estimate: float
    held_out_estimate: float
    critic: FittedCritic
    critic_range: tuple[float, float] | None
    epochs_run: int
    num_training: tuple[int, int]
    num_validation: tuple[int, int]
    alpha: float
    seed: int


class DvRenyiEstimator:
    """Fits a critic to two samples and reports the Donsker-Varadhan value.

    Args:
      config: training settings.
      base_model: torch module from shape (n, d) to (n, 1) or (n,) that replaces the default
        network. It is copied before every fit, never changed, and must be `RowByRow` in evaluation
        mode.
    """

    def __init__(self, config: DvRenyiEstimatorConfig, base_model: nn.Module | None = None) -> None:
        if base_model is not None and not isinstance(base_model, nn.Module):
            raise ValueError(
                f"base_model must be a torch.nn.Module or None, got {type(base_model)}"
            )
        self._config = config
        self._base_model = copy.deepcopy(base_model)

    @property
    def config(self) -> DvRenyiEstimatorConfig:
        """The settings, as they were given."""
        return self._config

    @property
    def has_base_model(self) -> bool:
        """Whether the critic is the user's."""
        return self._base_model is not None

    def estimate(self, samples_q: ArrayLike, samples_p: ArrayLike) -> DvRenyiEstimate:
        """Returns point estimates of D_alpha(Q || P).

        Args:
          samples_q: sample of the numerator law, shape (n,) or (n, d).
          samples_p: sample of the denominator law, shape (m,) or (m, d); m may differ from n.

        Raises:
          ValueError: a sample is malformed, or has fewer than `MIN_SAMPLES` rows; or a base model,
            fitted or not, does not treat rows one by one.
        """
        samples = check_sample_pair(samples_q, samples_p, min_samples=MIN_SAMPLES)
        config = self._config
        split_seed, batch_seed, torch_seed = streams_of("critic", config.seed, 3)
        (training_q, validation_q), (training_p, validation_p) = _split(samples, config, split_seed)
        features = (
            standardised_features(np.concatenate([training_q, training_p]))
            if config.bounded
            else identity_features
        )
        data = TrainingData(*map(features, (training_q, validation_q, training_p, validation_p)))
        # Initial weights, and dropout in a given model, draw from torch's global stream: fork it.
        with single_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(torch_seed))
            network = CriticNetwork(self._new_body(samples[0].shape[1]))
            batch_rng = np.random.default_rng(batch_seed)
            self._check_rows(FittedCritic(network, features, samples[0].shape[1]), samples)
            epochs_run = train_critic(network, data, config, batch_rng)
        critic = FittedCritic(network, features, samples[0].shape[1])
        self._check_rows(critic, samples)
        return DvRenyiEstimate(
            training_estimate=_reading(critic, training_q, training_p, config.alpha),
            held_out_estimate=_reading(critic, validation_q, validation_p, config.alpha),
            critic=critic,
            critic_range=critic.critic_range,
            epochs_run=epochs_run,
            num_training=(len(training_q), len(training_p)),
            num_validation=(len(validation_q), len(validation_p)),
            alpha=config.alpha,
            seed=config.seed,
        )

    def estimate_both_directions(
        self, samples1: ArrayLike, samples2: ArrayLike
    ) -> tuple[DvRenyiEstimate, DvRenyiEstimate]:
        """Returns the estimates of D_alpha(law 1 || law 2) and of D_alpha(law 2 || law 1), in this
        order."""
        return self.estimate(samples1, samples2), self.estimate(samples2, samples1)

    def _check_rows(self, critic: FittedCritic, samples: Sequence[NDArray[np.float64]]) -> None:
        if self.has_base_model:
            RowByRow("base_model", critic, samples[1], finite=False)(samples[0])

    def _new_body(self, num_features: int) -> nn.Module:
        if self._base_model is not None:
            return copy.deepcopy(self._base_model).float()
        network = SkipMlp if self._config.bounded else plain_mlp
        return network(num_features, self._config.hidden_sizes)


def _reading(
    critic: FittedCritic,
    samples_q: NDArray[np.float64],
    samples_p: NDArray[np.float64],
    alpha: float,
) -> float:
    values_q, values_p = critic(samples_q), critic(samples_p)
    if not (np.isfinite(values_q).all() and np.isfinite(values_p).all()):
        return math.nan  # the literal algorithm diverged
    return donsker_varadhan_value(values_q, values_p, alpha)


def _split(
    samples: Sequence[Array], config: DvRenyiEstimatorConfig, stream: np.random.SeedSequence
) -> list[tuple[Array, Array]]:
    """Returns of each sample what trains and what validates."""
    rng = np.random.default_rng(stream)
    parts = []
    for rows in samples:
        if config.bounded:
            validation, training = split_samples(rows, config.validation_fraction, rng)
        else:
            # The literal algorithm takes the samples in the order in which they come, the last for
            # validation.
            validation, training = split_samples(rows[::-1], config.validation_fraction, None)
        parts.append((training, validation))
    return parts
