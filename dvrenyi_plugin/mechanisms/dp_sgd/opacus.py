"""DP-SGD as Opacus runs it: its per-example gradients, its optimizer, its noise, its accountant."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dvrenyi_plugin._internal.limits import Count, OneOf
from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin._internal.validation import check_delta
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.network import EnsembleNetwork
from dvrenyi_plugin.mechanisms.dp_sgd.layer_checks import LayerCase, check_layer, layer_cases
from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    load_weights,
    model_factory,
    shared_parameters,
    weights_of,
)
from dvrenyi_plugin.mechanisms.random_streams import torch_generator

try:
    from opacus.accountants import RDPAccountant
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
except ImportError as error:
    raise ImportError("OpacusDpSgdMechanism needs Opacus: pip install 'opacus>=1.5'") from error

# Opacus adds its noise with standard deviation noise_multiplier * max_grad_norm, so "no clipping"
# must be a finite norm; no float32 gradient of a sane network comes near this one.
_NEVER_CLIPS = 1e12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OpacusDpSgdMechanismConfig(DpSgdConfig):
    """Settings of `DpSgdConfig`, and:

    Attributes:
      grad_sample_mode: "hooks" (per-example gradients) or "ghost" (norms first, then a second
        backward pass).
      max_physical_batch_size: most records at once, >= 1; larger batches are accumulated, exactly,
        before the noise is added once.
    """

    grad_sample_mode: Annotated[str, OneOf(("hooks", "ghost"))] = "hooks"
    max_physical_batch_size: Count = 1000


class OpacusDpSgdMechanism(DpSgdMechanism):
    """Trains one model after another with Opacus, on one CPU thread in float32, and observes the
    canary.
    """

    config: OpacusDpSgdMechanismConfig

    def __init__(self, config: OpacusDpSgdMechanismConfig) -> None:
        super().__init__(config)
        self._build = model_factory(config.model, config.input_shape, config.num_classes)
        model = self._build()
        load_weights(model, config.initial_weights)
        try:
            _check_layers(model, config.input_shape, config.grad_sample_mode)
        except ValueError as error:
            raise ValueError(f"{error}{self._who_can()}") from None

    def _who_can(self) -> str:
        """Returns what to use for a network that cannot be trained as the config asks, after a
        semicolon; else nothing.
        """
        with contextlib.suppress(ValueError):
            _check_layers(self._build(), self.config.input_shape, "hooks")
            return "; use grad_sample_mode='hooks'"
        with contextlib.suppress(ValueError):
            EnsembleNetwork(self._build(), self.config.input_shape)
            return "; use EnsembleDpSgdMechanism"
        return ""

    def accountant_epsilon(self, delta: float) -> float:
        """Returns the epsilon at this delta that Opacus's own accountant gives for the claimed
        noise.

        It is computed from Rényi DP, hence never below the exact one of a full-batch claim.
        """
        config = self.config
        check_delta(delta)
        if config.num_steps == 0:
            return 0.0
        accountant = RDPAccountant()
        accountant.history = [(config.noise_multiplier, config.sample_rate, config.num_steps)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Optimal order is the")
            return max(0.0, float(accountant.get_epsilon(delta)))

    def _train(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        streams: Sequence[ModelStreams],
    ) -> NDArray[Any]:
        inputs, targets = torch.from_numpy(features), torch.from_numpy(labels)
        canary = torch.from_numpy(self.config.canary[0].copy()).unsqueeze(0)
        trainer = _Trainer(self.config, self._build())
        with single_thread():
            results = [trainer.train(inputs, targets, stream, canary) for stream in streams]
        return np.stack(results)


def _check_layers(model: nn.Sequential, input_shape: tuple[int, ...], mode: str) -> None:
    """Raises ValueError, naming the layer, if Opacus cannot train a network in this mode. The
    network is used up.
    """
    if mode == "ghost":
        for first, other in shared_parameters(model):
            raise ValueError(
                "model must not share a parameter between layers with grad_sample_mode='ghost', but"
                f" {other!r} is {first!r}"
            )
    for case in layer_cases(model, input_shape):
        check_layer(
            case,
            f"OpacusDpSgdMechanism with grad_sample_mode={mode!r}",
            functools.partial(_opacus_gradients, mode=mode),
            norms=mode == "ghost",
        )


def _opacus_gradients(case: LayerCase, mode: str) -> list[torch.Tensor]:
    """Returns what Opacus takes for a layer's per-example gradients, or with "ghost"
    their norms.
    """
    wrapped = _wrap(case.layer, mode, clip_norm=1.0)
    (wrapped(case.inputs) * case.cotangent).sum().backward()
    attribute = "_norm_sample" if mode == "ghost" else "grad_sample"
    return [getattr(parameter, attribute) for parameter in case.parameters]


def _wrap(model: nn.Module, mode: str, clip_norm: float) -> Any:
    if mode == "ghost":
        return GradSampleModuleFastGradientClipping(
            model, loss_reduction="sum", max_grad_norm=clip_norm, use_ghost_clipping=True
        )
    return GradSampleModule(model, loss_reduction="sum")


class _Trainer:
    """One Opacus-wrapped network that is set back to the initial weights for every model."""

    def __init__(self, config: OpacusDpSgdMechanismConfig, model: nn.Sequential) -> None:
        self._config = config
        self._ghost = config.grad_sample_mode == "ghost"
        self._clip_norm = min(config.effective_clip_norm, _NEVER_CLIPS)
        self._criterion = nn.CrossEntropyLoss(reduction="sum")
        self._model = model
        self._wrapped = _wrap(model, config.grad_sample_mode, self._clip_norm)

    def train(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        streams: ModelStreams,
        canary: torch.Tensor,
    ) -> NDArray[Any]:
        """Returns one newly trained model's result: the canary's logits, or the weights."""
        config = self._config
        load_weights(self._model, config.initial_weights)
        optimizer = self._optimizer(streams)
        sampling = streams.sampling_generator()
        for step in range(config.num_steps):
            batch = _poisson_batch(sampling, inputs.shape[0], config.sample_rate)
            batch_size = inputs.shape[0] if batch is None else len(batch)
            optimizer.noise_multiplier = config.noise_std(step) / self._clip_norm
            optimizer.param_groups[0]["lr"] = config.learning_rate / config.denominator(batch_size)
            optimizer.zero_grad(set_to_none=True)
            if batch_size == 0:
                self._zero_gradients(optimizer)
                optimizer.step()
                continue
            self._step(optimizer, inputs, targets, batch)
        optimizer.zero_grad(set_to_none=True)
        if config.observes_weights:
            weights = weights_of(self._model)
            return np.concatenate([weights[name].ravel() for name in config.initial_weights])
        with torch.no_grad():
            logits: NDArray[Any] = self._model(canary)[0].numpy()
        return logits

    def _optimizer(self, streams: ModelStreams) -> Any:
        optimizer_class = DPOptimizerFastGradientClipping if self._ghost else DPOptimizer
        trainable = [p for p in self._model.parameters() if p.requires_grad]
        return optimizer_class(
            torch.optim.SGD(trainable, lr=self._config.learning_rate),
            noise_multiplier=self._config.noise_multiplier,
            max_grad_norm=self._clip_norm,
            expected_batch_size=None,
            loss_reduction="sum",
            generator=torch_generator(streams.noise),
        )

    def _step(
        self,
        optimizer: Any,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        batch: torch.Tensor | None,
    ) -> None:
        """Makes one logical step: accumulates over physical batches; Opacus adds noise at the last
        one.
        """
        if batch is not None:
            inputs, targets = inputs[batch], targets[batch]
        size = self._config.max_physical_batch_size
        num_chunks = math.ceil(inputs.shape[0] / size)
        for chunk, (x, y) in enumerate(
            zip(torch.split(inputs, size), torch.split(targets, size), strict=True), start=1
        ):
            optimizer.signal_skip_step(do_skip=chunk < num_chunks)
            if self._ghost:
                loss = DPLossFastGradientClipping(
                    self._wrapped, optimizer, self._criterion, loss_reduction="sum"
                )
            else:
                loss = self._criterion
            with warnings.catch_warnings():
                # Inputs are data and need no gradient: torch says so of every first layer's hook.
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                loss(self._wrapped(x), y).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _zero_gradients(self, optimizer: Any) -> None:
        """An empty batch adds up to zero; Opacus then adds its noise as in any other step."""
        for parameter in optimizer.params:
            if self._ghost:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))


def _poisson_batch(
    generator: np.random.Generator, num_records: int, sample_rate: float
) -> torch.Tensor | None:
    """Returns the drawn records' positions, or None for all of them."""
    if sample_rate == 1.0:
        return None
    return torch.from_numpy(np.flatnonzero(generator.random(num_records) < sample_rate))
