"""Pairs of laws of which everything is known, for the contract of all testers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.privacy.divergences import renyi_bernoulli, renyi_gaussian, renyi_laplace

Array = NDArray[np.float64]
ORDER = 2.0
_TRUE_SHARE = math.e / (1.0 + math.e)


@dataclasses.dataclass(frozen=True)
class TesterPair:
    """Two laws.

    Attributes:
      name: for test ids.
      draw: (generator, n, m) -> samples of Q, shape (n, d), and of P, shape (m, d).
      divergence: D_2(Q || P).
      log_ratio: log dQ/dP at samples of shape (k, d), shape (k,).
    """

    name: str
    draw: Callable[[np.random.Generator, int, int], tuple[Array, Array]]
    divergence: float
    log_ratio: Callable[[Array], Array]


def _shifted(
    law: Callable[..., Array], shift: float, columns: int
) -> Callable[[Any, int, int], tuple[Array, Array]]:
    def draw(rng: np.random.Generator, n: int, m: int) -> tuple[Array, Array]:
        return law(rng, (n, columns)) + shift, law(rng, (m, columns))

    return draw


def _answers(rng: np.random.Generator, n: int, m: int) -> tuple[Array, Array]:
    true, false = rng.random((n, 1)) < _TRUE_SHARE, rng.random((m, 1)) >= _TRUE_SHARE
    return true.astype(np.float64), false.astype(np.float64)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.normal(size=shape)


def _laplace(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.laplace(size=shape)


PAIRS = (
    TesterPair(
        "gaussian",
        _shifted(_normal, 1.0, 1),
        renyi_gaussian(ORDER, 1.0, 0.0),
        lambda x: x[:, 0] - 0.5,
    ),
    TesterPair(
        "three columns",
        _shifted(_normal, 1.0 / math.sqrt(3.0), 3),
        renyi_gaussian(ORDER, 1.0, 0.0),
        lambda x: x.sum(axis=1) / math.sqrt(3.0) - 0.5,
    ),
    TesterPair(
        "laplace",
        _shifted(_laplace, 1.0, 1),
        renyi_laplace(ORDER, 1.0, 0.0),
        lambda x: np.abs(x[:, 0]) - np.abs(x[:, 0] - 1.0),
    ),
    TesterPair(
        "randomised response",
        _answers,
        renyi_bernoulli(ORDER, _TRUE_SHARE, 1.0 - _TRUE_SHARE),
        lambda x: 2.0 * x[:, 0] - 1.0,
    ),
)
