"""Layers for a stack of models: linear, norms, and anything else by torch.func."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.convolution import Conv2dLayer
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.layer import LayerInput, StackLayer, squared_norms_of

_LOGGER = logging.getLogger(__name__)


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
            inputs.cache["squares"] = squared_norms_of(inputs.values) + (len(weights) - 1)
        return inputs.cache["squares"] * squared_norms_of(gradients), (gradients,)

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


class NormLayer(StackLayer):
    """nn.GroupNorm and nn.LayerNorm with scale (and shift): the few gradients are formed
    directly.
    """

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
        squares = squared_norms_of(kept[0])
        for part in kept[1:]:
            squares = squares + squared_norms_of(part)
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
        """Returns one example's gradient, shape (n, parameters): the sum over what shares a
        parameter.
        """
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
            "%s has no fast clipping in EnsembleDpSgdMechanism: its per-example gradients are"
            " formed by torch.func",
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
            norms.append(squared_norms_of(flat))
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
