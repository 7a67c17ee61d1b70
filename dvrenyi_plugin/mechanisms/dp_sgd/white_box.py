"""What an auditor sees who knows every update: an upper reference for audits that see the loss
alone.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig
from dvrenyi_plugin.mechanisms.dp_sgd.networks import load_weights, model_factory


def linearised_losses(config: DpSgdConfig, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the canary's loss under trained weights to first order in them, shape (m,), in nats.

    That is loss(w_0) + <gradient(w_0), w - w_0>. The trained weights w are the initial ones w_0
    minus the sum of all noisy updates, so this is the sum over the steps of the inner product of
    the noisy update with the canary's gradient, up to sign and scale. For full batches whose canary
    gradient keeps its direction, the observations with and without the canary differ by exactly mu
    in units of the noise, the most that the claim allows; what a black-box audit loses against it,
    it loses because the loss is curved. It says less with Poisson batches, where the sum forgets in
    which steps the canary could have been drawn.

    Args:
      config: of the training; the gradient is taken at its `initial_weights`, in float64.
      weights: trained parameters, flattened and joined in the order of `initial_weights`, shape (m,
        p).

    Source: Nasr et al. (2023), "Tight Auditing of Differentially Private Machine Learning", which
    audits with the inner products of updates and a canary gradient; here the canary is a record.
    """
    loss, gradient = _loss_and_gradient(config)
    start = np.concatenate([np.ravel(weight) for weight in config.initial_weights.values()])
    # Row by row and by numpy's own sum: a matrix product could round differently for another number
    # of models.
    return np.array([loss + np.sum((row - start) * gradient) for row in weights])


def _loss_and_gradient(config: DpSgdConfig) -> tuple[float, NDArray[np.float64]]:
    network = model_factory(config.model, config.input_shape, config.num_classes)()
    load_weights(network, config.initial_weights)
    # Frozen parameters stay where they are and add nothing, so they need no exception.
    network.double().requires_grad_(True)
    features, label = config.canary
    with single_thread():
        loss = nn.functional.cross_entropy(
            network(torch.from_numpy(features[np.newaxis].astype(np.float64))),
            torch.tensor([label]),
        )
        parameters = dict(network.named_parameters())
        named = [parameters[name] for name in config.initial_weights]
        gradients = torch.autograd.grad(loss, named)
    joined = np.concatenate([gradient.numpy().ravel() for gradient in gradients])
    return float(loss.detach()), joined
