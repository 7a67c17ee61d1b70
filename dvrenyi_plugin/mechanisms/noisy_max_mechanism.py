"""Report noisy max: the index of the largest of several noisy counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from dvrenyi_plugin._validation import (
    check_choice,
    check_int,
    check_order,
    check_real,
    check_samples,
    check_seed,
)
from dvrenyi_plugin.divergences import renyi_from_log_masses, renyi_pure_dp
from dvrenyi_plugin.flows.bounded_range import renyi_of_range
from dvrenyi_plugin.interfaces import (
    PrivacyProperty,
    PureDp,
    RenyiDp,
    as_privacy_property,
    check_num_samples,
)
from dvrenyi_plugin.mechanisms.additive_noise import CallStreams

GUMBEL, LAPLACE = "gumbel", "laplace"
_SEGMENT_NODES = 40
# Laplace noise beyond this many scales has probability below 1e-19.
_TAIL = 45.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxMechanismConfig:
    """Settings of report noisy max.

    Attributes:
      num_candidates: columns that records vote for, >= 2.
      epsilon: claimed pure-DP epsilon, > 0; the noise has scale 2 / epsilon.
      noise: "gumbel" (the exponential mechanism) or "laplace".
      noise_scale: multiplies the noise that is really added and leaves the claim alone, > 0; anything below 1
        breaks the claim on purpose.
      alpha: order of the Rényi DP property that is claimed beside it, > 1.
      seed: where all randomness comes from, >= 0.
    """

    num_candidates: int
    epsilon: float = 1.0
    noise: str = GUMBEL
    noise_scale: float = 1.0
    alpha: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("num_candidates", self.num_candidates, at_least=2)
        check_real("epsilon", self.epsilon, above=0.0)
        check_choice("noise", self.noise, (GUMBEL, LAPLACE))
        check_real("noise_scale", self.noise_scale, above=0.0)
        check_order(self.alpha)
        check_seed(self.seed)


class NoisyMaxMechanism:
    """Releases the index of the candidate with the largest noisy count.

    A record has one vote between 0 and 1 for every candidate (clipped into that interval), so adding, removing or replacing a
    record changes every count by at most 1.

    Formal guarantee: pure epsilon-DP (Dwork and Roth 2014, section 3.3). With Gumbel noise the release is the exponential
    mechanism's, whose log ratio lies in an interval of width epsilon, so it also has the Rényi DP of bounded
    range (Dong, Durfee and Rogers 2020); with Laplace noise, that of pure DP.
    """

    def __init__(self, config: NoisyMaxMechanismConfig) -> None:
        self.config = config
        self._streams = CallStreams(config.seed)

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Pure DP, and Rényi DP at the config's order."""
        config = self.config
        renyi_of = renyi_of_range if config.noise == GUMBEL else renyi_pure_dp
        return [
            as_privacy_property(PureDp(config.epsilon)),
            as_privacy_property(RenyiDp(config.alpha, renyi_of(config.alpha, config.epsilon))),
        ]

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns independent winners, shape (num_samples, 1), whole numbers from 0 to num_candidates - 1.

        Args:
          dataset: votes of shape (n, num_candidates), n >= 0, finite.
          num_samples: outputs wanted, >= 1. Every call of one object uses fresh noise.
        """
        num_samples = check_num_samples(num_samples)
        counts = self._counts(dataset)
        rng = self._streams.next_generator()
        shape = (num_samples, counts.size)
        noise = rng.gumbel(size=shape) if self.config.noise == GUMBEL else rng.laplace(size=shape)
        winners = np.argmax(counts / self._actual_scale + noise, axis=1)
        return np.asarray(winners[:, np.newaxis], dtype=np.float64)

    def winner_law(self, dataset: Any) -> NDArray[np.float64]:
        """Returns each candidate's log probability of being released, shape (num_candidates,), as really drawn."""
        scores = self._counts(dataset) / self._actual_scale
        if self.config.noise == GUMBEL:
            law: NDArray[np.float64] = log_softmax(scores)
            return law
        return np.asarray(np.log(_laplace_winner_probabilities(scores)))

    def exact_renyi_divergence(self, dataset1: Any, dataset2: Any, alpha: float) -> float:
        """Returns D_alpha(law on dataset1 || law on dataset2) of the releases as really drawn."""
        return renyi_from_log_masses(alpha, self.winner_law(dataset1), self.winner_law(dataset2))

    @property
    def _actual_scale(self) -> float:
        return self.config.noise_scale * 2.0 / self.config.epsilon

    def _counts(self, dataset: Any) -> NDArray[np.float64]:
        votes = check_samples("dataset", dataset, min_samples=0)
        if votes.shape[1] != self.config.num_candidates:
            raise ValueError(
                f"dataset must have {self.config.num_candidates} columns, got shape {np.shape(dataset)}"
            )
        counts: NDArray[np.float64] = np.clip(votes, 0.0, 1.0).sum(axis=0)
        return counts


def _laplace_winner_probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns P(i wins) = integral of f(x - s_i) prod_j F(x - s_j), exact up to quadrature near 1e-12.

    The integrand is smooth between the scores: Gauss-Legendre on each piece, the tails cut into pieces of length 5.
    """
    inner = np.unique(scores)
    below = np.arange(inner[0] - _TAIL, inner[0], 5.0)
    above = np.arange(inner[-1] + 5.0, inner[-1] + _TAIL + 1.0, 5.0)
    pieces = [
        np.linspace(a, b, math.ceil((b - a) / 5.0) + 1)[:-1] for a, b in itertools.pairwise(inner)
    ]
    edges = np.concatenate([below, *pieces, inner[-1:], above])
    nodes, weights = np.polynomial.legendre.leggauss(_SEGMENT_NODES)
    half = np.diff(edges)[:, np.newaxis] / 2.0
    x = (edges[:-1, np.newaxis] + half * (1.0 + nodes)).ravel()
    weight = (half * weights).ravel()
    offsets = x - scores[:, np.newaxis]
    density = 0.5 * np.exp(-np.abs(offsets))
    distribution = np.where(offsets < 0.0, density, 1.0 - density)
    wins = []
    for candidate in range(scores.size):
        others = np.prod(np.delete(distribution, candidate, axis=0), axis=0)
        wins.append(float(np.sum(weight * density[candidate] * others)))
    probabilities = np.array(wins)
    return np.asarray(probabilities / probabilities.sum())


__all__ = ["NoisyMaxMechanism", "NoisyMaxMechanismConfig"]
