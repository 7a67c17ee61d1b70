"""What every DP-SGD engine shares: checks of arguments, numbers of models, claim, observation."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._internal.validation import check_int
from dvrenyi_plugin.interfaces import PrivacyProperty, check_num_samples
from dvrenyi_plugin.mechanisms.dp_sgd.config import (
    DpSgdConfig,
    ModelStreams,
    check_training_dataset,
    model_seed,
)
from dvrenyi_plugin.mechanisms.finite_observations import finite_observations


class DpSgdMechanism(abc.ABC):
    """Trains models with DP-SGD and observes the canary under each.

    An engine fills in `_train`; everything else is the same for all of them.
    """

    def __init__(self, config: DpSgdConfig) -> None:
        self.config = config
        self._calls = 0

    @property
    def discrete_outputs(self) -> bool:
        """True: models that repeat each other (no noise, a saturated loss) are no sign of a seed
        set twice.

        The engine draws from the streams of `model_seed` and from nothing else.
        """
        return True

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """See `DpSgdConfig.claimed_privacy`."""
        return self.config.claimed_privacy

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns the observations of `num_samples` newly trained models, shape (num_samples, k),
        finite.

        Models whose training diverged come through a fixed map, see `finite_observations`.

        Args:
          dataset: (features, labels) of shapes (n, ...) and (n,).
          num_samples: >= 1. The c-th call of one object (from 0) trains models 0, 1, ... of
            `world` c of `train_models`: calls never share randomness, and a new object with the
            same config repeats them.
        """
        num_samples = check_num_samples(num_samples)
        observations = self.train_models(dataset, self._calls, range(num_samples))
        self._calls += 1
        return finite_observations(observations)

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns the observations of the models with these numbers, shape (len(indices), k),
        float64.

        A model whose training diverged gives NaN or infinities: it is an outcome like others.

        Args:
          dataset: (features, labels) of shapes (n, ...) and (n,).
          world: number of the dataset, >= 0; audits give 0 without the canary and 1 with it. Models
            on datasets of different numbers never share randomness.
          indices: numbers of the models, each >= 0. A model depends on (seed, world, index) and the
            dataset alone, not on the other indices, the process, or what was trained before.

        Raises:
          ValueError: a dataset or index that cannot be used.
        """
        world = check_int("world", world, at_least=0)
        numbers = [check_int("indices", index, at_least=0) for index in indices]
        features, labels = check_training_dataset(
            dataset, self.config.input_shape, self.config.num_classes
        )
        if not numbers:
            return np.empty((0, self.config.observation_width))
        streams = [
            ModelStreams.of(model_seed(self.config.seed, world, number)) for number in numbers
        ]
        with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
            return observe(self.config, self._train(features, labels, streams))

    @abc.abstractmethod
    def _train(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        streams: Sequence[ModelStreams],
    ) -> NDArray[Any]:
        """Returns what decides the observation of one trained model for each of `streams`, shape
        (m, ...).

        That is the canary's logits, or, when the config `observes_weights`, the parameters in the
        order of `initial_weights`, flattened and joined.
        """


def observe(config: DpSgdConfig, results: NDArray[Any]) -> NDArray[np.float64]:
    """Returns what the config observes of m models, shape (m, config.observation_width).

    Args:
      config: its `observe` says which.
      results: what an engine's `_train` returns.

    The loss is taken in float64: in float32 a well-fitted canary's loss has few distinct values.
    """
    values = np.asarray(results, dtype=np.float64)
    if config.observe in ("logits", "weights"):
        return values
    if config.observe == "white_box":
        from dvrenyi_plugin.mechanisms.dp_sgd.white_box import linearised_losses

        return linearised_losses(config, values)[:, np.newaxis]
    losses: NDArray[np.float64] = logsumexp(values, axis=1) - values[:, config.canary[1]]
    columns = losses[:, np.newaxis]
    return np.hstack([columns, values]) if config.observe == "loss_and_logits" else columns
