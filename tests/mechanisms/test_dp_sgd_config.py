"""Settings of DP-SGD, what they claim, and the random streams below a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dp_sgd_engines import (
    SHAPE,
    mechanism,
    settings,
)

from dvrenyi_plugin.interfaces import GaussianDp, RenyiDp, SubsampledGaussianDp, read_claim
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams, model_seed
from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    random_weights,
)
from dvrenyi_plugin.mechanisms.random_streams import torch_generator
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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


def test_poisson_claim_is_the_accountants_curve_and_its_renyi_dp() -> None:
    config = DpSgdConfig(**settings(num_steps=1, noise_multiplier=1.0, sample_rate=0.5))
    claims = [read_claim(claim) for claim in config.claimed_privacy]
    assert claims[0] == SubsampledGaussianDp(1.0, 0.5, 1)
    assert all(isinstance(claim, RenyiDp) for claim in claims[1:])
    assert {claim.alpha: claim.epsilon for claim in claims[1:]}[1.5] == pytest.approx(
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


def test_config_keeps_its_own_read_only_copies() -> None:
    weights = random_weights("logistic", SHAPE, 4)
    config = DpSgdConfig(**settings(initial_weights=weights))
    weights["1.bias"][:] = 9.0
    assert not np.any(config.initial_weights["1.bias"] == 9.0)
    with pytest.raises(ValueError, match="read-only"):
        config.initial_weights["1.bias"][0] = 1.0
