"""What TensorFlow Privacy alone has; what every engine keeps is in test_dp_sgd_contract.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy
import torch
from dp_sgd_engines import NUM_PARAMETERS, SHAPE, dataset, mechanism, start
from scipy import stats

from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.mechanisms.dp_sgd import tf_privacy_training as module
from dvrenyi_plugin.mechanisms.dp_sgd.networks import random_weights
from dvrenyi_plugin.mechanisms.dp_sgd.tf_privacy import OPTIMIZERS
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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
    data = dataset(8, shape=shape)
    expected = mechanism("ensemble", **changes).train_models(data, 0, [0])
    trained = mechanism(optimizer, **changes)
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
    expected = mechanism("ensemble", **changes).train_models(data, 1, [0, 5, 7])
    np.testing.assert_allclose(
        mechanism(optimizer, **changes).train_models(data, 1, [0, 5, 7]), expected, atol=2e-6
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tensorflows_own_seed_decides_nothing(optimizer: str) -> None:
    trained = mechanism(optimizer, sample_rate=0.5)
    expected = trained.train_models(dataset(7), 2, range(3))
    tf.random.set_seed(1)
    np.testing.assert_array_equal(trained.train_models(dataset(7), 2, range(3)), expected)
    again = mechanism(optimizer, sample_rate=0.5)
    np.testing.assert_array_equal(again.train_models(dataset(7), 2, range(3)), expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_traced_once(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    seeded = module._seeded_normals
    monkeypatch.setattr(
        module, "_seeded_normals", lambda *args: traces.append(args) or seeded(*args)
    )
    trained = mechanism(optimizer, sample_rate=0.5)
    for data in (dataset(7), dataset(9), dataset(0)):
        trained.train_models(data, 0, range(3))
    assert len(traces) == 1


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
    trained = mechanism(optimizer, clip_norm=0.5, num_steps=1)
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
        mechanism("vectorized").train_models(dataset(3), 0, [0])

    def with_more_noise(self: Any, losses: Any, variables: Any, tape: Any) -> Any:
        variables[0].assign_add(tf.random.normal(variables[0].shape))
        return minimize(self, losses, variables, tape=tape)

    monkeypatch.setattr(optimizer_class, "minimize", with_more_noise)
    with pytest.raises(RuntimeError, match="more than 2 times per step"):
        mechanism("vectorized").train_models(dataset(3), 0, [0])
    monkeypatch.setattr(optimizer_class, "minimize", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match="drew noise 0 times per step"):
        mechanism("vectorized").train_models(dataset(3), 0, [0])
    # TensorFlow's own functions are back, after errors too.
    assert getattr(tf.random, name) is draw and tf.random_normal_initializer is initializer


def test_accountant_agrees_with_tensorflow_privacys_and_bounds_the_exact_epsilon() -> None:
    trained = mechanism("loop", num_steps=50, noise_multiplier=4.0)
    # Whole epochs of one full batch each. It searches other orders: hence the tolerance.
    theirs, _ = tensorflow_privacy.compute_dp_sgd_privacy(
        n=10, batch_size=10, noise_multiplier=4.0, epochs=50, delta=1e-5
    )
    assert trained.accountant_epsilon(1e-5) == pytest.approx(theirs, rel=5e-3)
    exact = dp_sgd_epsilon(1e-5, 50, 4.0)
    assert exact <= trained.accountant_epsilon(1e-5) <= 1.2 * exact
    sampled = mechanism("loop", num_steps=50, noise_multiplier=1.0, sample_rate=0.1)
    theirs, _ = tensorflow_privacy.compute_dp_sgd_privacy(
        n=100, batch_size=10, noise_multiplier=1.0, epochs=5, delta=1e-5
    )
    assert sampled.accountant_epsilon(1e-5) == pytest.approx(theirs, rel=5e-3)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="optimizer must be one of"):
        mechanism("adam")
    weights = random_weights("logistic", SHAPE, 5)
    with pytest.raises(ValueError, match="initial_weights"):
        mechanism("loop", initial_weights=weights)


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
