"""What every layer of a stack of models is: forward passes, per-example gradient norms, and clipped
sums.

Every tensor of a stack has a leading model axis. A layer never forms the per-example gradients of a
linear
map: the gradient of one example is the outer product of the output gradient g and the input a, so
its squared norm is |g|^2 |a|^2 (Goodfellow 2015), and the sum of the clipped gradients is one
matrix product of the scaled g with a (Li et al. 2022, "ghost clipping"; Bu et al. 2023,
"book-keeping").

No operation mixes models, and on the CPU none runs in a kernel whose rounding depends on how many
models
there are, as long as there are two: a model's result is the same bit for bit in every stack
(tests/test_ensemble_dp_sgd.py).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LayerInput:
    """What enters a layer: one tensor for all models, or one for each.

    Attributes:
      values: shape (n, ...) when shared, else (models, n, ...).
      shared: whether all models see the same values.
      cache: what layers derived from shared values and may use again.
    """

    def __init__(self, values: Tensor, *, shared: bool) -> None:
        self.values = values
        self.shared = shared
        self.cache: dict[str, Tensor] = {}

    def stacked(self, num_models: int) -> Tensor:
        """Returns the values with a model axis, without copying."""
        return self.values.expand(num_models, *self.values.shape) if self.shared else self.values

    def of_model(self, model: int) -> Tensor:
        """Returns one model's values, shape (n, ...)."""
        return self.values if self.shared else self.values[model]


class StackLayer(abc.ABC):
    """A layer with parameters. `weights` are views of shape (models, *parameter shape), in module
    order.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @abc.abstractmethod
    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        """Returns the outputs, shape (models, n, ...), differentiable in unshared inputs."""

    @abc.abstractmethod
    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns each example's squared gradient norm, shape (models, n), and what the
        sum needs.
        """

    @abc.abstractmethod
    def add_clipped_sum(
        self,
        sums: Sequence[Tensor],
        inputs: LayerInput,
        kept: tuple[Tensor, ...],
        factors: Tensor,
    ) -> None:
        """Adds sum_i factors[m, i] gradient_i to `sums`, views shaped like the weights."""

    @abc.abstractmethod
    def floats_per_example(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
        """Returns how many floats this layer keeps for one example of one model beyond
        its output.
        """

    def shared_floats_per_example(self, output_shape: Sequence[int]) -> int:
        """Returns how many floats this layer derives from one shared example and may keep."""
        return 1


def squared_norms_of(values: Tensor) -> Tensor:
    """Returns squared norms along the last axis, without a temporary copy."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.square()
