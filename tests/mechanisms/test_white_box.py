"""What a white-box auditor sees: the known law on full batches, and agreement over engines and
groupings.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig
from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model, load_weights, random_weights
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.white_box import linearised_losses

SHAPE = (1, 4, 4)
CANARY = np.linspace(-2.0, 3.0, 16).reshape(SHAPE), 1


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "model": "mlp",
        "initial_weights": random_weights("mlp", SHAPE, 3, seed=1),
        "canary": CANARY,
        "num_classes": 3,
        "noise_multiplier": 5.0,
        "num_steps": 25,
        "learning_rate": 1e-4,
        "observe": "white_box",
        **changes,
    }


def ensemble(**changes: Any) -> EnsembleDpSgdMechanism:
    return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**settings(**changes)))


def opacus(**changes: Any) -> OpacusDpSgdMechanism:
    return OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**settings(**changes)))


def records(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((count, *SHAPE)).astype(np.float32), rng.integers(0, 3, count)


def with_canary(data: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    features = np.concatenate([data[0], CANARY[0][np.newaxis].astype(np.float32)])
    return features, np.append(data[1], CANARY[1])


def gradient_and_loss() -> tuple[np.ndarray, float]:
    model = build_model("mlp", SHAPE, 3)
    load_weights(model, settings()["initial_weights"])
    loss = nn.functional.cross_entropy(
        model(torch.tensor(CANARY[0][np.newaxis], dtype=torch.float32)), torch.tensor([CANARY[1]])
    )
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return np.concatenate([g.numpy().ravel() for g in gradients]), float(loss.detach())


def test_it_is_the_inner_product_of_the_updates_with_the_canarys_gradient() -> None:
    gradient, loss = gradient_and_loss()
    weights = ensemble(observe="weights").train_models(records(6), 0, range(3))
    start = ensemble(observe="weights", num_steps=0).train_models(records(6), 0, [0])
    expected = loss + (weights - start) @ gradient
    seen = ensemble().train_models(records(6), 0, range(3))
    assert seen.shape == (3, 1)
    np.testing.assert_allclose(seen[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(linearised_losses(ensemble().config, weights), expected, rtol=1e-5)


def test_without_other_records_it_shows_all_that_the_claim_allows() -> None:
    # mu = sqrt(25) / 5 = 1. The clipped gradient moves by steps * rate * clip along itself, the
    # noise has standard deviation sqrt(steps) * rate * noise in every direction: N(0, 1) against
    # N(-1, 1) after scaling.
    gradient, loss = gradient_and_loss()
    norm = np.linalg.norm(gradient)
    assert norm > 1.0
    unit = np.sqrt(25) * 1e-4 * 5.0 * norm
    nothing = records(0)
    without = (ensemble().train_models(nothing, 0, range(400))[:, 0] - loss) / unit
    seen = (ensemble().train_models(with_canary(nothing), 1, range(400))[:, 0] - loss) / unit
    # Kolmogorov-Smirnov at 0.001 each.
    assert stats.kstest(without, "norm").pvalue > 0.001
    assert stats.kstest(seen + 1.0, "norm").pvalue > 0.001


def test_the_shift_is_mu_whatever_other_records_there_are() -> None:
    gradient, _ = gradient_and_loss()
    unit = np.sqrt(25) * 1e-4 * 5.0 * np.linalg.norm(gradient)
    quiet = ensemble(noise_scale=0.0)
    data = records(50)
    shift = quiet.train_models(data, 0, [0]) - quiet.train_models(with_canary(data), 0, [0])
    assert shift[0, 0] / unit == pytest.approx(1.0, abs=0.01)


def test_engines_see_the_same_without_noise() -> None:
    data = with_canary(records(6))
    changes = {"noise_scale": 0.0, "learning_rate": 0.01}
    np.testing.assert_allclose(
        ensemble(**changes).train_models(data, 0, [0]),
        opacus(**changes).train_models(data, 0, [0]),
        rtol=1e-5,
    )


def test_models_are_the_same_bit_for_bit_in_every_group() -> None:
    data = records(6)
    together = ensemble().train_models(data, 0, range(8))
    np.testing.assert_array_equal(ensemble().train_models(data, 0, [6, 1]), together[[6, 1]])
    np.testing.assert_array_equal(ensemble().train_models(data, 0, [4]), together[[4]])


@pytest.mark.parametrize("engine", [ensemble, opacus])
def test_loss_and_logits_are_what_they_are_alone(engine: Any) -> None:
    data = records(6)
    both = engine(observe="loss_and_logits").train_models(data, 0, range(3))
    assert both.shape == (3, 4)
    np.testing.assert_array_equal(
        both[:, :1], engine(observe="loss").train_models(data, 0, range(3))
    )
    np.testing.assert_array_equal(
        both[:, 1:], engine(observe="logits").train_models(data, 0, range(3))
    )
    assert engine(observe="loss_and_logits").config.observation_width == 4
    assert engine(observe="loss_and_logits").train_models(data, 0, []).shape == (0, 4)


@pytest.mark.parametrize(("observe", "columns"), [("logits", 11), ("white_box", 1)])
def test_an_audit_says_what_it_saw(tmp_path: Any, observe: str, columns: int) -> None:
    flags = ["--dataset=digits", "--model=mlp", "--num_records=5", "--steps=4", "--num_models=60"]
    flags += ["--num_workers=1", "--noise_scale=0.1", f"--observe={observe}"]
    assert audit_dpsgd.main(["audit_dpsgd", *flags, f"--output_dir={tmp_path / 'report'}"]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["settings"]["observe"] == observe
    assert report["refuted"] and report["lower_bound"] > 1.0
    assert any(
        ("logits" if observe == "logits" else "White box") in note for note in report["notes"]
    )
    with np.load(tmp_path / "report" / "observations.npz", allow_pickle=False) as seen:
        assert seen["with_canary"].shape == (60, columns)
        # The report's losses are the first column.
        assert report["losses"]["with_canary"]["mean"] == seen["with_canary"][:, 0].mean()


def test_the_experiments_white_box_shows_the_whole_claim() -> None:
    config = DpSgdExperimentConfig(
        dataset="digits", model="mlp", num_records=20, steps=10, observe="white_box"
    )
    experiment = build_dp_sgd_experiment(config)
    norm = experiment.settings["canary_initial_gradient_norm"]
    # mu = 1, so the noise's standard deviation along the gradient is steps * rate * clip.
    spread = 10 * config.learning_rate * norm
    assert experiment.noise_free_shift / spread == pytest.approx(1.0, abs=0.02)
