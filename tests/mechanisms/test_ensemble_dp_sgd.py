"""The many-model engine against Opacus and against single examples, and its independence of
grouping.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.ensemble import layers as ensemble_layers
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.network import EnsembleNetwork
from dvrenyi_plugin.mechanisms.dp_sgd.networks import random_weights, weights_of
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)

IMAGE = (2, 9, 8)
NUM_CLASSES = 5


class ResidualBlock(nn.Module):
    """Something no rule for single layers covers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + torch.tanh(self.inner(values))


def head(features: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, NUM_CLASSES)]


FAST_MODELS: dict[str, Callable[[], nn.Sequential]] = {
    "linear without bias": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(144, 7, bias=False),
        nn.ReLU(),
        nn.Linear(7, NUM_CLASSES, bias=False),
    ),
    "activations": lambda: nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(144, 11), nn.Sigmoid(), nn.Linear(11, 9), nn.GELU()),
        *(nn.Linear(9, 13), nn.SiLU(), nn.Linear(13, 5), nn.ELU(), nn.Linear(5, NUM_CLASSES)),
    ),
    "activations in place": lambda: nn.Sequential(
        *(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 11), nn.ReLU(inplace=True)),
        *(nn.Linear(11, 9), nn.Hardtanh(inplace=True), nn.Linear(9, NUM_CLASSES)),
    ),
    "convolution, stride, padding, dilation": lambda: nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), bias=False),
        nn.Tanh(),
        nn.Conv2d(3, 4, 2, padding=1, dilation=(2, 3)),
        nn.LeakyReLU(),
        *head(4 * 5 * 10),
    ),
    "one output channel": lambda: nn.Sequential(
        *(nn.Conv2d(2, 1, 3, stride=(3, 1), padding=(2, 1), dilation=2), nn.SiLU(), *head(3 * 6)),
    ),
    "convolution with few positions": lambda: nn.Sequential(
        nn.Conv2d(2, 30, (8, 7), stride=2, padding=1), nn.Tanh(), nn.Conv2d(30, 24, 2), *head(24)
    ),
    "first convolution after pooling": lambda: nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d((2, 1)), *head(3 * 1 * 3)
    ),
    "group norm": lambda: nn.Sequential(
        nn.GroupNorm(2, 2),
        *(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.Tanh(), nn.MaxPool2d(2), *head(6 * 3 * 3)),
    ),
    "layer norm": lambda: nn.Sequential(
        nn.LayerNorm((9, 8)),
        *(nn.Conv2d(2, 3, 3), nn.LayerNorm([3, 7, 6]), nn.Flatten()),
        *(nn.Linear(126, 10), nn.LayerNorm(10), nn.ReLU(), nn.Linear(10, NUM_CLASSES)),
    ),
    "layer norm without bias": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(144, 10), nn.LayerNorm(10, bias=False), nn.Linear(10, NUM_CLASSES)
    ),
    "norms without parameters, nested": lambda: nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(144, 12), nn.LayerNorm(12, elementwise_affine=False)),
        nn.Sequential(nn.Softplus(), nn.Sequential(nn.Linear(12, NUM_CLASSES))),
    ),
}
# Opacus 1.6 raises AttributeError on a LayerNorm without bias.
OPACUS_MODELS = [name for name in FAST_MODELS if name != "layer norm without bias"]
FALLBACK_MODELS: dict[str, Callable[[], nn.Sequential]] = {
    "linear on sequences": lambda: nn.Sequential(
        nn.Flatten(1, 2), nn.Linear(8, 3), nn.Tanh(), *head(18 * 3)
    ),
    "convolution in groups": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), *head(4 * 7 * 6)
    ),
    "convolution with named padding": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, padding="same"), nn.Tanh(), *head(3 * 72)
    ),
    # Where a convolution of one channel puts its output in memory is seen by what comes next.
    "one channel, then named padding": lambda: nn.Sequential(
        *(nn.Flatten(1, 2), nn.Unflatten(1, (1, 18)), nn.Conv2d(1, 3, 2), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(3, 10, (1, 3), padding="valid"), *head(10 * 8)),
    ),
    "one-dimensional convolution": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(2, 3, 5, stride=3), nn.ReLU(), *head(3 * 23)
    ),
    "residual block": lambda: nn.Sequential(nn.AvgPool2d(2), ResidualBlock(), *head(2 * 4 * 4)),
}
MODELS = {**FAST_MODELS, **FALLBACK_MODELS}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def settings(model: str, **changes: Any) -> dict[str, Any]:
    build = MODELS[model]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        weights = weights_of(build())
    return {
        "model": build,
        "initial_weights": weights,
        "canary": (np.full(IMAGE, 0.3), 3),
        "num_classes": NUM_CLASSES,
        "noise_multiplier": 1.0,
        "num_steps": 2,
        "learning_rate": 0.05,
        "observe": "weights",
        **changes,
    }


def named(model: str, shape: tuple[int, ...], **changes: Any) -> dict[str, Any]:
    return {
        "model": model,
        "initial_weights": random_weights(model, shape, seed=2),
        "canary": (np.full(shape, 0.3), 3),
        "noise_multiplier": 1.0,
        "num_steps": 2,
        "learning_rate": 0.05,
        "observe": "weights",
        **changes,
    }


def images(count: int, shape: tuple[int, ...] = IMAGE, classes: int = NUM_CLASSES) -> Any:
    rng = np.random.default_rng(1)
    return rng.random((count, *shape)).astype(np.float32), rng.integers(0, classes, count)


def ensemble(values: dict[str, Any], **more: Any) -> EnsembleDpSgdMechanism:
    return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**values, **more))


def opacus(values: dict[str, Any]) -> OpacusDpSgdMechanism:
    return OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**values))


def clipped_sum_of_single_examples(
    model: nn.Module, data: tuple[np.ndarray, np.ndarray], clip_norm: float
) -> np.ndarray:
    """Returns the clipped sum by one backward pass for each example, in float64."""
    model = model.double()
    parameters = list(model.parameters())
    total = np.zeros(sum(p.numel() for p in parameters))
    for x, y in zip(torch.from_numpy(data[0]).double(), torch.from_numpy(data[1]), strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).numpy()
        total += gradient * min(1.0, clip_norm / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip_norm", [0.1, 1.5, 100.0])  # all, some and no gradients are clipped
def test_clipped_sum_equals_single_examples(model: str, clip_norm: float) -> None:
    data = images(6)
    values = settings(model, num_steps=1, learning_rate=1.0, noise_scale=0.0, clip_norm=clip_norm)
    module = MODELS[model]()
    trained = ensemble(values)
    got = -(trained.train_models(data, 0, [0])[0] - _flat(trained))
    for name, parameter in module.named_parameters():
        parameter.data = torch.from_numpy(trained.config.initial_weights[name].copy())
    expected = clipped_sum_of_single_examples(module, data, clip_norm)
    scale = np.linalg.norm(expected)
    assert scale > 0.01
    assert np.linalg.norm(got - expected) < 1e-5 * scale


@pytest.mark.parametrize(
    "values",
    [
        *(pytest.param(settings(model), id=model) for model in OPACUS_MODELS),
        pytest.param(named("mlp", (1, 28, 28)), id="mlp"),
        pytest.param(named("cnn", (1, 28, 28)), id="mnist cnn"),
        pytest.param(named("cifar_cnn", (3, 32, 32)), id="cifar cnn"),
    ],
)
@pytest.mark.parametrize("sample_rate", [1.0, 0.6])
def test_noiseless_training_equals_opacus(values: dict[str, Any], sample_rate: float) -> None:
    values = {**values, "noise_scale": 0.0, "sample_rate": sample_rate}
    shape, classes = values["canary"][0].shape, values.get("num_classes", 10)
    data = images(5, shape, classes)
    trained = ensemble(values)
    ours = trained.train_models(data, 0, [0, 7]) - _flat(trained)
    theirs = opacus(values).train_models(data, 0, [0, 7]) - _flat(trained)
    assert np.linalg.norm(theirs) > 0.01
    assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs)


@pytest.mark.parametrize(
    "values",
    [
        *(pytest.param(settings(model), id=model) for model in MODELS),
        pytest.param(named("mlp", (1, 28, 28)), id="mlp"),
        pytest.param(named("logistic", (13,)), id="logistic"),
        pytest.param(named("cnn", (1, 15, 14)), id="mnist cnn"),
        pytest.param(named("cifar_cnn", (3, 9, 8)), id="cifar cnn"),
    ],
)
@pytest.mark.parametrize("sample_rate", [1.0, 0.4])
def test_models_are_the_same_bit_for_bit_in_every_group(
    values: dict[str, Any], sample_rate: float
) -> None:
    values = {**values, "sample_rate": sample_rate}
    shape, classes = values["canary"][0].shape, values.get("num_classes", 10)
    data = images(7, shape, classes)
    trained = ensemble(values)
    together = trained.train_models(data, 0, range(9))
    np.testing.assert_array_equal(trained.train_models(data, 0, [8, 2, 5]), together[[8, 2, 5]])
    np.testing.assert_array_equal(trained.train_models(data, 0, [4]), together[[4]])
    losses = ensemble({**values, "observe": "loss"})
    all_losses = losses.train_models(data, 0, range(9))
    np.testing.assert_array_equal(losses.train_models(data, 0, [7, 1]), all_losses[[7, 1]])


def test_large_protocol_is_the_same_in_every_group_and_in_parts() -> None:
    data = images(100, (1, 28, 28), 10)
    trained = ensemble(named("mlp", (1, 28, 28), num_steps=4, observe="logits"))
    together = trained.train_models(data, 0, range(100))
    parts = [trained.train_models(data, 0, range(first, first + 17)) for first in (0, 17, 34)]
    np.testing.assert_array_equal(np.concatenate(parts), together[:51])


def test_number_of_threads_changes_nothing_and_is_restored() -> None:
    data = images(40, (1, 28, 28), 10)
    trained = ensemble(named("mlp", (1, 28, 28)))
    expected = trained.train_models(data, 0, [0, 1])
    torch.set_num_threads(2)
    np.testing.assert_array_equal(trained.train_models(data, 0, [0, 1]), expected)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("model", "count"), [("mlp", 2500), ("cnn", 30)])
@pytest.mark.parametrize("sample_rate", [1.0, 0.7])
def test_records_in_chunks_change_nothing_but_rounding(
    model: str, count: int, sample_rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    add = EnsembleNetwork.add_clipped_sums

    def counted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        add(*arguments)

    monkeypatch.setattr(EnsembleNetwork, "add_clipped_sums", counted)
    data = images(count, (1, 28, 28), 10)
    values = named(model, (1, 28, 28), sample_rate=sample_rate, noise_scale=0.0, num_steps=1)
    expected = ensemble(values, memory_budget_bytes=2**28).train_models(data, 0, [0, 1])
    assert calls == 1
    chunked = ensemble(values, memory_budget_bytes=2**20).train_models(data, 0, [0, 1])
    assert calls > 4
    np.testing.assert_allclose(chunked, expected, atol=3e-6)


def test_memory_plan_respects_the_budget() -> None:
    network = EnsembleNetwork(MODELS["group norm"](), IMAGE)
    assert network.example_quantum % 2 == 0
    data = images(3000, (1, 28, 28), 10)
    trained = ensemble(named("mlp", (1, 28, 28), num_steps=1), memory_budget_bytes=2**20)
    peak = _largest_tensor(lambda: trained.train_models(data, 0, range(20)))
    # The records themselves (3000 x 784 floats) are the largest tensor; per-example gradients of
    # one model would take 3000 x 25,450.
    assert peak <= 3000 * 784


def _largest_tensor(action: Callable[[], Any]) -> int:
    """Returns the most entries of any tensor that a torch operation returned."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for item in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(item, torch.Tensor):
                    largest = max(largest, item.untyped_storage().nbytes() // 4)
            return result

    with Watch():
        action()
    return largest


def test_noise_of_a_convolutional_network_has_the_claimed_law_in_every_tensor() -> None:
    # Kolmogorov-Smirnov tests at 0.001 over seven tensors: 0.0002 each would be Bonferroni; seeds
    # are fixed.
    values = named("cnn", (1, 14, 14), num_steps=4, noise_multiplier=3.0, clip_norm=0.5)
    trained = ensemble(values)
    empty = np.zeros((0, 1, 14, 14)), np.zeros(0, dtype=int)
    noise = (trained.train_models(empty, 0, range(20)) - _flat(trained)) / (0.05 * 3.0 * 0.5 * 2.0)
    start = 0
    means = []
    for weight in trained.config.initial_weights.values():
        part = noise[:, start : start + weight.size]
        start += weight.size
        assert stats.kstest(part.ravel(), "norm").pvalue > 0.0002
        assert abs(part.var() - 1.0) < 4.0 * np.sqrt(2.0 / part.size)
        means.append(part[:, :10])
    firsts = np.concatenate([part.reshape(20, -1) for part in means], axis=1)
    between_models = np.corrcoef(firsts)[np.triu_indices(20, 1)] * np.sqrt(firsts.shape[1])
    assert np.max(np.abs(between_models)) < 4.5
    # A generator restarted for each tensor would make the first entries of all tensors equal.
    assert all(not np.any(means[0] == other) for other in means[1:])


def test_canary_loss_laws_of_ensemble_and_opacus_agree() -> None:
    # Two-sample tests at 0.001 on 100 models each, fixed seeds.
    values = settings("linear without bias", num_steps=3, noise_multiplier=0.5, observe="loss")
    data = images(20)
    ours = ensemble(values).train_models(data, 0, range(100))[:, 0]
    theirs = opacus(values).train_models(data, 1, range(100))[:, 0]
    assert stats.ks_2samp(ours, theirs).pvalue > 0.001
    assert stats.ttest_ind(ours, theirs).pvalue > 0.001
    assert ours.std() == pytest.approx(theirs.std(), rel=0.3)


@pytest.mark.parametrize("model", FALLBACK_MODELS)
def test_fallback_says_so_once(model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=ensemble_layers.__name__):
        trained = ensemble(settings(model))
        trained.train_models(images(3), 0, range(2))
    assert len(caplog.records) == 1
    assert "torch.func" in caplog.text


@pytest.mark.parametrize("model", FAST_MODELS)
def test_common_layers_need_no_fallback(model: str, caplog: pytest.LogCaptureFixture) -> None:
    ensemble(settings(model))
    assert not caplog.records


def test_frozen_and_shared_parameters_are_refused() -> None:
    def frozen() -> nn.Sequential:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        model[0].bias.requires_grad_(False)
        return model

    with pytest.raises(ValueError, match=r"\['0.bias'\] frozen"):
        EnsembleNetwork(frozen(), (4,))
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="share"):
        EnsembleNetwork(nn.Sequential(layer, nn.Tanh(), layer), (4,))


def test_hooks_are_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    model[1].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    with pytest.raises(ValueError, match=r"no hooks.*\['1'\]"):
        EnsembleNetwork(model, (4,))


@pytest.mark.parametrize("sample_rate", [1.0, 0.4])
def test_no_records_leave_steps_of_noise_alone(sample_rate: float) -> None:
    values = settings("group norm", sample_rate=sample_rate, num_steps=3)
    empty = images(0)
    trained = ensemble(values)
    moved = trained.train_models(empty, 0, [0, 1]) - _flat(trained)
    # Each coordinate is the sum of 3 steps' noise of standard deviation 0.05; 4 standard errors of
    # the deviation.
    expected = 0.05 * np.sqrt(3.0)
    assert moved.std() == pytest.approx(expected, rel=4.0 / np.sqrt(2 * moved.size))
    noiseless = ensemble({**values, "noise_scale": 0.0})
    np.testing.assert_allclose(
        noiseless.train_models(empty, 0, [0]), _flat(trained)[np.newaxis], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "named_"),
    [({"device": "abacus"}, "device"), ({"memory_budget_bytes": 5}, "memory_budget_bytes")],
)
def test_config_names_what_is_wrong(changes: dict[str, Any], named_: str) -> None:
    with pytest.raises(ValueError, match=named_):
        EnsembleDpSgdMechanismConfig(**settings("activations"), **changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU that is not there")
def test_missing_device_is_one_clear_error() -> None:
    with pytest.raises(ValueError, match="device 'cuda' cannot be used here"):
        ensemble(settings("activations"), device="cuda")


def test_a_device_without_numbers_is_one_clear_error() -> None:
    with pytest.raises(ValueError, match="device 'meta' cannot be used here"):
        ensemble(settings("activations"), device="meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_cuda_agrees_with_the_cpu(model: str) -> None:
    data = images(20, (1, 28, 28), 10)
    values = named(model, (1, 28, 28), noise_scale=0.0)
    expected = ensemble(values).train_models(data, 0, [0, 1])
    got = ensemble(values, device="cuda").train_models(data, 0, [0, 1])
    np.testing.assert_allclose(got, expected, atol=1e-5)


def _flat(trained: EnsembleDpSgdMechanism) -> np.ndarray:
    return np.concatenate(
        [weight.ravel().astype(np.float64) for weight in trained.config.initial_weights.values()]
    )
