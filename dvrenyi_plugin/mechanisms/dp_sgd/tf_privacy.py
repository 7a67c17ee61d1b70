"""DP-SGD as TensorFlow Privacy runs it: its optimizers clip, add up, add noise and move the
weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.extras import missing_extra
from dvrenyi_plugin._internal.limits import OneOf
from dvrenyi_plugin._internal.validation import check_delta
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams
from dvrenyi_plugin.mechanisms.dp_sgd.networks import load_weights, model_factory

if TYPE_CHECKING:
    from dvrenyi_plugin.mechanisms.dp_sgd.tf_privacy_training import TfPrivacyTrainer

OPTIMIZERS = ("vectorized", "loop")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TfPrivacyDpSgdMechanismConfig(DpSgdConfig):
    """Settings of `DpSgdConfig`, and:

    Attributes:
      optimizer: "vectorized" (VectorizedDPKerasSGDOptimizer, clips all records at once) or "loop"
        (DPKerasSGDOptimizer, clips them one after another).
    """

    optimizer: Annotated[str, OneOf(OPTIMIZERS)] = "vectorized"


class TfPrivacyDpSgdMechanism(DpSgdMechanism):
    """Trains one model after another with TensorFlow Privacy, in float32 on the CPU, and observes
    the canary.

    The same mechanism as `OpacusDpSgdMechanism` and `EnsembleDpSgdMechanism`, with the same claim,
    the same Poisson batches, and clipped sums that are equal up to float32 rounding. TensorFlow
    Privacy decides what noise is drawn, with which standard deviation, and what it is added to; the
    normal numbers themselves come from TensorFlow's stateless generator, see `tf_privacy_training`.
    Its optimizers take each record's gradient through the whole batch, so that a step's time grows
    with the square of the batch, and keep all of them at once.

    TensorFlow is set to one thread if it is not running yet, since its rounding depends on their
    number.
    """

    config: TfPrivacyDpSgdMechanismConfig

    def __init__(self, config: TfPrivacyDpSgdMechanismConfig) -> None:
        """Builds the network in TensorFlow, so that a layer without a twin is refused here.

        Raises:
          ValueError: a network that cannot be trained like this.
          ImportError: TensorFlow Privacy is not installed; the message names the extra.
        """
        super().__init__(config)
        self._trainer: TfPrivacyTrainer | None = self._new_trainer()

    def __getstate__(self) -> dict[str, Any]:
        """Compiled TensorFlow functions cannot travel to another process: they are made
        anew there.
        """
        return {**self.__dict__, "_trainer": None}

    def accountant_epsilon(self, delta: float) -> float:
        """Returns the epsilon at this delta that the accountant of TensorFlow Privacy gives for the
        claimed noise.

        It is dp_accounting's Rényi accountant, hence never below the exact epsilon of a full-batch
        claim.
        """
        config = self.config
        check_delta(delta)
        if config.num_steps == 0:
            return 0.0
        step = dp_accounting.PoissonSampledDpEvent(
            config.sample_rate, dp_accounting.GaussianDpEvent(config.noise_multiplier)
        )
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(step, config.num_steps)
        return max(0.0, float(accountant.get_epsilon(delta)))

    def _train(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        streams: Sequence[ModelStreams],
    ) -> NDArray[Any]:
        if self._trainer is None:
            self._trainer = self._new_trainer()
        return np.stack([self._trainer.train(features, labels, stream) for stream in streams])

    def _new_trainer(self) -> TfPrivacyTrainer:
        config = self.config
        network = model_factory(config.model, config.input_shape, config.num_classes)()
        load_weights(network, config.initial_weights)
        try:
            from dvrenyi_plugin.mechanisms.dp_sgd.tf_privacy_training import TfPrivacyTrainer
        except (ImportError, AttributeError) as error:  # the latter: a TensorFlow that is too new
            raise missing_extra(
                "TfPrivacyDpSgdMechanism", "TensorFlow Privacy", "tensorflow", error
            ) from error
        return TfPrivacyTrainer(config, config.optimizer, network)
