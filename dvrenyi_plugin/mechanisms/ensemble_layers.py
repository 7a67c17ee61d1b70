"""Layers for a stack of models: forward passes, per-example gradient norms, and clipped sums.

Every tensor of a stack has a leading model axis. A layer never forms the per-example gradients of a linear
map: the gradient of one example is the outer product of the output gradient g and the input a, so its squared
norm is |g|^2 |a|^2 (Goodfellow 2015), and the sum of the clipped gradients is one matrix product of the
scaled g with a (Li et al. 2022, "ghost clipping"; Bu et al. 2023, "book-keeping"). A convolution is the same
with several positions per example; there the cheaper of the two ways is taken.

No operation mixes models, and on the CPU none runs in a kernel whose rounding depends on how many models
there are, as long as there are two: a model's result is the same bit for bit in every stack
(tests/test_ensemble_dp_sgd.py).
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

_LOGGER = logging.getLogger(__name__)

# Floats moved to and from memory cost about this many multiply-adds; decides between the two ways of a
# convolution, and a factor of 3 either way changes no choice for the networks of `build_model`.
_MEMORY_COST = 24.0
# Examples whose patches are made at a time where patches are not kept.
_EXAMPLES_IN_CACHE = 16


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
    """A layer with parameters. `weights` are views of shape (models, *parameter shape), in module order."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @abc.abstractmethod
    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        """Returns the outputs, shape (models, n, ...), differentiable in unshared inputs."""

    @abc.abstractmethod
    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns each example's squared gradient norm, shape (models, n), and what the sum needs."""

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
        """Returns how many floats this layer keeps for one example of one model beyond its output."""

    def shared_floats_per_example(self, output_shape: Sequence[int]) -> int:
        """Returns how many floats this layer derives from one shared example and may keep."""
        return 1


class LinearLayer(StackLayer):
    """nn.Linear on inputs of shape (n, features)."""

    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        weight = weights[0].transpose(1, 2)
        values = inputs.stacked(weight.shape[0])
        if len(weights) == 1:
            return torch.bmm(values, weight)
        return torch.baddbmm(weights[1].unsqueeze(1), values, weight)

    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if "squares" not in inputs.cache:
            inputs.cache["squares"] = _squares(inputs.values) + (len(weights) - 1)
        return inputs.cache["squares"] * _squares(gradients), (gradients,)

    def add_clipped_sum(
        self,
        sums: Sequence[Tensor],
        inputs: LayerInput,
        kept: tuple[Tensor, ...],
        factors: Tensor,
    ) -> None:
        scaled = kept[0] * factors.unsqueeze(2)
        num_models, num_examples = factors.shape
        sums[0].baddbmm_(scaled.transpose(1, 2), inputs.stacked(num_models))
        if len(sums) == 2:
            ones = scaled.new_ones((num_models, 1, num_examples))
            sums[1].unsqueeze(1).baddbmm_(ones, scaled)

    def floats_per_example(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
        return 0


class Conv2dLayer(StackLayer):
    """nn.Conv2d without groups, with zero padding: a linear map of patches of the input.

    Channels come last in memory throughout (shapes stay torch's): patches are then copied in long runs, and
    pooling works on whole vectors, which together save half of a small network's step on a CPU.
    """

    module: nn.Conv2d

    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        conv = self.module
        num_models = weights[0].shape[0]
        if inputs.shared:
            return self._forward_patches(weights, inputs)
        biases = weights[1].unbind() if len(weights) == 2 else [None] * num_models
        outputs = [
            F.conv2d(
                values.contiguous(memory_format=torch.channels_last),
                weight,
                bias,
                conv.stride,
                conv.padding,
                conv.dilation,
            ).permute(0, 2, 3, 1)
            for values, weight, bias in zip(
                inputs.values.unbind(), weights[0].unbind(), biases, strict=True
            )
        ]
        stack = outputs[0].unsqueeze(0) if num_models == 1 else torch.stack(outputs)
        return stack.permute(0, 1, 4, 2, 3)

    def _forward_patches(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        """The patches of shared inputs exist already: one matrix product for each model."""
        patches = self._patches(inputs, 0)
        num_models, channels = weights[0].shape[:2]
        matrix = weights[0].permute(0, 3, 4, 2, 1).reshape(num_models, -1, channels)
        values = patches.flatten(0, 1).expand(num_models, -1, -1)
        if len(weights) == 2:
            outputs = torch.baddbmm(weights[1].unsqueeze(1), values, matrix)
        else:
            outputs = torch.bmm(values, matrix)
        height, width = self._output_size(inputs.values)
        shape = (num_models, patches.shape[0], height, width, channels)
        return outputs.view(shape).permute(0, 1, 4, 2, 3)

    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        num_models, _, channels = gradients.shape[:3]
        # (models, n, positions, channels)
        flat = gradients.permute(0, 1, 3, 4, 2).flatten(2, 3).contiguous()
        fan_in = weights[0][0, 0].numel()
        direct = not self._ghost_is_cheaper(channels, fan_in, flat.shape[2])
        kept = [flat]
        if direct:
            products = flat.new_empty((num_models, flat.shape[1], channels, fan_in))
            for model in range(num_models):
                self._multiply_patches(products[model], flat[model], inputs, model)
            kept.append(products.flatten(2))
            norms = _squares(kept[-1])
        else:
            norms = torch.stack(
                [
                    self._ghost_norms(flat[model], self._patches(inputs, model))
                    for model in range(num_models)
                ]
            )
        if len(weights) == 2:
            ones = flat.new_ones((flat.shape[1], 1, flat.shape[2]))
            kept.append(torch.stack([torch.bmm(ones, one).squeeze(1) for one in flat.unbind()]))
            norms = norms + _squares(kept[-1])
        return norms, tuple(kept)

    @staticmethod
    def _ghost_norms(gradients: Tensor, patches: Tensor) -> Tensor:
        inner = torch.bmm(patches, patches.transpose(1, 2))
        inner *= torch.bmm(gradients, gradients.transpose(1, 2))
        return inner.flatten(1).sum(1).clamp_(min=0.0)

    def add_clipped_sum(
        self,
        sums: Sequence[Tensor],
        inputs: LayerInput,
        kept: tuple[Tensor, ...],
        factors: Tensor,
    ) -> None:
        num_models = factors.shape[0]
        flat, direct = kept[0], len(kept) - 1 == len(sums)
        for model in range(num_models):
            weight_sum = sums[0][model]
            channels, depth, height, width = weight_sum.shape
            if direct:
                total = torch.mv(kept[1][model].t(), factors[model])
            else:
                patches = self._patches(inputs, model).flatten(0, 1)
                scaled = (flat[model] * factors[model][:, None, None]).flatten(0, 1)
                total = torch.mm(scaled.t(), patches)
            weight_sum += total.view(channels, height, width, depth).permute(0, 3, 1, 2)
            if len(sums) == 2:
                sums[1][model].addmv_(kept[-1][model].t(), factors[model])

    def floats_per_example(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
        channels, positions = output_shape[0], output_shape[1] * output_shape[2]
        fan_in = self.module.weight[0].numel()
        if self._ghost_is_cheaper(channels, fan_in, positions):
            return fan_in * positions + 2 * positions * positions
        return channels * fan_in

    def shared_floats_per_example(self, output_shape: Sequence[int]) -> int:
        return self.module.weight[0].numel() * output_shape[1] * output_shape[2]

    @staticmethod
    def _ghost_is_cheaper(channels: int, fan_in: int, positions: int) -> bool:
        return positions**2 * (channels + fan_in) < _MEMORY_COST * channels * fan_in

    def _output_size(self, values: Tensor) -> tuple[int, int]:
        conv = self.module
        padding = conv.padding
        assert not isinstance(padding, str)
        height, width = (
            (values.shape[axis - 2] + 2 * padding[axis] - conv.dilation[axis] * (kernel - 1) - 1)
            // conv.stride[axis]
            + 1
            for axis, kernel in enumerate(conv.kernel_size)
        )
        return height, width

    def _multiply_patches(
        self, products: Tensor, gradients: Tensor, inputs: LayerInput, model: int
    ) -> None:
        """Fills `products`, shape (n, channels, fan_in), with each example's gradient of the weights.

        Patches that are not kept are made for a few examples at a time and used while they are in the cache.
        """
        if inputs.shared:
            torch.bmm(gradients.transpose(1, 2), self._patches(inputs, model), out=products)
            return
        windows = self._windows(inputs.of_model(model))
        patches = products.new_empty((_EXAMPLES_IN_CACHE, *windows.shape[1:]))
        for start in range(0, len(products), _EXAMPLES_IN_CACHE):
            part = slice(start, min(start + _EXAMPLES_IN_CACHE, len(products)))
            block = patches[: part.stop - start].copy_(windows[part])
            block = block.view(len(block), gradients.shape[1], -1)
            torch.bmm(gradients[part].transpose(1, 2), block, out=products[part])

    def _patches(self, inputs: LayerInput, model: int) -> Tensor:
        """Returns the patches, shape (n, positions, fan_in); kept with the input."""
        key = "patches" if inputs.shared else f"patches {model}"
        if key not in inputs.cache:
            windows = self._windows(inputs.of_model(model))
            positions = windows.shape[1] * windows.shape[2]
            inputs.cache[key] = windows.reshape(len(windows), positions, -1)
        return inputs.cache[key]

    def _windows(self, values: Tensor) -> Tensor:
        """Returns what each position sees, (n, out height, out width, height, width, channels), as a view."""
        conv = self.module
        padding = conv.padding
        assert not isinstance(padding, str)
        height, width = self._output_size(values)
        values = values.permute(0, 2, 3, 1)
        if any(padding):
            values = F.pad(values, (0, 0, padding[1], padding[1], padding[0], padding[0]))
        example, row, column, channel = values.stride()
        return values.as_strided(
            (len(values), height, width, *conv.kernel_size, values.shape[3]),
            (
                example,
                row * conv.stride[0],
                column * conv.stride[1],
                row * conv.dilation[0],
                column * conv.dilation[1],
                channel,
            ),
        )


class NormLayer(StackLayer):
    """nn.GroupNorm and nn.LayerNorm with scale (and shift): the few gradients are formed directly."""

    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        normalised = self._normalised(
            inputs.values if inputs.shared else inputs.values.flatten(0, 1)
        )
        values = normalised if inputs.shared else normalised.view(inputs.values.shape)
        outputs = values * self._broadcast(weights[0], values.dim() - (not inputs.shared))
        if len(weights) == 2:
            outputs = outputs + self._broadcast(weights[1], outputs.dim() - 1)
        return outputs

    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        num_models = gradients.shape[0]
        stacked = inputs.stacked(num_models)
        per_example = []
        for model in range(num_models):
            gradient = gradients[model]
            products = [gradient * self._normalised(stacked[model]), gradient][: len(weights)]
            per_example.append([self._over_positions(product) for product in products])
        kept = tuple(
            torch.stack([models[part] for models in per_example]) for part in range(len(weights))
        )
        squares = _squares(kept[0])
        for part in kept[1:]:
            squares = squares + _squares(part)
        return squares, kept

    def add_clipped_sum(
        self,
        sums: Sequence[Tensor],
        inputs: LayerInput,
        kept: tuple[Tensor, ...],
        factors: Tensor,
    ) -> None:
        for total, part in zip(sums, kept, strict=True):
            for model in range(factors.shape[0]):
                total[model].view(-1).addmv_(part[model].t(), factors[model])

    def floats_per_example(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
        count = 1
        for side in input_shape:
            count *= side
        return 4 * count

    def _normalised(self, values: Tensor) -> Tensor:
        module = self.module
        if isinstance(module, nn.GroupNorm):
            return F.group_norm(values, module.num_groups, eps=module.eps)
        assert isinstance(module, nn.LayerNorm)
        return F.layer_norm(values, module.normalized_shape, eps=module.eps)

    def _broadcast(self, parameter: Tensor, example_rank: int) -> Tensor:
        """Returns (models, *parameter) with ones inserted, to multiply (models, n, ...)."""
        num_models = parameter.shape[0]
        if isinstance(self.module, nn.GroupNorm):
            trailing = (1,) * (example_rank - 2)
            return parameter.view(num_models, 1, -1, *trailing)
        leading = (1,) * (example_rank - (parameter.dim() - 1))
        return parameter.view(num_models, *leading, *parameter.shape[1:])

    def _over_positions(self, products: Tensor) -> Tensor:
        """Returns one example's gradient, shape (n, parameters): the sum over what shares a parameter."""
        if isinstance(self.module, nn.GroupNorm):
            return products.flatten(2).sum(2) if products.dim() > 2 else products
        assert isinstance(self.module, nn.LayerNorm)
        size = self.module.weight.numel()
        return products.reshape(products.shape[0], -1, size).sum(1)


class FunctionalLayer(StackLayer):
    """Any other module with parameters, by torch.func: per-example gradients in full."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._names = [name for name, _ in module.named_parameters()]
        _LOGGER.warning(
            "%s has no fast clipping in EnsembleDpSgdMechanism: its per-example gradients are formed by"
            " torch.func",
            type(module).__name__,
        )

    def forward(self, weights: Sequence[Tensor], inputs: LayerInput) -> Tensor:
        num_models = weights[0].shape[0]
        values = [inputs.values] * num_models if inputs.shared else inputs.values.unbind()
        return torch.stack(
            [
                self._call([weight[model] for weight in weights], value)
                for model, value in enumerate(values)
            ]
        )

    def squared_norms(
        self, weights: Sequence[Tensor], inputs: LayerInput, gradients: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        def example(parameters: list[Tensor], value: Tensor, gradient: Tensor) -> list[Tensor]:
            pull_back = torch.func.vjp(
                lambda p: self._call(p, value.unsqueeze(0)).squeeze(0), parameters
            )[1]
            (result,) = pull_back(gradient)
            return list(result)

        norms, kept = [], []
        for model in range(gradients.shape[0]):
            parts = torch.func.vmap(example, in_dims=(None, 0, 0))(
                [weight[model] for weight in weights], inputs.of_model(model), gradients[model]
            )
            flat = torch.cat([part.flatten(1) for part in parts], dim=1)
            norms.append(_squares(flat))
            kept.append(flat)
        return torch.stack(norms), tuple(kept)

    def add_clipped_sum(
        self,
        sums: Sequence[Tensor],
        inputs: LayerInput,
        kept: tuple[Tensor, ...],
        factors: Tensor,
    ) -> None:
        sizes = [total[0].numel() for total in sums]
        for model, flat in enumerate(kept):
            for total, part in zip(sums, torch.split(flat, sizes, dim=1), strict=True):
                total[model].view(-1).addmv_(part.t(), factors[model])

    def floats_per_example(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
        return 3 * sum(parameter.numel() for parameter in self.module.parameters())

    def _call(self, parameters: list[Tensor], values: Tensor) -> Tensor:
        named = dict(zip(self._names, parameters, strict=True))
        outputs: Tensor = torch.func.functional_call(self.module, named, (values,))
        return outputs


def stack_layer(module: nn.Module, input_rank: int) -> StackLayer:
    """Returns the layer that trains `module` in a stack; `input_rank` counts the example axis.

    Types are compared exactly: a subclass may compute something else.
    """
    if type(module) is nn.Linear and input_rank == 2:
        return LinearLayer(module)
    if (
        type(module) is nn.Conv2d
        and module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    ):
        return Conv2dLayer(module)
    if type(module) in (nn.GroupNorm, nn.LayerNorm):
        return NormLayer(module)
    return FunctionalLayer(module)


def _squares(values: Tensor) -> Tensor:
    """Returns squared norms along the last axis, without a temporary copy."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.square()
