"""One network trained by TensorFlow Privacy's optimizers. Importing this module imports
TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_privacy
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams
from dvrenyi_plugin.mechanisms.dp_sgd.keras_network import KerasNetwork

# The noise of both optimizers has standard deviation noise_multiplier * l2_norm_clip, so "no
# clipping" must be a finite norm; no float32 gradient of a sane network comes near this one.
_NEVER_CLIPS = 1e12
_TRACING = threading.Lock()


class TfPrivacyTrainer:
    """One Keras network, set back to the initial weights for every model, and its compiled steps.

    TensorFlow is set to one thread if it is not running yet, since its rounding depends on their
    number.

    Args:
      config: of the training.
      optimizer: "vectorized" or "loop", see `TfPrivacyDpSgdMechanismConfig`.
      network: the torch network whose twin is trained.

    Raises:
      ValueError: a layer without a twin in TensorFlow.
    """

    def __init__(self, config: DpSgdConfig, optimizer: str, network: nn.Sequential) -> None:
        _use_one_thread()
        self._config = config
        self._optimizer = optimizer
        self._clip_norm = min(config.effective_clip_norm, _NEVER_CLIPS)
        with tf.device("/CPU:0"):
            self._network = KerasNetwork(network, config.input_shape)
            self._learning_rate = tf.Variable(0.0, trainable=False)
        # noise's standard deviation -> compiled step; with a defect there are two, else one.
        self._steps: dict[float, Any] = {}

    def train(
        self, features: NDArray[np.float32], labels: NDArray[np.int64], streams: ModelStreams
    ) -> NDArray[Any]:
        """Returns one newly trained model's result: the canary's logits, or the weights."""
        with tf.device("/CPU:0"):
            return self._train(features, labels, streams)

    def _train(
        self, features: NDArray[np.float32], labels: NDArray[np.int64], streams: ModelStreams
    ) -> NDArray[Any]:
        config = self._config
        self._network.set_weights(config.initial_weights)
        seeds = self._noise_seeds(streams.noise)
        sampling = streams.sampling_generator()
        batch = _Batch.of(features, labels)
        for step in range(config.num_steps):
            if config.sample_rate < 1.0:
                joins = sampling.random(len(labels)) < config.sample_rate
                batch = _Batch.of(features[joins], labels[joins])
            # Both optimizers divide the noisy sum by the number of microbatches, here one per
            # record; the learning rate takes that back and divides by the public denominator in its
            # place.
            self._learning_rate.assign(
                config.learning_rate * batch.num_microbatches / config.denominator(batch.size)
            )
            self._compiled_step(config.noise_std(step))(
                batch.features, batch.labels, batch.mask, seeds[step]
            )
        if config.observes_weights:
            weights = self._network.weights()
            return np.concatenate([weights[name].ravel() for name in config.initial_weights])
        logits: NDArray[Any] = self._network.model(config.canary[0][np.newaxis])[0].numpy()
        return logits

    def _noise_seeds(self, seed: np.random.SeedSequence) -> NDArray[np.int64]:
        """Returns 128 bits of seed for each step's draw for each variable, shape (steps, variables,
        2).
        """
        shape = (self._config.num_steps, len(self._network.trainable_variables), 2)
        return seed.generate_state(int(np.prod(shape)), np.uint64).view(np.int64).reshape(shape)

    def _compiled_step(self, noise_std: float) -> Any:
        if noise_std not in self._steps:
            self._steps[noise_std] = self._compile(noise_std)
        return self._steps[noise_std]

    def _compile(self, noise_std: float) -> Any:
        """Returns a function of a batch and the seeds that makes one step; traced once for all
        batch sizes.
        """
        config, network, variables = (
            self._config,
            self._network.model,
            self._network.trainable_variables,
        )
        vectorized = self._optimizer == "vectorized"
        optimizer_class = (
            tensorflow_privacy.VectorizedDPKerasSGDOptimizer
            if vectorized
            else tensorflow_privacy.DPKerasSGDOptimizer
        )
        optimizer = optimizer_class(
            l2_norm_clip=self._clip_norm,
            noise_multiplier=noise_std / self._clip_norm,
            num_microbatches=None,  # one per record
            learning_rate=lambda: self._learning_rate,
        )
        # A function that makes variables when it is traced must be traced twice.
        optimizer._create_all_weights(variables)

        def step(features: Any, labels: Any, mask: Any, seeds: Any) -> None:
            with tf.GradientTape() as tape:
                losses = mask * tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, network(features, training=True)
                )
            with _seeded_normals(seeds, len(variables)):
                optimizer.minimize(losses, variables, tape=tape)

        compiled = tf.function(
            step,
            input_signature=[
                tf.TensorSpec((None, *config.input_shape), tf.float32),
                tf.TensorSpec((None,), tf.int64),
                tf.TensorSpec((None,), tf.float32),
                tf.TensorSpec((len(variables), 2), tf.int64),
            ],
        ).get_concrete_function()
        _check_no_other_randomness(compiled.graph.as_graph_def())
        return compiled


@dataclasses.dataclass(frozen=True)
class _Batch:
    """What one step works on.

    Attributes:
      features: shape (num_microbatches, ...).
      labels: shape (num_microbatches,).
      mask: 1 for records; 0 for the stand-in of an empty batch, whose gradient is exactly zero.
      size: number of records.
    """

    features: Any
    labels: Any
    mask: Any
    size: int

    @property
    def num_microbatches(self) -> int:
        """What the optimizers divide by."""
        return max(1, self.size)

    @staticmethod
    def of(features: NDArray[np.float32], labels: NDArray[np.int64]) -> _Batch:
        """Returns these records as tensors.

        TensorFlow Privacy cannot make a step without records: it would divide by zero. A record
        with zero gradient makes it one of noise alone.
        """
        size = len(labels)
        if size == 0:
            features, labels = np.zeros((1, *features.shape[1:]), np.float32), np.zeros(1, np.int64)
        mask = np.full(len(labels), float(size > 0), dtype=np.float32)
        return _Batch(tf.constant(features), tf.constant(labels), tf.constant(mask), size)


@contextlib.contextmanager
def _seeded_normals(seeds: Any, num_draws: int) -> Iterator[None]:
    """Inside, while a step is traced, TensorFlow's normal numbers come from the given seeds, one
    per draw.

    TensorFlow Privacy draws with `tf.random.normal` and `tf.random_normal_initializer` and takes no
    seed. In a compiled function TensorFlow fixes the seeds of such draws when it is traced, and
    outside it keeps only 31 bits of `tf.random.set_seed`: no model could be trained again, alone,
    or be sure of noise of its own. So both names stand for the stateless generator during the
    trace; shape, standard deviation and use of what is drawn stay TensorFlow Privacy's.

    Raises:
      RuntimeError: another number of draws than expected was made.
    """
    drawn = 0

    def normal(
        shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, **unused: Any
    ) -> Any:
        nonlocal drawn
        drawn += 1
        if drawn > num_draws:
            raise RuntimeError(
                f"TensorFlow Privacy drew noise more than {num_draws} times per step"
            )
        return tf.random.stateless_normal(shape, seeds[drawn - 1], mean, stddev, dtype)

    def normal_initializer(mean: Any = 0.0, stddev: Any = 0.05, **unused: Any) -> Any:
        return lambda shape, dtype=tf.float32, **kwargs: normal(shape, mean, stddev, dtype)

    with _TRACING:
        originals = tf.random.normal, tf.random_normal_initializer
        tf.random.normal, tf.random_normal_initializer = normal, normal_initializer
        try:
            yield
        finally:
            tf.random.normal, tf.random_normal_initializer = originals
    if drawn != num_draws:
        raise RuntimeError(
            f"TensorFlow Privacy drew noise {drawn} times per step, not once for each of"
            f" {num_draws} variables"
        )


def _check_no_other_randomness(graph: Any) -> None:
    """Raises RuntimeError if a compiled step draws anything that our seeds do not decide."""
    nodes = [
        *graph.node,
        *(node for function in graph.library.function for node in function.node_def),
    ]
    operations = {node.op for node in nodes}
    unseeded = sorted(
        name for name in operations if "Random" in name and not name.startswith("Stateless")
    )
    if unseeded:
        raise RuntimeError(f"TensorFlow Privacy drew unseeded noise: {', '.join(unseeded)}")


def _use_one_thread() -> None:
    # Refused once TensorFlow runs: then its rounding follows the number of threads it runs with.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
