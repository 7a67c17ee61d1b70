"""What Opacus alone has: physical batches, an accountant, and layers that it gets wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dp_sgd_engines import (
    dataset,
    mechanism,
    settings,
)
from torch import nn

from dvrenyi_plugin.mechanisms.dp_sgd.networks import (
    weights_of,
)
from dvrenyi_plugin.mechanisms.dp_sgd.opacus import (
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
)
from dvrenyi_plugin.privacy.conversions import dp_sgd_epsilon


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("engine", ["hooks", "ghost"])
def test_physical_batches_accumulate_and_the_noise_comes_once(engine: str) -> None:
    data = dataset(11)
    config = settings(grad_sample_mode=engine)
    whole = OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**config))
    parts = OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**config, max_physical_batch_size=4))
    np.testing.assert_allclose(
        parts.train_models(data, 0, [0, 1]), whole.train_models(data, 0, [0, 1]), atol=1e-6
    )


@pytest.mark.parametrize(("sample_rate", "noise"), [(1.0, 10.0), (0.1, 1.0), (0.5, 1.0)])
def test_opacus_accountant_agrees_with_our_claim(sample_rate: float, noise: float) -> None:
    trained = mechanism("hooks", num_steps=100, noise_multiplier=noise, sample_rate=sample_rate)
    assert isinstance(trained, OpacusDpSgdMechanism)
    theirs = trained.accountant_epsilon(1e-5)
    ours = dp_sgd_epsilon(1e-5, 100, noise, sample_rate)
    assert ours <= theirs * (1 + 1e-6)
    assert theirs <= 1.2 * ours


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
