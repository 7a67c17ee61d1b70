"""DP-SGD through Opacus, and what all engines share: the law of the noise, the claim, the door."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dvrenyi_plugin.interfaces import GaussianDp, RenyiDp, read_claim
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams, model_seed
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    build_model,
    load_weights,
    random_weights,
    weights_of,
)
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)
from dvrenyi_plugin.mechanisms.random_streams import torch_generator
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon, gaussian_dp_epsilon

SHAPE = (6,)
ENGINES = ["hooks", "ghost", "ensemble"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def settings(**changes: Any) -> dict[str, Any]:
    """Returns the settings of a small logistic regression: 40 weights, then 10 biases."""
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


def mechanism(engine: str, **changes: Any) -> OpacusDpSgdMechanism | EnsembleDpSgdMechanism:
    if engine == "ensemble":
        return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**settings(**changes)))
    config = OpacusDpSgdMechanismConfig(**settings(**changes), grad_sample_mode=engine)
    return OpacusDpSgdMechanism(config)


def dataset(num_records: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = scale * rng.standard_normal((num_records, *SHAPE))
    return features.astype(np.float32), rng.integers(0, 4, num_records)


def start(config: DpSgdConfig) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in config.initial_weights.values()])


def loop_of_single_records(config: DpSgdConfig, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns the weights after noiseless steps whose gradients are taken one record at a time."""
    model = build_model("logistic", SHAPE, 4)
    load_weights(model, config.initial_weights)
    parameters = list(model.parameters())
    for _ in range(config.num_steps):
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for x, y in zip(torch.from_numpy(data[0]), torch.from_numpy(data[1]), strict=True):
            loss = torch.nn.functional.cross_entropy(model(x[None]), y[None])
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
            factor = min(1.0, config.effective_clip_norm / (float(norm) + 1e-6))
            for total, gradient in zip(totals, gradients, strict=True):
                total += factor * gradient
        with torch.no_grad():
            for parameter, total in zip(parameters, totals, strict=True):
                parameter -= config.learning_rate / config.denominator(len(data[1])) * total
    return np.concatenate([p.detach().numpy().ravel() for p in parameters])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("defect", ["none", "no_clipping", "mean_by_private_count"])
@pytest.mark.parametrize("scale", [0.1, 5.0])  # below and above the clipping norm
def test_noiseless_training_equals_a_loop_of_single_records(
    engine: str, defect: str, scale: float
) -> None:
    data = dataset(11, scale)
    trained = mechanism(
        engine, noise_scale=0.0, defect=defect, gradient_denominator=4.0, clip_norm=0.7
    )
    expected = loop_of_single_records(trained.config, data)
    np.testing.assert_allclose(trained.train_models(data, 0, [0])[0], expected, atol=2e-6)


@pytest.mark.parametrize("engine", ["hooks", "ghost"])
def test_physical_batches_accumulate_and_the_noise_comes_once(engine: str) -> None:
    data = dataset(11)
    config = settings(grad_sample_mode=engine)
    whole = OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**config))
    parts = OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**config, max_physical_batch_size=4))
    np.testing.assert_allclose(
        parts.train_models(data, 0, [0, 1]), whole.train_models(data, 0, [0, 1]), atol=1e-6
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_has_the_claimed_law_and_is_independent_across_coordinates(engine: str) -> None:
    # Without records the weights are the noise of 3 steps. Kolmogorov-Smirnov and correlation tests
    # at 0.001.
    trained = mechanism(engine, clip_norm=0.5, gradient_denominator=5.0)
    models = trained.train_models(dataset(0), 0, range(300))
    std = 0.1 / 5.0 * np.sqrt(3) * 2.0 * 0.5
    noise = (models - start(trained.config)) / std
    assert stats.kstest(noise.ravel(), "norm").pvalue > 0.001
    for tensor in (noise[:, :24], noise[:, 24:]):
        count = tensor.size
        assert abs(tensor.mean()) < 3.3 / np.sqrt(count)
        assert abs(tensor.var() - 1.0) < 3.3 * np.sqrt(2.0 / count)
    correlations = np.corrcoef(noise.T)[np.triu_indices(28, 1)] * np.sqrt(300)
    assert np.max(np.abs(correlations)) < 5.0  # 378 pairs at 6e-7 each
    between_models = np.corrcoef(noise)[np.triu_indices(300, 1)] * np.sqrt(28)
    assert abs(between_models.std() - 1.0) < 0.05
    # Two models sharing their noise would correlate exactly.
    assert np.max(np.abs(between_models)) < 0.95 * np.sqrt(28)


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_of_successive_steps_is_independent(engine: str) -> None:
    def after(steps: int) -> np.ndarray:
        return mechanism(engine, num_steps=steps).train_models(dataset(0), 0, range(100))

    first = after(1) - start(mechanism(engine).config)
    second = after(2) - after(1)
    # 2800 pairs: a correlation beyond 3.3 standard errors has probability 0.001.
    correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
    assert abs(correlation) < 3.3 / np.sqrt(first.size)
    assert second.std() == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_empty_poisson_batches_are_steps_of_noise(engine: str) -> None:
    # At rate 1e-9 every batch is empty: exactly what no records give, and never a crash.
    empty = mechanism(engine, sample_rate=1e-9).train_models(dataset(9), 0, range(3))
    nothing = mechanism(engine).train_models(dataset(0), 0, range(3))
    np.testing.assert_array_equal(empty, nothing)


@pytest.mark.parametrize("engine", ENGINES)
def test_poisson_batches_have_the_claimed_rate_and_differ_between_models(engine: str) -> None:
    # Equal records and one step: the bias moves in proportion to the batch's size.
    features, labels = np.zeros((50, *SHAPE)), np.zeros(50, dtype=int)
    trained = mechanism(engine, sample_rate=0.3, noise_scale=0.0, num_steps=1)
    full = mechanism(engine, noise_scale=0.0, num_steps=1)
    origin = start(trained.config)
    moved = trained.train_models((features, labels), 0, range(200))[:, 24:] - origin[24:]
    whole = full.train_models((features, labels), 0, [0])[0, 24:] - origin[24:]
    sizes = 50.0 * moved[:, 0] / whole[0]
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-3)
    # Binomial(50, 0.3), 200 draws: each within 3.3 standard errors with probability 0.999.
    assert abs(sizes.mean() - 15.0) < 3.3 * np.sqrt(10.5 / 200)
    assert abs(sizes.var() - 10.5) < 3.3 * 10.5 * np.sqrt(2.0 / 200)


def test_engines_draw_the_same_poisson_batches() -> None:
    data = dataset(40)
    results = [
        mechanism(engine, sample_rate=0.3, noise_scale=0.0).train_models(data, 1, [0, 5])
        for engine in ENGINES
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_scale_and_missing_noise_change_the_noise_alone(engine: str) -> None:
    honest = mechanism(engine, num_steps=8)
    origin = start(honest.config)
    noise = honest.train_models(dataset(0), 0, range(20)) - origin
    halved = mechanism(engine, num_steps=8, noise_scale=0.5)
    np.testing.assert_allclose(
        halved.train_models(dataset(0), 0, range(20)) - origin, 0.5 * noise, atol=1e-6
    )
    sparse = mechanism(engine, num_steps=8, defect="noise_every_fourth_step")
    spread = (sparse.train_models(dataset(0), 0, range(20)) - origin).std()
    assert spread == pytest.approx(noise.std() / 2.0, rel=0.15)
    assert honest.claimed_privacy == halved.claimed_privacy == sparse.claimed_privacy


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_depends_on_seed_world_and_index_alone(engine: str) -> None:
    data = dataset(7)
    together = mechanism(engine, sample_rate=0.5).train_models(data, 2, range(6))
    resumed = mechanism(engine, sample_rate=0.5)
    np.testing.assert_array_equal(resumed.train_models(data, 2, [5, 1]), together[[5, 1]])
    np.testing.assert_array_equal(resumed.train_models(data, 2, [3]), together[[3]])
    assert not np.any(resumed.train_models(data, 1, range(6)) == together)
    other = mechanism(engine, sample_rate=0.5, seed=1)
    assert not np.any(other.train_models(data, 2, range(6)) == together)


@pytest.mark.parametrize("engine", ENGINES)
def test_number_of_threads_changes_nothing_and_is_restored(engine: str) -> None:
    data = dataset(50)
    expected = mechanism(engine).train_models(data, 0, [0, 1])
    torch.set_num_threads(2)
    np.testing.assert_array_equal(mechanism(engine).train_models(data, 0, [0, 1]), expected)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_each_call_is_a_new_world_and_new_objects_repeat_them(engine: str) -> None:
    data = dataset(7)
    trained, again = mechanism(engine, observe="loss"), mechanism(engine, observe="loss")
    first, second = trained(data, 3), trained(data, 3)
    assert first.shape == (3, 1) and first.dtype == np.float64
    assert not np.any(first == second)
    np.testing.assert_array_equal(again(data, 3), first)
    np.testing.assert_array_equal(again.train_models(data, 1, range(3)), second)


@pytest.mark.parametrize("engine", ENGINES)
def test_loss_is_the_canarys_cross_entropy(engine: str) -> None:
    data = dataset(7)
    canary = np.arange(6.0), 2
    logits = mechanism(engine, observe="logits", canary=canary).train_models(data, 0, range(3))
    losses = mechanism(engine, observe="loss", canary=canary).train_models(data, 0, range(3))
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[:, 2]
    np.testing.assert_allclose(losses[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_steps_return_the_initial_model_and_claim_nothing(engine: str) -> None:
    trained = mechanism(engine, num_steps=0)
    weights = trained.train_models(dataset(7), 0, [0])
    np.testing.assert_array_equal(weights[0], start(trained.config).astype(np.float64))
    assert read_claim(trained.claimed_privacy[0]) == GaussianDp(0.0)
    if isinstance(trained, OpacusDpSgdMechanism):
        assert trained.accountant_epsilon(1e-5) == 0.0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8])
def test_features_of_any_number_type_train_in_float32(engine: str, dtype: type) -> None:
    features = np.round(np.abs(dataset(7, 20.0)[0])).astype(dtype)
    labels = dataset(7)[1]
    trained = mechanism(engine, noise_scale=0.0)
    np.testing.assert_array_equal(
        trained.train_models((features, labels), 0, [0]),
        trained.train_models((features.astype(np.float32), labels), 0, [0]),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e6, 1e18])
def test_one_record_never_moves_the_sum_by_more_than_the_clipping_norm(
    engine: str, size: float
) -> None:
    # float16 would underflow the norms of the small features and overflow those of the large ones.
    features = np.full((1, *SHAPE), size)
    trained = mechanism(engine, noise_scale=0.0, num_steps=1, learning_rate=1.0, clip_norm=0.25)
    moved = trained.train_models((features, [0]), 0, [0])[0] - start(trained.config)
    assert np.linalg.norm(moved) <= 0.25 * (1 + 1e-5)
    assert np.linalg.norm(moved) >= 0.25 * (1 - 1e-4)


def test_mean_by_the_private_count_leaks_more_than_the_claim() -> None:
    # Two records pulling one way and a canary pulling the other, one step: the mean moves by (S +
    # 2) / (2 * 3) per unit of noise 1/2 or 1/3, while the sum moves by exactly one clipping norm.
    features, labels = np.zeros((3, *SHAPE)), np.array([0, 0, 1])
    common = {
        "noise_scale": 0.0,
        "num_steps": 1,
        "learning_rate": 1.0,
        "clip_norm": 0.1,
        "initial_weights": {"1.weight": np.zeros((2, 6)), "1.bias": np.zeros(2)},
        "num_classes": 2,
        "canary": (np.zeros(SHAPE), 1),
    }

    def shift(defect: str) -> float:
        trained = mechanism("ensemble", **common, defect=defect)
        with_canary = trained.train_models((features, labels), 0, [0])[0]
        without = trained.train_models((features[:2], labels[:2]), 0, [0])[0]
        return float(np.linalg.norm(with_canary - without))

    assert shift("none") == pytest.approx(0.1, rel=1e-4)
    # Noise of the mean over two records is half as large: the leak over it is 4/3 of the claim.
    assert shift("mean_by_private_count") / (0.1 / 2.0) == pytest.approx(4.0 / 3.0, rel=1e-4)


def test_full_batch_claim_is_the_exact_gaussian_one() -> None:
    trained = mechanism("hooks", num_steps=100, noise_multiplier=10.0)
    claims = [read_claim(claim) for claim in trained.claimed_privacy]
    assert claims[0] == GaussianDp(1.0)
    assert RenyiDp(2.0, 1.0) in claims
    assert gaussian_dp_epsilon(1.0, 1e-5) == pytest.approx(4.377178, abs=1e-6)


@pytest.mark.parametrize(("sample_rate", "noise"), [(1.0, 10.0), (0.1, 1.0), (0.5, 1.0)])
def test_opacus_accountant_agrees_with_our_claim(sample_rate: float, noise: float) -> None:
    trained = mechanism("hooks", num_steps=100, noise_multiplier=noise, sample_rate=sample_rate)
    assert isinstance(trained, OpacusDpSgdMechanism)
    theirs = trained.accountant_epsilon(1e-5)
    ours = dp_sgd_epsilon(1e-5, 100, noise, sample_rate)
    assert ours <= theirs * (1 + 1e-6)
    assert theirs <= 1.2 * ours


def test_poisson_claim_is_renyi_dp_only_and_includes_the_known_value() -> None:
    config = DpSgdConfig(**settings(num_steps=1, noise_multiplier=1.0, sample_rate=0.5))
    claims = [read_claim(claim) for claim in config.claimed_privacy]
    assert all(isinstance(claim, RenyiDp) for claim in claims)
    assert {claim.alpha: claim.epsilon for claim in claims}[1.5] == pytest.approx(
        0.235158, abs=1e-5
    )


def test_generators_use_all_bits_of_a_seed() -> None:
    # torch.Generator.manual_seed keeps 32 bits on the CPU: these two would be one stream.
    narrow = [torch.Generator().manual_seed(5 + place) for place in (0, 2**32)]
    assert torch.equal(torch.randn(4, generator=narrow[0]), torch.randn(4, generator=narrow[1]))
    seeds = [np.random.SeedSequence(5 + place) for place in (0, 2**32)]
    wide = [torch.randn(1000, generator=torch_generator(seed)) for seed in seeds]
    assert not torch.any(wide[0] == wide[1])
    again = torch.randn(1000, generator=torch_generator(np.random.SeedSequence(5)))
    assert torch.equal(wide[0], again)


def test_generator_matches_numpys_mersenne_twister() -> None:
    words = np.random.SeedSequence(3).generate_state(624, np.uint32)
    words[0] |= 0x80000000
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    bits = torch.empty(100, dtype=torch.int64)
    bits.random_(0, 2**24, generator=torch_generator(np.random.SeedSequence(3)))
    np.testing.assert_array_equal(bits.numpy(), twister.random_raw(100) % 2**24)


def test_streams_of_a_model_are_distinct_and_leave_its_seed_alone() -> None:
    seed = model_seed(0, 1, 2)
    streams = ModelStreams.of(seed)
    states = {
        tuple(sequence.generate_state(4))
        for sequence in (seed, streams.noise, streams.sampling, model_seed(0, 2, 1))
    }
    assert len(states) == 4
    assert seed.n_children_spawned == 0
    assert ModelStreams.of(seed).noise.generate_state(1) == streams.noise.generate_state(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_training_is_silent(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism(engine).train_models(dataset(3), 0, [0])


@pytest.mark.parametrize("engine", ENGINES)
def test_f3_a_model_that_diverges_is_an_observation(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = mechanism(engine, learning_rate=1e38, observe="loss")
        assert not np.isfinite(trained.train_models(dataset(3), 0, [4])).all()
        assert np.isfinite(trained(dataset(3), 2)).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 6)), "pair"),
        ((np.zeros((3, 5)), [0, 1, 2]), r"shape \(n, 6\)"),
        ((np.zeros((3, 6)), [0, 1]), r"shape \(3,\)"),
        ((np.zeros((3, 6)), [0.0, 1.0, 2.5]), "integers"),
        ((np.zeros((3, 6)), [0, 4, 2]), "4 at index 1"),
        ((np.zeros((3, 6)), [0, 1, -1]), "-1 at index 2"),
        ((np.array([[0.0] * 6, [np.nan] * 6]), [0, 1]), "1 of 2 records.*index 1"),
        ((np.full((1, 6), 1e30), [0]), "finite"),
        ((np.full((1, 6), "a"), [0]), "floats or integers"),
    ],
)
def test_datasets_are_checked_at_the_door(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism("hooks").train_models(data, 0, [0])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"num_steps": 1.0}, "num_steps"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"sample_rate": 1.5}, "sample_rate"),
        ({"gradient_denominator": 0.0}, "gradient_denominator"),
        ({"defect": "wrong"}, "defect"),
        ({"observe": "gradient"}, "observe"),
        ({"canary": (np.zeros(6), 4)}, "canary label"),
        ({"canary": (np.full(6, np.inf), 0)}, "canary features"),
        ({"initial_weights": {}}, "initial_weights"),
        ({"initial_weights": {"1.weight": np.full((4, 6), np.nan)}}, "1.weight"),
        ({"model": 3}, "model"),
    ],
)
def test_configs_name_what_is_wrong(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        DpSgdConfig(**settings(**changes))


def test_padding_that_opacus_takes_for_zeros_is_refused() -> None:
    """Opacus's per-example gradients of such a convolution are those of another network."""

    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 2, 3, padding=1, padding_mode="replicate"),
            *(nn.Flatten(), nn.Linear(12, 4)),
        )

    changes = {"model": build, "initial_weights": weights_of(build())}
    with pytest.raises(
        ValueError, match=r"'1' is Conv2d.*come out wrong; use EnsembleDpSgdMechanism"
    ):
        mechanism("hooks", **changes)
    assert mechanism("ensemble", **changes).train_models(dataset(3), 0, [0]).shape == (1, 72)


def test_config_keeps_its_own_read_only_copies() -> None:
    weights = random_weights("logistic", SHAPE, 4)
    config = DpSgdConfig(**settings(initial_weights=weights))
    weights["1.bias"][:] = 9.0
    assert not np.any(config.initial_weights["1.bias"] == 9.0)
    with pytest.raises(ValueError, match="read-only"):
        config.initial_weights["1.bias"][0] = 1.0
