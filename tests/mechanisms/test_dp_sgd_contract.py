"""What every DP-SGD engine keeps: noise, clipping, batches, numbering and observations."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from dp_sgd_engines import (
    ENGINES,
    NUM_PARAMETERS,
    NUM_WEIGHTS,
    SHAPE,
    dataset,
    mechanism,
    start,
)
from scipy import stats

from dvrenyi_plugin.interfaces import GaussianDp, read_claim
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig
from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    build_model,
    load_weights,
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_has_the_claimed_law_and_is_independent_across_coordinates(engine: str) -> None:
    # Without records the weights are the noise of 3 steps. Kolmogorov-Smirnov and correlation tests
    # at 0.001.
    trained = mechanism(engine, clip_norm=0.5, gradient_denominator=5.0)
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
    moved = (
        trained.train_models((features, labels), 0, range(200))[:, NUM_WEIGHTS:]
        - origin[NUM_WEIGHTS:]
    )
    whole = full.train_models((features, labels), 0, [0])[0, NUM_WEIGHTS:] - origin[NUM_WEIGHTS:]
    sizes = 50.0 * moved[:, 0] / whole[0]
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-3)
    # Binomial(50, 0.3), 200 draws: each within 3.3 standard errors with probability 0.999.
    assert abs(sizes.mean() - 15.0) < 3.3 * np.sqrt(10.5 / 200)
    assert abs(sizes.var() - 10.5) < 3.3 * 10.5 * np.sqrt(2.0 / 200)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_engines_draw_the_same_poisson_batches(engine: str) -> None:
    data = dataset(40)
    expected, found = (
        mechanism(name, sample_rate=0.3, noise_scale=0.0).train_models(data, 1, [0, 5])
        for name in ("ensemble", engine)
    )
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_does_not_depend_on_how_many_records_there_are(engine: str) -> None:
    # The sum's noise is divided once, by the public number: with 40 records as without any.
    def noise(count: int) -> np.ndarray:
        changes = {"num_steps": 1, "gradient_denominator": 20.0}
        data = dataset(count)
        quiet = mechanism(engine, noise_scale=0.0, **changes).train_models(data, 0, [0])
        loud = mechanism(engine, **changes).train_models(data, 0, range(50))
        return np.asarray((loud - quiet) / (0.1 * 2.0 / 20.0))

    few, many = noise(0), noise(40)
    np.testing.assert_allclose(many, few, atol=1e-4)
    assert stats.kstest(many.ravel(), "norm").pvalue > 0.001


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
    # A new object among other random states, as in the process that resumes a run.
    torch.manual_seed(99)
    np.random.default_rng(99).random(10)
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
def test_the_second_call_trains_the_models_of_the_second_dataset(engine: str) -> None:
    trained = mechanism(engine, observe="loss")
    first, second = trained(dataset(7), 3), trained(dataset(7), 3)
    np.testing.assert_array_equal(trained.train_models(dataset(7), 0, range(3)), first)
    np.testing.assert_array_equal(trained.train_models(dataset(7), 1, range(3)), second)


@pytest.mark.parametrize("engine", ENGINES)
def test_observations_are_of_the_same_trained_models(engine: str) -> None:
    canary = np.arange(6.0), 2
    weights, logits, losses, both = (
        mechanism(engine, observe=observe, canary=canary).train_models(dataset(7), 0, range(3))
        for observe in ("weights", "logits", "loss", "loss_and_logits")
    )
    by_hand = weights[:, :NUM_WEIGHTS].reshape(3, 4, 6) @ canary[0] + weights[:, NUM_WEIGHTS:]
    np.testing.assert_allclose(logits, by_hand, atol=1e-5)
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[:, 2]
    np.testing.assert_allclose(losses[:, 0], expected, rtol=1e-12)
    np.testing.assert_array_equal(both, np.hstack([losses, logits]))


@pytest.mark.parametrize("engine", ENGINES)
def test_no_steps_return_the_initial_model_and_claim_nothing(engine: str) -> None:
    trained = mechanism(engine, num_steps=0)
    weights = trained.train_models(dataset(7), 0, [0])
    np.testing.assert_array_equal(weights[0], start(trained.config).astype(np.float64))
    assert read_claim(trained.claimed_privacy[0]) == GaussianDp(0.0)
    if engine != "ensemble":
        assert trained.accountant_epsilon(1e-5) == 0.0  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("engine", ENGINES)
def test_training_is_silent(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What libraries tell their developers.
        warnings.simplefilter("ignore", DeprecationWarning)
        mechanism(engine).train_models(dataset(3), 0, [0])


@pytest.mark.parametrize("engine", ENGINES)
def test_f3_a_model_that_diverges_is_an_observation(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What libraries tell their developers.
        warnings.simplefilter("ignore", DeprecationWarning)
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
def test_bad_datasets_are_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism("ensemble").train_models(data, 0, [0])
