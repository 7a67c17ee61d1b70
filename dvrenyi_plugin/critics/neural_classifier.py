"""A small neural classifier as an estimator of log dQ/dP, for samples that no simple family
fits."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, NotNegative, Positive, Seed
from dvrenyi_plugin._internal.streams import seed_of, streams_of
from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin.critics.log_ratio import Array, CrossFittedLogRatio, LogRatio, pool_samples
from dvrenyi_plugin.critics.networks import SkipMlp, standardised_features
from dvrenyi_plugin.critics.sample_split import split_samples
from dvrenyi_plugin.critics.simple_families import PolynomialLogRatio

# Newest samples a side that are used: the log ratio needs no more, and a refit stays under a few
# seconds.
_MAX_SAMPLES = 10_000
_VALIDATION_SHARE = 0.25
_PATIENCE = 8


@dataclasses.dataclass(frozen=True)
class NetworkLogRatio(CheckedSettings):
    """Cross-entropy fit of a ReLU network with a linear skip, stopped early, calibrated on held-out
    samples.

    Attributes:
      hidden_sizes: units of the hidden layers, each >= 1.
      max_epochs: passes over the fitting part, >= 1.
      batch_size: samples a step, >= 1.
      learning_rate: Adam's step size, > 0.
      weight_decay: >= 0.
      seed: of the split, the initial weights and the batches, >= 0. torch's global state is not
        touched.
    """

    hidden_sizes: tuple[Count, ...] = (32, 32)
    max_epochs: Count = 60
    batch_size: Count = 256
    learning_rate: Positive = 1e-2
    weight_decay: NotNegative = 1e-3
    seed: Seed = 0

    def fit(self, samples_q: Array, samples_p: Array) -> tuple[LogRatio, str]:
        """Returns the estimate of log dQ/dP, (n, d) -> (n,), and a short name.

        Args:
          samples_q: shape (n, d), samples of the numerator law.
          samples_p: shape (m, d), samples of the other law.
        """
        samples_q, samples_p = samples_q[-_MAX_SAMPLES:], samples_p[-_MAX_SAMPLES:]
        if len(samples_q) == 1 or len(samples_p) == 1:
            return _calibrated(lambda samples: samples[:, 0], samples_q, samples_p), "linear"
        rng = np.random.default_rng(self._streams()[0])
        held_q, fit_q = split_samples(samples_q, _VALIDATION_SHARE, rng)
        held_p, fit_p = split_samples(samples_p, _VALIDATION_SHARE, rng)
        features = standardised_features(np.concatenate([fit_q, fit_p]))
        with single_thread():
            network = self._train(*map(features, (fit_q, fit_p, held_q, held_p)))

        def score(samples: Array) -> Array:
            with torch.no_grad():
                values: NDArray[np.float64] = network(features(samples))[:, 0].double().numpy()
            return values

        log_ratio = _calibrated(score, held_q, held_p)
        return CrossFittedLogRatio(
            log_ratio, log_ratio(held_q), log_ratio(held_p)
        ), "neural network"

    def _streams(self) -> list[np.random.SeedSequence]:
        """Streams of the split, of the initial weights and of the batches."""
        return streams_of("critic", self.seed, 3)

    def _train(
        self,
        fit_q: torch.Tensor,
        fit_p: torch.Tensor,
        held_q: torch.Tensor,
        held_p: torch.Tensor,
    ) -> nn.Module:
        weights_seed, batches_seed = (seed_of(stream) for stream in self._streams()[1:])
        generator = torch.Generator().manual_seed(batches_seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(weights_seed)
            network = SkipMlp(fit_q.shape[1], self.hidden_sizes)
        optimizer = torch.optim.Adam(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        inputs = torch.cat([fit_q, fit_p])
        labels = torch.cat([torch.ones(len(fit_q)), torch.zeros(len(fit_p))])
        held = torch.cat([held_q, held_p])
        held_labels = torch.cat([torch.ones(len(held_q)), torch.zeros(len(held_p))])
        loss_of = nn.functional.binary_cross_entropy_with_logits
        best_loss, best_state, since = float("inf"), copy.deepcopy(network.state_dict()), 0
        for _ in range(self.max_epochs):
            order = torch.randperm(len(inputs), generator=generator)
            for start in range(0, len(inputs), self.batch_size):
                batch = order[start : start + self.batch_size]
                optimizer.zero_grad()
                loss = loss_of(network(inputs[batch])[:, 0], labels[batch])
                torch.autograd.backward(loss)
                optimizer.step()
            with torch.no_grad():
                held_loss = float(loss_of(network(held)[:, 0], held_labels))
            since += 1
            if held_loss < best_loss - 1e-5:
                best_loss, best_state, since = held_loss, copy.deepcopy(network.state_dict()), 0
            elif since >= _PATIENCE:
                break
        network.load_state_dict(best_state)
        return network


def _calibrated(score: LogRatio, held_q: Array, held_p: Array) -> LogRatio:
    """Returns a logistic calibration of the score (Platt 1999) on samples it was not fitted to."""
    data = pool_samples(score(held_q)[:, np.newaxis], score(held_p)[:, np.newaxis])
    calibrate = PolynomialLogRatio(1).fit(data).log_ratio
    return lambda samples: calibrate(score(samples)[:, np.newaxis])
