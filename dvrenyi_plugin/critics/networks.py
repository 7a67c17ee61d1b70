"""Critic networks: standardised inputs, a body, and a smooth clamp that bounds the output."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dvrenyi_plugin._internal.validation import check_samples
from dvrenyi_plugin.critics.standardiser import Standardiser

# Corners of the clamp are rounded over this fraction of its width.
_CLAMP_SOFTNESS = 0.05
# Standardised inputs are moved here when they lie further out.
_FARTHEST = 20.0

Features = Callable[[NDArray[np.float64]], torch.Tensor]


class SkipMlp(nn.Module):
    """ReLU network plus a linear map of its input; it starts as the zero function.

    The linear part carries what most privacy losses are near to (it is exact for Gaussians of one
    variance) and leaves only the rest to the network.
    """

    def __init__(self, num_features: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        sizes = [num_features, *hidden_sizes]
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(*layers, last)
        self.linear = nn.Linear(num_features, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns shape (n, 1)."""
        output: torch.Tensor = self.network(inputs) + self.linear(inputs)
        return output


def plain_mlp(num_features: int, hidden_sizes: Sequence[int]) -> nn.Sequential:
    """Returns the ReLU network of the source, torch's default initial weights."""
    sizes = [num_features, *hidden_sizes]
    layers: list[nn.Module] = []
    for size_in, size_out in itertools.pairwise(sizes):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1))


def identity_features(samples: NDArray[np.float64]) -> torch.Tensor:
    """Returns the samples as they are, float32, shape (n, d)."""
    return torch.from_numpy(samples.astype(np.float32))


def standardised_features(samples: NDArray[np.float64]) -> Features:
    """Returns the map to standardised columns, float32, made for samples of shape (n, d)."""
    # A partial, unlike a closure, can be pickled with the critic.
    return functools.partial(_standardised, Standardiser.of_quartiles(samples, _FARTHEST))


def _standardised(standardise: Standardiser, samples: NDArray[np.float64]) -> torch.Tensor:
    return identity_features(standardise(samples))


class CriticNetwork(nn.Module):
    """Critic T: (n, d) -> (n,): a body, then a smooth clamp to `critic_range`.

    Attributes:
      body: the trainable network, any module that returns shape (n, 1) or (n,), row by row.
      critic_range: (low, high) that every output lies in, or None for an unbounded critic.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.critic_range: tuple[float, float] | None = None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns critic values, shape (n,)."""
        # A user's body may change its input, which is the training data.
        output = self.body(features.clone())
        count = features.shape[0]
        # A single row is often squeezed to shape ().
        if output.shape not in ((count, 1), (count,)) and (count, output.dim()) != (1, 0):
            raise ValueError(
                "base_model must return shape (n, 1) or (n,), got shape"
                f" {tuple(output.shape)} for input of shape {tuple(features.shape)}"
            )
        values: torch.Tensor = output.reshape(features.shape[0])
        return values if self.critic_range is None else _smooth_clamp(values, *self.critic_range)


def _smooth_clamp(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    # Identity inside, so that a critic that is right stays right, unlike a scaled tanh; the
    # gradient does not vanish just outside, unlike a hard clamp.
    sharpness = 1.0 / (_CLAMP_SOFTNESS * (high - low))
    above_low = nn.functional.softplus(values - low, beta=sharpness)
    below_high = nn.functional.softplus(high - low - above_low, beta=sharpness)
    return torch.clamp(high - below_high, low, high)


class FittedCritic:
    """A trained critic as a plain function on numpy arrays.

    Attributes:
      critic_range: (low, high) that every value lies in, or None for an unbounded critic.
      num_features: number of columns d it was trained on.
    """

    def __init__(
        self,
        network: CriticNetwork,
        features: Features,
        num_features: int,
    ) -> None:
        self._network = copy.deepcopy(network).eval()
        self._features = features
        self.critic_range = network.critic_range
        self.num_features = num_features

    def __call__(self, samples: ArrayLike) -> NDArray[np.float64]:
        """Returns critic values, shape (n,), float64.

        Args:
          samples: shape (n, d), or (n,) when d is 1.

        Raises:
          ValueError: wrong shape, or entries that are not finite.
        """
        array = check_samples("samples", samples, min_samples=1)
        if array.shape[1] != self.num_features:
            raise ValueError(
                f"samples must have {self.num_features} columns, got shape {np.shape(samples)}"
            )
        with torch.no_grad():
            output: torch.Tensor = self._network(self._features(array))
        values: NDArray[np.float64] = output.double().numpy()
        # float32 may round the ends of the range outwards
        return values if self.critic_range is None else np.clip(values, *self.critic_range)
