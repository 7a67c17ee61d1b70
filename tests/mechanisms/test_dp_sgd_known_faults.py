"""Inputs on which public DP-SGD code and accountants have gone wrong, through our claims, flags and
engines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.interfaces import GaussianDp, RenyiDp, read_claim
from dvrenyi_plugin.mechanisms.dp_sgd.config import claimed_properties
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model, load_weights, random_weights
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon, gaussian_dp_epsilon
from dvrenyi_plugin.privacy.dp_sgd_accounting import audited_claim

ENGINES = ["ensemble", "hooks", "ghost"]
IMAGE = (1, 14, 14)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def mechanism(engine: str, model: str = "mlp", shape: Any = IMAGE, **changes: Any) -> Any:
    if "initial_weights" not in changes:
        changes["initial_weights"] = random_weights(model, shape, 3, seed=1)
    values = {
        "model": model,
        "canary": (np.zeros(shape), 2),
        "num_classes": 3,
        "noise_multiplier": 2.0,
        "num_steps": 2,
        "learning_rate": 0.1,
        "observe": "weights",
        **changes,
    }
    if engine == "ensemble":
        return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**values))
    return OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**values, grad_sample_mode=engine))


def start(trained: Any) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in trained.config.initial_weights.values()])


def images(count: int, shape: Any = IMAGE) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((count, *shape)).astype(np.float32), rng.integers(0, 3, count)


def renyi_claims(*arguments: Any) -> dict[float, float]:
    claims = [read_claim(claim) for claim in claimed_properties(*arguments)]
    return {claim.alpha: claim.epsilon for claim in claims if isinstance(claim, RenyiDp)}


# Claims.


def test_one_full_step_claims_the_exact_gaussian_value_and_not_a_limit_theorems() -> None:
    claim = audited_claim(2.0, 1, noise_multiplier=1.0)
    assert claim.mu == 1.0
    # A central limit theorem for Poisson batches gives 6.0071 here.
    assert gaussian_dp_epsilon(claim.mu, 1e-5) == pytest.approx(4.377178, abs=1e-6)


@pytest.mark.parametrize(
    ("alpha", "epsilon"), [(1.1, 0.15613), (1.5, 0.235158), (2.5, 0.51056), (8.0, 3.20888)]
)
def test_poisson_claims_have_the_known_values_at_every_kind_of_order(
    alpha: float, epsilon: float
) -> None:
    # At order 8 the other direction has 0.375976: the claim is the larger of the two.
    claim = audited_claim(alpha, 1, 0.5, noise_multiplier=1.0).renyi
    assert claim.epsilon == pytest.approx(epsilon, rel=2e-5)
    # Steps add up.
    assert audited_claim(alpha, 6, 0.5, noise_multiplier=1.0).renyi.epsilon == pytest.approx(
        6.0 * epsilon, rel=2e-5
    )


def test_large_orders_claim_finite_values() -> None:
    claim = audited_claim(2000.0, 1, 0.01, noise_multiplier=1.0).renyi
    assert claim.epsilon == pytest.approx(995.3925, abs=1e-4)


def test_claims_are_never_negative_and_nothing_done_claims_nothing() -> None:
    assert dp_sgd_epsilon(0.5, 1, 10.0, 0.01) == 0.0
    assert dp_sgd_epsilon(1e-3, 1, 1.0, 105 / 100_000) == 0.0
    assert read_claim(claimed_properties(0, 1.0)[0]) == GaussianDp(0.0)
    for sample_rate in (1.0, 0.1):
        assert set(renyi_claims(0, 1.0, sample_rate).values()) == {0.0}
    for epsilon in renyi_claims(1, 10.0, 0.01).values():
        assert 0.0 < epsilon < 1e-4


@pytest.mark.parametrize("steps", [1 / (1 / 93), 93.0, "93", True])
def test_numbers_of_steps_are_integers(steps: Any) -> None:
    with pytest.raises(ValueError, match="steps must be an integer"):
        audited_claim(2.0, steps, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="num_steps must be an integer"):
        mechanism("ensemble", num_steps=steps)


def test_a_small_epsilon_over_many_steps_is_calibrated_through_the_flags(tmp_path: Path) -> None:
    flags = ["--dataset=digits", "--model=logistic", "--num_records=5", "--num_models=10"]
    flags += ["--num_workers=1", "--steps=100", "--epsilon=0.1", "--delta=1e-5"]
    assert audit_dpsgd.main(["audit_dpsgd", *flags, f"--output_dir={tmp_path / 'report'}"]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    noise = report["settings"]["noise_multiplier"]
    assert noise == pytest.approx(307.5, abs=0.05)
    assert dp_sgd_epsilon(1e-5, 100, noise) == pytest.approx(0.1, rel=1e-6)
    # What is tested is that noise's Gaussian DP, mu = sqrt(100) / noise, and its Rényi DP beside:
    # alpha mu^2 / 2 at order 2.
    curve, divergence = report["claims"]
    assert curve["epsilon"] == pytest.approx(10.0 / noise, rel=1e-6)
    assert divergence["epsilon"] == pytest.approx((10.0 / noise) ** 2, rel=1e-6)
    assert report["claim"]["mu"] == pytest.approx(10.0 / noise, rel=1e-6)


# Training.


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_clipped_sums_equal_those_of_vectorised_single_example_gradients(
    engine: str, model: str
) -> None:
    data = images(6)
    trained = mechanism(
        engine, model, noise_scale=0.0, num_steps=1, learning_rate=1.0, clip_norm=0.5
    )
    network = build_model(model, IMAGE, 3)
    load_weights(network, trained.config.initial_weights)
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(network, values, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits, y.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(
        parameters, torch.from_numpy(data[0]), torch.from_numpy(data[1])
    )
    rows = torch.cat([gradients[name].flatten(1) for name in parameters], dim=1).double().numpy()
    factors = np.minimum(1.0, 0.5 / np.linalg.norm(rows, axis=1))
    assert np.any(factors < 1.0)
    expected = factors @ rows
    got = start(trained) - trained.train_models(data, 0, [0])[0]
    # Every tensor by itself: one that is off by a factor must not hide among the others.
    begin = 0
    for name, weight in trained.config.initial_weights.items():
        part = slice(begin, begin + weight.size)
        begin += weight.size
        scale = np.linalg.norm(expected[part])
        assert scale > 0.0, name
        assert np.linalg.norm(got[part] - expected[part]) < 2e-5 * max(scale, 0.1), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("size", [6e4, 3e-4])
def test_half_precision_records_are_clipped_by_single_precision_norms(
    engine: str, model: str, size: float
) -> None:
    # In float16 the squares of the large gradients overflow and those of the small ones are 0.
    features = np.full((1, *IMAGE), size, dtype=np.float16)
    trained = mechanism(
        engine, model, noise_scale=0.0, num_steps=1, learning_rate=1.0, clip_norm=1e-3
    )
    moved = trained.train_models((features, np.array([1])), 0, [0])[0] - start(trained)
    # Subtracting weights of order 0.1 in float32 leaves an error near 1e-8 a coordinate.
    assert np.linalg.norm(moved) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("engine", ENGINES)
def test_tensors_of_one_shape_do_not_share_their_noise(engine: str) -> None:
    # The two layers of equal shape are where one key for all tensors would show: correlation 1.
    def build() -> torch.nn.Sequential:
        return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))

    weights = {name: p.detach().numpy() for name, p in build().named_parameters()}
    trained = mechanism(engine, build, (3,), initial_weights=weights, canary=(np.zeros(3), 2))
    noise = trained.train_models((np.zeros((0, 3)), np.zeros(0, int)), 0, range(100))
    noise -= start(trained)
    first, second = noise[:, :12], noise[:, 12:]
    # 1,200 pairs: beyond 3.3 standard errors with probability 0.001.
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 3.3 / np.sqrt(first.size)
    assert first.std() == pytest.approx(second.std(), rel=0.1)


@pytest.mark.parametrize("engine", ["hooks", "ghost"])
@pytest.mark.parametrize("sample_rate", [1.0, 0.6])
def test_accumulated_steps_add_their_noise_once(engine: str, sample_rate: float) -> None:
    data = images(30, (6,))

    def train(physical: int, noise_scale: float = 1.0) -> np.ndarray:
        trained = mechanism(
            engine,
            "logistic",
            (6,),
            sample_rate=sample_rate,
            noise_scale=noise_scale,
            max_physical_batch_size=physical,
        )
        return np.asarray(trained.train_models(data, 0, range(8)))

    whole, parts = train(100), train(7)
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    # Two steps of noise 2 at rate 0.1, whatever the number of physical batches.
    noise = parts - train(7, 0.0)
    # 168 numbers: beyond 4 standard errors with probability below 1e-4.
    assert noise.std() == pytest.approx(0.1 * np.sqrt(2) * 2.0, rel=4.0 / np.sqrt(2 * noise.size))
