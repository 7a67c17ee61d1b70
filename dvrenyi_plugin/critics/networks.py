"""Critic networks: standardised inputs, a body, and a smooth clamp that bounds the output."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dvrenyi_plugin._internal.validation import check_samples

# Corners of the clamp are rounded over this fraction of its width.
_CLAMP_SOFTNESS = 0.05
_SMALLEST_SCALE = 1e-12
_FARTHEST = 20.0
_FARTHEST_UNIT = 1e6


class SkipMlp(nn.Module):
    """ReLU network plus a linear map of its input; it starts as the zero function.

    The linear part carries what most privacy losses are near to (it is exact for Gaussians of one variance)
    and leaves only the rest to the network.
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


class Standardiser:
    """Centres and scales every column by robust statistics of the fitting samples, in float64.

    Median and interquartile range, so that one huge outlier cannot flatten the rest; the standard deviation
    where half of the values coincide. What lies further out than 20 scales is moved there: a critic of the
    clipped value is still one fixed critic.
    """

    def __init__(self, samples: NDArray[np.float64]) -> None:
        largest = np.abs(samples).max(axis=0)
        # Divided by a value a million times the others, these would be told apart no longer.
        with np.errstate(over="ignore", invalid="ignore"):
            middle = np.abs(np.quantile(samples, (0.25, 0.5, 0.75), axis=0)).max(axis=0)
            largest = np.where(middle > 0.0, np.minimum(largest, _FARTHEST_UNIT * middle), largest)
        largest = np.maximum(largest, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            # Squares of the raw values may overflow.
            units = np.clip(samples / largest, -_FARTHEST_UNIT, _FARTHEST_UNIT)
        lower, self._centre, upper = np.quantile(units, (0.25, 0.5, 0.75), axis=0)
        scale = (upper - lower) / 1.349  # the interquartile range of N(0, 1)
        scale = np.where(scale > _SMALLEST_SCALE, scale, units.std(axis=0))
        self._scale = np.where(scale > _SMALLEST_SCALE, scale, 1.0)
        self._largest = largest

    def __call__(self, samples: NDArray[np.float64]) -> torch.Tensor:
        """Returns float32 features, shape (n, d)."""
        with np.errstate(over="ignore"):
            units = (samples / self._largest - self._centre) / self._scale
        return torch.from_numpy(np.clip(units, -_FARTHEST, _FARTHEST).astype(np.float32))


def identity_features(samples: NDArray[np.float64]) -> torch.Tensor:
    """Returns the samples as they are, float32, shape (n, d)."""
    return torch.from_numpy(samples.astype(np.float32))


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
    # Identity inside, so that a critic that is right stays right, unlike a scaled tanh; the gradient does not
    # vanish just outside, unlike a hard clamp.
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
        features: Callable[[NDArray[np.float64]], torch.Tensor],
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
