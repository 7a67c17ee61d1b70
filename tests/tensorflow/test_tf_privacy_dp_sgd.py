"""DP-SGD through TensorFlow Privacy: the other engines' training without noise, and the claimed
noise, seeded per model.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy
import torch
from scipy import stats

from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.mechanisms.dp_sgd import tf_privacy_training as module
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.networks import random_weights
from dvrenyi_plugin.mechanisms.dp_sgd.tf_privacy import (
    OPTIMIZERS,
    TfPrivacyDpSgdMechanism,
    TfPrivacyDpSgdMechanismConfig,
)
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon

SHAPE = (6,)
NUM_WEIGHTS, NUM_PARAMETERS = 24, 28


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def settings(**changes: Any) -> dict[str, Any]:
    """Returns the settings of a small logistic regression: 24 weights, then 4 biases."""
    return {
        "model": "logistic",
        "initial_weights": random_weights("logistic", SHAPE, 4, seed=1),
        "canary": (np.zeros(SHAPE), 3),
        "num_classes": 4,
        "noise_multiplier": 2.0,
        "num_steps": 3,
        "learning_rate": 0.1,
        "observe": "weights",
        **changes,
    }


def build(optimizer: str, **changes: Any) -> TfPrivacyDpSgdMechanism:
    config = TfPrivacyDpSgdMechanismConfig(**settings(**changes), optimizer=optimizer)
    return TfPrivacyDpSgdMechanism(config)


# Tracing a step takes a second or more: tests that only read share their mechanisms.
shared = functools.cache(build)


def ensemble(**changes: Any) -> EnsembleDpSgdMechanism:
    return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**settings(**changes)))


def dataset(
    num_records: int, shape: tuple[int, ...] = SHAPE, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = scale * rng.standard_normal((num_records, *shape))
    return features.astype(np.float32), rng.integers(0, 4, num_records)


def start(config: DpSgdConfig) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in config.initial_weights.values()])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", ["logistic", "mlp", "cnn"])
def test_noiseless_training_equals_the_ensembles(optimizer: str, model: str) -> None:
    shape = (2, 14, 15)  # neither square nor of one channel: a wrong order of coordinates shows
    changes = {
        "model": model,
        "initial_weights": random_weights(model, shape, 4),
        "canary": (np.zeros(shape), 3),
        "noise_scale": 0.0,
        "learning_rate": 0.02,
        "num_steps": 5,
    }
    data = dataset(8, shape)
    expected = ensemble(**changes).train_models(data, 0, [0])
    trained = build(optimizer, **changes)
    assert np.max(np.abs(expected - start(trained.config))) > 0.01
    np.testing.assert_allclose(trained.train_models(data, 0, [0]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "defect"),
    [
        ("vectorized", "none"),
        ("vectorized", "no_clipping"),
        ("loop", "none"),
        ("loop", "no_clipping"),
        ("loop", "mean_by_private_count"),
    ],
)
def test_poisson_batches_defects_and_denominators_are_the_ensembles(
    optimizer: str, defect: str
) -> None:
    changes = {
        "noise_scale": 0.0,
        "sample_rate": 0.2,
        "defect": defect,
        "gradient_denominator": 4.0,
        "clip_norm": 0.7,
        "num_steps": 6,
    }
    data = dataset(11, scale=2.0)
    expected = ensemble(**changes).train_models(data, 1, [0, 5, 7])
    np.testing.assert_allclose(
        build(optimizer, **changes).train_models(data, 1, [0, 5, 7]), expected, atol=2e-6
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_noise_has_the_claimed_law_and_is_independent_across_coordinates(optimizer: str) -> None:
    # Without records the weights are the noise of 3 steps. Kolmogorov-Smirnov and correlation tests
    # at 0.001.
    trained = build(optimizer, clip_norm=0.5, gradient_denominator=5.0)
    models = trained.train_models(dataset(0), 0, range(300))
    std = 0.1 / 5.0 * np.sqrt(3) * 2.0 * 0.5
    noise = (models - start(trained.config)) / std
    assert stats.kstest(noise.ravel(), "norm").pvalue > 0.001
    for tensor in (noise[:, :NUM_WEIGHTS], noise[:, NUM_WEIGHTS:]):
        count = tensor.size
        assert abs(tensor.mean()) < 3.3 / np.sqrt(count)
        assert abs(tensor.var() - 1.0) < 3.3 * np.sqrt(2.0 / count)
    correlations = np.corrcoef(noise.T)[np.triu_indices(NUM_PARAMETERS, 1)] * np.sqrt(300)
    assert np.max(np.abs(correlations)) < 5.0  # 378 pairs at 6e-7 each
    between_models = np.corrcoef(noise)[np.triu_indices(300, 1)] * np.sqrt(NUM_PARAMETERS)
    assert abs(between_models.std() - 1.0) < 0.05
    # Two models sharing their noise would correlate exactly.
    assert np.max(np.abs(between_models)) < 0.95 * np.sqrt(NUM_PARAMETERS)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_noise_does_not_depend_on_the_size_of_the_batch(optimizer: str) -> None:
    # The optimizers divide by the batch's size; a learning rate that did not take it back would
    # shrink the noise.
    data, changes = dataset(50), {"learning_rate": 1e-4}
    quiet = ensemble(**changes, noise_scale=0.0).train_models(data, 0, [0])
    spread = (build(optimizer, **changes).train_models(data, 0, range(60)) - quiet).std()
    # 1680 numbers: the standard error is 1.7%.
    assert spread == pytest.approx(1e-4 * np.sqrt(3) * 2.0, rel=0.06)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_noise_of_successive_steps_is_independent(optimizer: str) -> None:
    def after(steps: int) -> np.ndarray:
        return build(optimizer, num_steps=steps).train_models(dataset(0), 0, range(100))

    first = after(1) - start(shared(optimizer).config)
    second = after(2) - after(1)
    # 2800 pairs: a correlation beyond 3.3 standard errors has probability 0.001.
    correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert abs(correlation) < 3.3 / np.sqrt(first.size)
    assert second.std() == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_empty_poisson_batches_are_steps_of_noise(optimizer: str) -> None:
    # At rate 1e-9 every batch is empty: exactly what no records give, and never a crash.
    empty = build(optimizer, sample_rate=1e-9).train_models(dataset(9), 0, range(3))
    nothing = shared(optimizer).train_models(dataset(0), 0, range(3))
    np.testing.assert_array_equal(empty, nothing)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_noise_scale_and_missing_noise_change_the_noise_alone(optimizer: str) -> None:
    honest = build(optimizer, num_steps=8)
    origin = start(honest.config)
    noise = honest.train_models(dataset(0), 0, range(20)) - origin
    halved = build(optimizer, num_steps=8, noise_scale=0.5)
    np.testing.assert_allclose(
        halved.train_models(dataset(0), 0, range(20)) - origin, 0.5 * noise, atol=1e-6
    )
    sparse = build(optimizer, num_steps=8, defect="noise_every_fourth_step")
    spread = (sparse.train_models(dataset(0), 0, range(20)) - origin).std()
    assert spread == pytest.approx(noise.std() / 2.0, rel=0.15)
    assert honest.claimed_privacy == halved.claimed_privacy == sparse.claimed_privacy


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_model_depends_on_seed_world_and_index_alone(optimizer: str) -> None:
    data = dataset(7)
    together = build(optimizer, sample_rate=0.5).train_models(data, 2, range(6))
    tf.random.set_seed(1)
    resumed = build(optimizer, sample_rate=0.5)
    np.testing.assert_array_equal(resumed.train_models(data, 2, [5, 1]), together[[5, 1]])
    np.testing.assert_array_equal(resumed.train_models(data, 2, [3]), together[[3]])
    assert not np.any(resumed.train_models(data, 1, range(6)) == together)
    # To another process it goes without what TensorFlow compiled.
    travelled = cloudpickle.loads(cloudpickle.dumps(resumed))
    np.testing.assert_array_equal(travelled.train_models(data, 2, [3]), together[[3]])
    other = build(optimizer, sample_rate=0.5, seed=1)
    assert not np.any(other.train_models(data, 2, range(6)) == together)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_traced_once(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    seeded = module._seeded_normals
    monkeypatch.setattr(
        module, "_seeded_normals", lambda *args: traces.append(args) or seeded(*args)
    )
    trained = build(optimizer, sample_rate=0.5)
    for data in (dataset(7), dataset(9), dataset(0)):
        trained.train_models(data, 0, range(3))
    assert len(traces) == 1


def test_observations() -> None:
    data, canary = dataset(7), (np.arange(6.0), 2)
    logits = build("loop", observe="logits", canary=canary).train_models(data, 0, range(3))
    losses = build("loop", observe="loss", canary=canary).train_models(data, 0, range(3))
    assert losses.shape == (3, 1) and losses.dtype == np.float64
    np.testing.assert_allclose(
        losses[:, 0], np.log(np.exp(logits).sum(axis=1)) - logits[:, 2], rtol=1e-12
    )
    weights = shared("loop").train_models(data, 0, range(3))
    by_hand = weights[:, :NUM_WEIGHTS].reshape(3, 4, 6) @ canary[0] + weights[:, NUM_WEIGHTS:]
    np.testing.assert_allclose(logits, by_hand, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_seeded_noise_has_the_law_of_tensorflow_privacys_own(optimizer: str) -> None:
    # The same optimizer, left alone, on gradients of zero. Two-sample test at 0.001.
    name = "VectorizedDPKerasSGDOptimizer" if optimizer == "vectorized" else "DPKerasSGDOptimizer"
    left_alone = getattr(tensorflow_privacy, name)(
        l2_norm_clip=0.5, noise_multiplier=2.0, num_microbatches=1, learning_rate=0.1
    )
    variable = tf.Variable(tf.zeros(300 * NUM_PARAMETERS))
    tf.random.set_seed(0)

    def step() -> None:
        with tf.GradientTape() as tape:
            losses = tf.reshape(0.0 * tf.reduce_sum(variable), (1,))
        left_alone.minimize(losses, [variable], tape=tape)

    tf.function(step)()
    trained = build(optimizer, clip_norm=0.5, num_steps=1)
    ours = trained.train_models(dataset(0), 0, range(300)) - start(trained.config)
    assert stats.ks_2samp(ours.ravel(), variable.numpy()).pvalue > 0.001
    assert variable.numpy().std() == pytest.approx(0.1, rel=0.05)


def test_noise_that_no_seed_decides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name, draw, initializer = "normal", tf.random.normal, tf.random_normal_initializer
    optimizer_class = tensorflow_privacy.VectorizedDPKerasSGDOptimizer
    minimize = optimizer_class.minimize

    def with_other_noise(self: Any, losses: Any, variables: Any, tape: Any) -> Any:
        variables[0].assign_add(tf.random.uniform(variables[0].shape))
        return minimize(self, losses, variables, tape=tape)

    monkeypatch.setattr(optimizer_class, "minimize", with_other_noise)
    with pytest.raises(RuntimeError, match="unseeded noise: RandomUniform"):
        build("vectorized").train_models(dataset(3), 0, [0])

    def with_more_noise(self: Any, losses: Any, variables: Any, tape: Any) -> Any:
        variables[0].assign_add(tf.random.normal(variables[0].shape))
        return minimize(self, losses, variables, tape=tape)

    monkeypatch.setattr(optimizer_class, "minimize", with_more_noise)
    with pytest.raises(RuntimeError, match="more than 2 times a step"):
        build("vectorized").train_models(dataset(3), 0, [0])
    monkeypatch.setattr(optimizer_class, "minimize", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match="drew noise 0 times a step"):
        build("vectorized").train_models(dataset(3), 0, [0])
    # TensorFlow's own functions are back, after errors too.
    assert getattr(tf.random, name) is draw and tf.random_normal_initializer is initializer


def test_accountant_agrees_with_tensorflow_privacys_and_bounds_the_exact_epsilon() -> None:
    trained = build("loop", num_steps=50, noise_multiplier=4.0)
    # Whole epochs of one full batch each. It searches other orders: hence the tolerance.
    theirs, _ = tensorflow_privacy.compute_dp_sgd_privacy(
        n=10, batch_size=10, noise_multiplier=4.0, epochs=50, delta=1e-5
    )
    assert trained.accountant_epsilon(1e-5) == pytest.approx(theirs, rel=5e-3)
    exact = dp_sgd_epsilon(1e-5, 50, 4.0)
    assert exact <= trained.accountant_epsilon(1e-5) <= 1.2 * exact
    sampled = build("loop", num_steps=50, noise_multiplier=1.0, sample_rate=0.1)
    theirs, _ = tensorflow_privacy.compute_dp_sgd_privacy(
        n=100, batch_size=10, noise_multiplier=1.0, epochs=5, delta=1e-5
    )
    assert sampled.accountant_epsilon(1e-5) == pytest.approx(theirs, rel=5e-3)


def test_bad_settings_are_refused_at_the_door() -> None:
    with pytest.raises(ValueError, match="optimizer must be one of"):
        build("adam")
    weights = random_weights("logistic", SHAPE, 5)
    with pytest.raises(ValueError, match="initial_weights"):
        build("loop", initial_weights=weights)


def test_the_program_audits_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    status = audit_dpsgd.main(
        [
            "audit_dpsgd",
            "--engine=tf_privacy",
            "--dataset=digits",
            "--model=logistic",
            "--num_records=10",
            "--num_models=60",
            "--steps=2",
            "--num_workers=1",
            "--noise_scale=0.05",
            "--fail_on_violation",
            f"--output_dir={folder}",
        ]
    )
    report = json.loads((folder / "report.json").read_text())
    assert status == 2 and report["refuted"] is True
    assert report["settings"]["engine"] == "tf_privacy"
    assert report["versions"].keys() >= {"tensorflow", "tensorflow-privacy"}
