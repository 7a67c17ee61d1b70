"""The same network in Keras: a torch Sequential rebuilt layer by layer, and its weights moved
across exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    check_no_hooks,
    named_leaves,
    shared_parameters,
)

_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Any]] = {
    nn.Tanh: lambda layer: tf.nn.tanh,
    nn.ReLU: lambda layer: tf.nn.relu,
    nn.Sigmoid: lambda layer: tf.nn.sigmoid,
    nn.SiLU: lambda layer: tf.nn.silu,
    nn.ELU: lambda layer: lambda x: tf.where(x > 0, x, layer.alpha * tf.nn.elu(x)),
    nn.LeakyReLU: lambda layer: lambda x: tf.nn.leaky_relu(x, layer.negative_slope),
    nn.GELU: lambda layer: lambda x: tf.nn.gelu(x, approximate=layer.approximate == "tanh"),
}
_SUPPORTED = (
    "Linear, Conv2d, MaxPool2d, AvgPool2d, Flatten, Identity, Tanh, ReLU, Sigmoid, SiLU, ELU,"
    " LeakyReLU and GELU"
)


class KerasNetwork:
    """A Keras model that computes what a torch Sequential computes, from the same named arrays.

    It takes records as torch does, (n, channels, height, width) for images. TensorFlow's CPU
    convolutions only take channels last, so images are transposed where the first such layer needs
    it and transposed back before they are flattened: the coordinates of a flattened record, and
    with them the rows of the next layer's weights, stay in torch's order.

    Attributes:
      model: the tf.keras.Sequential.
      trainable_variables: what training moves, in the order of the layers.
    """

    def __init__(self, network: nn.Sequential, input_shape: tuple[int, ...]) -> None:
        """Builds the Keras model; its weights are set by `set_weights`.

        Raises:
          ValueError: a layer that is not one of the supported kinds or has hooks, or weights that
            two layers share.
        """
        check_no_hooks(network)
        builder = _Builder()
        for name, layer in named_leaves(network):
            builder.add(name, layer)
        for first, other in shared_parameters(network):
            raise ValueError(
                f"model must not share a parameter between layers, but {other!r} is {first!r}; use"
                " OpacusDpSgdMechanism with grad_sample_mode='hooks'"
            )
        self.model = tf.keras.Sequential(builder.layers)
        self.model.build((None, *input_shape))
        self._entries: dict[str, tuple[Any, _Axes]] = {}
        trainable = dict(network.named_parameters())
        for name, layer, kernel_axes in builder.weighted:
            self._entries[f"{name}.weight"] = layer.kernel, kernel_axes
            if layer.use_bias:
                self._entries[f"{name}.bias"] = layer.bias, (0,)
        self.trainable_variables = [
            variable
            for name, (variable, _) in self._entries.items()
            if trainable[name].requires_grad
        ]

    def set_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Writes arrays in torch's names and layouts into the Keras variables."""
        for name, (variable, axes) in self._entries.items():
            variable.assign(np.transpose(np.asarray(weights[name], dtype=np.float32), axes))

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Returns the current weights in torch's names and layouts."""
        return {
            name: np.transpose(variable.numpy(), np.argsort(axes))
            for name, (variable, axes) in self._entries.items()
        }


_Axes = tuple[int, ...]
_LINEAR_AXES: _Axes = (1, 0)  # (out, in) -> (in, out)
_CONV_AXES: _Axes = (2, 3, 1, 0)  # (out, in, height, width) -> (height, width, in, out)


class _Builder:
    """Collects Keras layers, and keeps track of where the channels are."""

    def __init__(self) -> None:
        self.layers: list[Any] = []
        self.weighted: list[tuple[str, Any, _Axes]] = []
        self._seen: set[int] = set()
        self._channels_last = False

    def add(self, name: str, layer: Any) -> None:
        """Adds the twin of one torch layer."""
        if next(iter(layer.parameters()), None) is not None:
            if id(layer) in self._seen:
                raise ValueError(f"model must not use a layer twice, but {name!r} is used before")
            self._seen.add(id(layer))
        # Exact types: a subclass may compute something else.
        kind = type(layer)
        if kind is nn.Linear:
            self._move_channels(last=False)
            dense = tf.keras.layers.Dense(
                layer.out_features, use_bias=layer.bias is not None, dtype="float32"
            )
            self.layers.append(dense)
            self.weighted.append((name, dense, _LINEAR_AXES))
        elif kind is nn.Conv2d:
            self._add_convolution(name, layer)
        elif kind in (nn.MaxPool2d, nn.AvgPool2d):
            self._add_pooling(name, layer)
        elif kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            self._move_channels(last=False)
            self.layers.append(tf.keras.layers.Flatten())
        elif kind in _ACTIVATIONS:
            self.layers.append(tf.keras.layers.Activation(_ACTIVATIONS[kind](layer)))
        elif kind is not nn.Identity:
            raise _unsupported(name, layer)

    def _add_convolution(self, name: str, layer: nn.Conv2d) -> None:
        if layer.padding_mode != "zeros" or layer.groups != 1 or isinstance(layer.padding, str):
            raise _unsupported(name, layer)
        self._move_channels(last=True)
        if any(layer.padding):
            # Keras's own padding "same" pads unevenly where torch pads evenly.
            self.layers.append(tf.keras.layers.ZeroPadding2D(layer.padding))
        convolution = tf.keras.layers.Conv2D(
            layer.out_channels,
            layer.kernel_size,
            strides=layer.stride,
            dilation_rate=layer.dilation,
            use_bias=layer.bias is not None,
            dtype="float32",
        )
        self.layers.append(convolution)
        self.weighted.append((name, convolution, _CONV_AXES))

    def _add_pooling(self, name: str, layer: Any) -> None:
        plain = layer.padding in (0, (0, 0)) and not layer.ceil_mode
        if isinstance(layer, nn.MaxPool2d):
            plain = plain and layer.dilation in (1, (1, 1)) and not layer.return_indices
            kind = tf.keras.layers.MaxPooling2D
        else:
            plain = plain and layer.divisor_override is None
            kind = tf.keras.layers.AveragePooling2D
        if not plain:
            raise _unsupported(name, layer)
        self._move_channels(last=True)
        self.layers.append(kind(layer.kernel_size, strides=layer.stride))

    def _move_channels(self, *, last: bool) -> None:
        if last != self._channels_last:
            self.layers.append(tf.keras.layers.Permute((2, 3, 1) if last else (3, 1, 2)))
            self._channels_last = last


def _unsupported(name: str, layer: Any) -> ValueError:
    return ValueError(
        f"model must have layers that are known in TensorFlow too, but {name!r} is {layer}; known"
        f" are {_SUPPORTED}; EnsembleDpSgdMechanism and OpacusDpSgdMechanism know more"
    )
