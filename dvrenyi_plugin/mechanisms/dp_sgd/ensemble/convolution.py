"""Convolutions in a stack of models: a linear map with several positions per example.

Either the products of the patches that two positions see give the norms (ghost norms), or the few
weights' gradients are formed; the cheaper of the two ways is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.layer import LayerInput, StackLayer, squared_norms_of

# Floats moved to and from memory cost about this many multiply-adds; decides between the two ways
# of a convolution, and a factor of 3 either way changes no choice for the networks of
# `build_model`.
_MEMORY_COST = 24.0
# Examples whose patches are made at a time where patches are not kept.
_EXAMPLES_IN_CACHE = 16


class Conv2dLayer(StackLayer):
    """nn.Conv2d without groups, with zero padding: a linear map of patches of the input.

    Channels come last in memory throughout (shapes stay torch's): patches are then copied in long
    runs, and pooling works on whole vectors, which together save half of a small network's step on
    a CPU.
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
            norms = squared_norms_of(kept[-1])
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
            norms = norms + squared_norms_of(kept[-1])
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
        """Fills `products`, shape (n, channels, fan_in), with each example's gradient of the
        weights.

        Patches that are not kept are made for a few examples at a time and used while they are in
        the cache.
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
        """Returns what each position sees, (n, out height, out width, height, width, channels), as
        a view.
        """
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
