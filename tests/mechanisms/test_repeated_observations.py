"""Models that repeat each other are noticed; honest laws that are rounded are not."""

import numpy as np
import pytest

from dvrenyi_plugin.mechanisms.repeated_observations import check_independent

MESSAGE = "models must be independent, got .* The likely cause is a seed set inside the training"


def from_seeds(num_models: int, num_seeds: int, columns: int = 1) -> np.ndarray:
    seeds = np.random.default_rng(0).integers(num_seeds, size=num_models)
    return np.stack([np.random.default_rng(seed).standard_normal(columns) for seed in seeds])


@pytest.mark.parametrize(
    ("num_models", "num_seeds"), [(10, 1), (10, 4), (20, 2), (200, 4), (200, 100), (1000, 20_000)]
)
@pytest.mark.parametrize("columns", [1, 3])
def test_e9_few_seeds_are_noticed(num_models: int, num_seeds: int, columns: int) -> None:
    rows = from_seeds(num_models, num_seeds, columns)
    with pytest.raises(ValueError, match=MESSAGE):
        check_independent(rows, "models")
    with pytest.raises(ValueError, match=MESSAGE):
        check_independent(rows.astype(np.float32).astype(np.float64), "models")


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(lambda rng, n: rng.integers(2, size=(n, 1)), id="0 or 1"),
        pytest.param(lambda rng, n: rng.binomial(100, 0.9, size=(n, 1)) / 100, id="accuracy"),
        pytest.param(lambda rng, n: np.round(rng.normal(2, 0.1, (n, 1)), 2), id="rounded"),
    ],
)
def test_e9_discrete_observations_must_be_declared(law) -> None:
    rows = np.asarray(law(np.random.default_rng(0), 200), dtype=np.float64)
    with pytest.raises(ValueError, match="declare it: discrete_outputs=True"):
        check_independent(rows, "models")


# The rule's false-alarm probability is 1e-9: none of these 4,800 samples may stop an audit.
@pytest.mark.parametrize("deviation", [1.0, 1e-3, 1e-5, 3e-6])
@pytest.mark.parametrize("num_models", [10, 200, 3000])
def test_e9_honest_laws_in_float32_go_through(deviation: float, num_models: int) -> None:
    rng = np.random.default_rng(num_models)
    repeated = 0
    for _ in range(400 if num_models < 3000 else 100):
        losses = 2.3 + deviation * rng.standard_normal((num_models, 1))
        rows = losses.astype(np.float32).astype(np.float64)
        repeated += len(np.unique(rows)) < num_models
        check_independent(rows, "models")
    if deviation <= 1e-5 and num_models == 3000:
        assert repeated == 100  # the rule had something to explain


def test_e9_a_loss_that_saturates_goes_through() -> None:
    rng = np.random.default_rng(0)
    losses = np.maximum(rng.standard_normal((200, 1)), 0.0)
    assert (losses == 0.0).sum() > 50
    check_independent(losses, "models")
    check_independent(np.clip(rng.standard_normal((200, 2)), -0.5, 0.5), "models")


def test_e9_what_is_not_finite_is_no_repetition() -> None:
    losses = np.random.default_rng(0).standard_normal((50, 1))
    losses[:20] = np.inf
    losses[20:40] = np.nan
    check_independent(losses, "models")


def test_e9_one_or_no_model_is_no_repetition() -> None:
    check_independent(np.zeros((1, 1)), "models")
    check_independent(np.zeros((0, 1)), "models")


# float32 gives -log softmax in steps of 2^-23 near 0, far coarser than float32 itself is there.
@pytest.mark.parametrize("num_models", [50, 200, 1000])
@pytest.mark.parametrize("margin", [3.0, 5.0, 7.0, 9.0])
def test_small_losses_of_a_float32_softmax_go_through(margin: float, num_models: int) -> None:
    rng = np.random.default_rng(num_models)
    for _ in range(20):
        odds = np.exp(-(margin + 0.2 * rng.standard_normal((num_models, 1)))).astype(np.float32)
        losses = np.log(np.float32(1.0) + odds)
        assert losses.dtype == np.float32
        check_independent(losses.astype(np.float64), "models")


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e9])
@pytest.mark.parametrize(("num_models", "num_seeds"), [(50, 4), (200, 10), (200, 50)])
def test_few_seeds_are_noticed_at_every_scale(
    num_models: int, num_seeds: int, scale: float
) -> None:
    for columns in (1, 3):
        with pytest.raises(ValueError, match=MESSAGE):
            check_independent(scale * from_seeds(num_models, num_seeds, columns), "models")


def test_cells_of_different_octaves_are_different() -> None:
    # One seed in 20 of 200 models, and values that only a power of two sets apart.
    rows = np.concatenate([np.full(20, 1.1), 1.3 * 2.0 ** np.arange(-90, 90)])[:, np.newaxis]
    with pytest.raises(ValueError, match="in 20"):
        check_independent(rows, "models")
