"""A network as a stack of models: parameter layout, forward pass, clipped gradient sums."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.crop import crop, used_size
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.layer import LayerInput, StackLayer
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.layers import FunctionalLayer, stack_layer
from dvrenyi_plugin.mechanisms.dp_sgd.layer_checks import LayerCase, check_layer, layer_cases
from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    check_no_hooks,
    named_leaves,
    shared_parameters,
)

_ALIGNMENT = (
    16  # floats; 64 bytes, so that every parameter of every model starts at an aligned address
)
# Floats: the widest block that an elementwise CPU kernel takes before it turns to single elements.
_VECTOR = 32


@dataclasses.dataclass(frozen=True)
class ParameterSlot:
    """Where one parameter lies in a model's row of the parameter matrix.

    Attributes:
      name: its name in the nn.Sequential.
      shape: its shape.
      start: first column; a multiple of 16.
    """

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def view(self, rows: Tensor) -> Tensor:
        """Returns the parameter of every row, shape (models, *shape), sharing memory."""
        return rows[:, self.start : self.start + self.size].view(rows.shape[0], *self.shape)


class EnsembleNetwork:
    """The arithmetic of many models of one architecture.

    Attributes:
      slots: the parameters, in the order of the model's `named_parameters`.
      row_size: columns of the parameter matrix: all slots and their padding.
      example_quantum: batches are padded to a multiple of this many examples, so that no kernel
        treats the end of one model's slab differently when another model follows.
      floats_per_example: estimated floats one example of one model needs in a step.
      shared_floats_per_example: floats that the first layer keeps of an example for all models.
    """

    def __init__(self, model: nn.Sequential, input_shape: tuple[int, ...]) -> None:
        named = list(model.named_parameters())
        for first, other in shared_parameters(model):
            raise ValueError(
                f"model must not share a parameter between layers in EnsembleDpSgdMechanism, but"
                f" {other!r} is {first!r}; use OpacusDpSgdMechanism with grad_sample_mode='hooks'"
            )
        frozen = [name for name, parameter in named if not parameter.requires_grad]
        if frozen:
            raise ValueError(
                f"model must train every parameter in EnsembleDpSgdMechanism, got {frozen} frozen;"
                " use OpacusDpSgdMechanism"
            )
        check_no_hooks(model)
        self.slots: list[ParameterSlot] = []
        end = 0
        for name, parameter in named:
            self.slots.append(ParameterSlot(name, tuple(parameter.shape), end))
            end += round_up(parameter.numel(), _ALIGNMENT)
        self.row_size = end
        self._compile(model.eval(), input_shape)
        cases = zip(layer_cases(model, input_shape), self._layers, strict=True)
        for position, (case, layer) in enumerate(cases):
            # The layers with fast clipping are exact by their own formulas.
            if isinstance(layer, FunctionalLayer):
                gradients = functools.partial(_functional_gradients, layer, position > 0)
                check_layer(case, "EnsembleDpSgdMechanism", gradients, norms=False)

    def _compile(self, model: nn.Sequential, input_shape: tuple[int, ...]) -> None:
        """Splits the model into what precedes the first parameter and a list of layers with what
        follows.
        """
        self._prefix: list[nn.Module] = []
        self._layers: list[StackLayer] = []
        self._slices: list[slice] = []
        self._glue: list[list[nn.Module]] = []
        self.floats_per_example = 0
        self.shared_floats_per_example = 0
        quanta = [1]
        values = torch.zeros((1, *input_shape))
        leaves = [leaf for _, leaf in named_leaves(model)]
        self._used_size = used_size(leaves, *input_shape[1:]) if len(input_shape) == 3 else None
        if self._used_size is not None:
            values = crop(values, self._used_size)
        used = 0
        for module in leaves:
            with torch.no_grad():
                outputs = module(values)
            count = sum(1 for _ in module.parameters())
            if count:
                layer = stack_layer(module, values.dim())
                if not self._layers:
                    self.shared_floats_per_example = layer.shared_floats_per_example(
                        outputs.shape[1:]
                    )
                self._layers.append(layer)
                self._slices.append(slice(used, used + count))
                self._glue.append([])
                used += count
                self.floats_per_example += layer.floats_per_example(
                    values.shape[1:], outputs.shape[1:]
                )
                quanta.append(_ALIGNMENT // math.gcd(_ALIGNMENT, outputs.numel()))
            elif self._layers:
                self._glue[-1].append(module)
                for size in (values.numel(), outputs.numel()):
                    quanta.append(_VECTOR // math.gcd(_VECTOR, size))
            else:
                self._prefix.append(module)
            if self._layers:
                self.floats_per_example += 3 * outputs.numel()
            values = outputs
        self.example_quantum = math.lcm(*quanta)

    def prepare(self, features: Tensor) -> Tensor:
        """Returns what enters the first layer with parameters: all models share it, so it is done
        once.
        """
        if self._used_size is not None:
            features = crop(features, self._used_size)
        with torch.no_grad():
            for module in self._prefix:
                features = module(features)
        return features.contiguous()

    def initial_row(self, weights: Mapping[str, NDArray[Any]]) -> Tensor:
        """Returns the parameters of one model as a row of the parameter matrix, padding at zero."""
        row = np.zeros(self.row_size, dtype=np.float32)
        for slot in self.slots:
            row[slot.start : slot.start + slot.size] = np.ravel(weights[slot.name])
        return torch.from_numpy(row)

    def weights(self, rows: Tensor, names: Sequence[str]) -> Tensor:
        """Returns the named parameters of every row, flattened and joined, shape (models, size)."""
        slots = {slot.name: slot for slot in self.slots}
        return torch.cat([slots[name].view(rows).flatten(1) for name in names], dim=1)

    def logits(self, rows: Tensor, inputs: LayerInput) -> Tensor:
        """Returns the logits of prepared inputs, shape (models, n, classes)."""
        with torch.no_grad():
            return self._forward(rows, inputs)[-1]

    def add_clipped_sums(
        self,
        sums: Tensor,
        rows: Tensor,
        inputs: LayerInput,
        one_hot: Tensor,
        mask: Tensor | None,
        clip_norm: float,
    ) -> None:
        """Adds to `sums` each model's sum of clipped per-example gradients of the cross-entropy.

        Args:
          sums: shape (models, row_size), changed in place.
          rows: the models' parameters, shape (models, row_size).
          inputs: prepared examples.
          one_hot: labels, shape (n, classes) or (models, n, classes).
          mask: 1 for examples, 0 for padding, shape (n,) or (models, n); None when nothing is
            padded.
          clip_norm: C; gradients are multiplied by min(1, C / (norm + 1e-6)), Opacus's rule.
        """
        layer_inputs: list[LayerInput] = []
        with torch.enable_grad():
            outputs = self._forward(rows, inputs, layer_inputs)
        logits = outputs.pop()
        with torch.no_grad():
            error = torch.softmax(logits, dim=2) - one_hot
        gradients = torch.autograd.grad(logits, outputs, error)
        with torch.no_grad():
            weights = self._weights(rows)
            layer_squares, kept = zip(
                *(
                    layer.squared_norms(weight, layer_input, gradient)
                    for layer, weight, layer_input, gradient in zip(
                        self._layers, weights, layer_inputs, gradients, strict=True
                    )
                ),
                strict=True,
            )
            squares = layer_squares[0]
            for more in layer_squares[1:]:
                squares = squares + more
            factors = (clip_norm / (squares.sqrt() + 1e-6)).clamp_(max=1.0)
            if mask is not None:
                factors = factors * mask
            for layer, layer_sums, layer_input, layer_kept in zip(
                self._layers, self._weights(sums), layer_inputs, kept, strict=True
            ):
                layer.add_clipped_sum(layer_sums, layer_input, layer_kept, factors)

    def _weights(self, rows: Tensor) -> list[list[Tensor]]:
        return [[slot.view(rows) for slot in self.slots[part]] for part in self._slices]

    def _forward(
        self, rows: Tensor, inputs: LayerInput, layer_inputs: list[LayerInput] | None = None
    ) -> list[Tensor]:
        """Returns every layer's outputs, then the logits; fills `layer_inputs` with detached
        inputs.

        The first layer's output starts the graph: nothing upstream of it has a gradient to take.
        """
        outputs: list[Tensor] = []
        current = inputs
        for layer, weights, glue in zip(self._layers, self._weights(rows), self._glue, strict=True):
            values = layer.forward(weights, current)
            if not outputs and layer_inputs is not None:
                values.requires_grad_()
            if layer_inputs is not None:
                layer_inputs.append(
                    current if not outputs else LayerInput(current.values.detach(), shared=False)
                )
            outputs.append(values)
            values = _apply(glue, values)
            current = LayerInput(values, shared=False)
        return [*outputs, current.values]


def _apply(modules: Sequence[Callable[[Tensor], Tensor]], values: Tensor) -> Tensor:
    """Applies modules without parameters, which see models as more examples."""
    if not modules:
        return values
    num_models, num_examples = values.shape[:2]
    values = values.flatten(0, 1)
    for module in modules:
        values = module(values)
    return values.view(num_models, num_examples, *values.shape[1:])


def _functional_gradients(
    layer: FunctionalLayer, passes_back: bool, case: LayerCase
) -> list[Tensor]:
    """Returns what a layer takes for the gradients; `passes_back` if the layers before it need
    theirs, too.
    """
    weights = [parameter.detach().unsqueeze(0) for parameter in case.parameters]
    inputs = LayerInput(case.inputs.clone().requires_grad_(passes_back), shared=True)
    outputs = layer.forward(weights, inputs)
    if passes_back:
        torch.autograd.grad(outputs, inputs.values, case.cotangent.unsqueeze(0))
    with torch.no_grad():
        kept = layer.squared_norms(weights, inputs, case.cotangent.unsqueeze(0))[1]
    return list(torch.split(kept[0], [weight[0].numel() for weight in weights], dim=1))


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
