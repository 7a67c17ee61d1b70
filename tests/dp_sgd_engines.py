"""One small DP-SGD training under every engine: what the tests of engines share."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin.mechanisms import (
    DpSgdConfig,
    EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig,
    OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig,
    TfPrivacyDpSgdMechanism,
    TfPrivacyDpSgdMechanismConfig,
    random_weights,
)
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism

SHAPE = (6,)
NUM_WEIGHTS, NUM_PARAMETERS = 24, 28
OPACUS_MODES = ("hooks", "ghost")
_NEEDS_TENSORFLOW = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_privacy") is None,
    reason='TensorFlow Privacy is not installed: pip install ".[tensorflow]"',
)
# Of Opacus the modes, of TensorFlow Privacy the optimizers.
ENGINES = (
    "ensemble",
    *OPACUS_MODES,
    *(pytest.param(name, marks=_NEEDS_TENSORFLOW) for name in ("vectorized", "loop")),
)


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


def mechanism(engine: str, **changes: Any) -> DpSgdMechanism:
    """Returns a mechanism with these settings, by the name of its engine in `ENGINES`."""
    values = settings(**changes)
    if engine == "ensemble":
        return EnsembleDpSgdMechanism(EnsembleDpSgdMechanismConfig(**values))
    if engine in OPACUS_MODES:
        return OpacusDpSgdMechanism(OpacusDpSgdMechanismConfig(**values, grad_sample_mode=engine))
    return TfPrivacyDpSgdMechanism(TfPrivacyDpSgdMechanismConfig(**values, optimizer=engine))


def dataset(
    num_records: int, scale: float = 1.0, shape: tuple[int, ...] = SHAPE
) -> tuple[np.ndarray, np.ndarray]:
    """Returns normal features of this standard deviation and labels of four classes."""
    rng = np.random.default_rng(0)
    features = scale * rng.standard_normal((num_records, *shape))
    return features.astype(np.float32), rng.integers(0, 4, num_records)


def start(config: DpSgdConfig) -> np.ndarray:
    """Returns the initial weights as one vector."""
    return np.concatenate([weight.ravel() for weight in config.initial_weights.values()])
