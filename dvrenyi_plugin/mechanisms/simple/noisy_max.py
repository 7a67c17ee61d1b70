"""Report noisy max: the index of the largest of several noisy counts."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Order, Positive, Seed
from dvrenyi_plugin._internal.validation import (
    check_real,
    check_samples,
)
from dvrenyi_plugin.interfaces import (
    PrivacyProperty,
    PureDp,
    RenyiDp,
    as_privacy_property,
    check_num_samples,
)
from dvrenyi_plugin.mechanisms.simple.additive_noise import CallStreams
from dvrenyi_plugin.privacy.bounded_range import renyi_of_range
from dvrenyi_plugin.privacy.divergences import renyi_from_log_masses, renyi_pure_dp

GUMBEL, LAPLACE = "gumbel", "laplace"
Array = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_PIECE = 5.0
# Laplace noise beyond this many scales has probability below 1e-19.
_REACH = 45.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaxMechanismConfig(CheckedSettings):
    """Settings of report noisy max.

    Attributes:
      num_candidates: columns that records vote for, >= 2.
      epsilon: claimed pure-DP epsilon, > 0; the noise has scale 2 / epsilon.
      noise: "gumbel" (the exponential mechanism) or "laplace".
      noise_scale: multiplies the noise that is really added and leaves the claim alone, > 0;
        anything below 1 breaks the claim on purpose.
      alpha: order of the Rényi DP property that is claimed beside it, > 1.
      seed: where all randomness comes from, >= 0.
    """

    num_candidates: Annotated[int, Int(at_least=2)]
    epsilon: Positive = 1.0
    noise: Annotated[str, OneOf((GUMBEL, LAPLACE))] = GUMBEL
    noise_scale: Positive = 1.0
    alpha: Order = 2.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        # Counts over this, and their differences, must be floats.
        actual_scale = self.noise_scale * (2.0 / self.epsilon)
        check_real("noise_scale * 2 / epsilon", actual_scale, at_least=1e-290, at_most=1e290)


class NoisyMaxMechanism:
    """Releases the index of the candidate with the largest noisy count.

    A record has one vote between 0 and 1 for every candidate (clipped into that interval), so
    adding, removing or replacing a record changes every count by at most 1.

    Formal guarantee: pure epsilon-DP (Dwork and Roth 2014, section 3.3). With Gumbel noise the
    release is the exponential mechanism's, whose log ratio lies in an interval of width epsilon, so
    it also has the Rényi DP of bounded range (Dong, Durfee and Rogers 2020); with Laplace noise,
    that of pure DP.
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
        """Returns independent winners, shape (num_samples, 1), whole numbers from 0 to
        num_candidates - 1.

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
        """Returns each candidate's log probability of being released, shape (num_candidates,), as
        really drawn.
        """
        scores = self._counts(dataset) / self._actual_scale
        if self.config.noise == GUMBEL:
            law: NDArray[np.float64] = log_softmax(scores)
            return law
        return _laplace_winner_law(scores)

    def exact_renyi_divergence(self, dataset1: Any, dataset2: Any, alpha: float) -> float:
        """Returns D_alpha(law on dataset1 || law on dataset2) of the releases as really drawn."""
        return renyi_from_log_masses(alpha, self.winner_law(dataset1), self.winner_law(dataset2))

    @property
    def _actual_scale(self) -> float:
        return self.config.noise_scale * (2.0 / self.config.epsilon)

    def _counts(self, dataset: Any) -> NDArray[np.float64]:
        votes = check_samples("dataset", dataset, min_samples=0)
        if votes.shape[1] != self.config.num_candidates:
            raise ValueError(
                f"dataset must have {self.config.num_candidates} columns, got shape"
                f" {np.shape(dataset)}"
            )
        counts: NDArray[np.float64] = np.clip(votes, 0.0, 1.0).sum(axis=0)
        return counts


def _laplace_winner_law(scores: Array) -> Array:
    """Returns log P(i wins) = log of the integral of f(x - s_i) prod_{j != i} F(x - s_j), shape
    (k,).

    Between two scores each log F is a line below its own score, and 0 to rounding `_REACH` above
    it; log f is a line. So the integrand's logarithm is a line, integrated in closed form, but for
    the first `_REACH` above a score, where Gauss-Legendre on short pieces is exact to rounding.
    Neither the gaps nor the number of records add to the work.
    """
    starts = np.unique(scores)
    ends = np.append(starts[1:], np.inf)
    curved = np.concatenate(
        [_pieces(a, min(b, a + _REACH)) for a, b in zip(starts, ends, strict=True)]
    )
    half = np.diff(curved, axis=1) / 2.0
    nodes = (curved[:, :1] + half * (1.0 + _NODES)).ravel()
    with np.errstate(divide="ignore"):  # scores may be neighbouring floats
        log_weights = np.log(half * _WEIGHTS).ravel()
    straight = ends > starts + _REACH
    low, high = starts[straight] + _REACH, ends[straight]
    # The integrand falls with slope -1 above the last score: e^-_REACH of it lies beyond this end.
    high = np.minimum(high, low + np.where(np.isinf(high), _REACH, np.inf))
    lowest = starts[:1]
    below = math.log(scores.size)
    parts = []
    all_at = [_log_distributions(x, scores) for x in (nodes, low, high, lowest)]
    for score in scores:
        at_nodes, at_low, at_high, at_lowest = (
            total + _log_density(x - score) - _log_distribution(x - score)
            for total, x in zip(all_at, (nodes, low, high, lowest), strict=True)
        )
        parts.append(
            logsumexp(
                np.concatenate(
                    [
                        at_nodes + log_weights,
                        _log_line_integral(at_low, at_high, high - low),
                        at_lowest - below,
                    ]
                )
            )
        )
    law: Array = log_softmax(np.array(parts))
    return law


def _pieces(low: float, high: float) -> Array:
    """Returns pieces of [low, high] of length at most `_PIECE`, shape (count, 2)."""
    edges = np.linspace(low, high, max(1, math.ceil((high - low) / _PIECE)) + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _log_density(offsets: Array) -> Array:
    return -np.abs(offsets) - math.log(2.0)


def _log_distribution(offsets: Array) -> Array:
    above = np.log1p(-0.5 * np.exp(-np.maximum(offsets, 0.0)))
    return np.where(offsets < 0.0, offsets - math.log(2.0), above)


def _log_distributions(x: Array, scores: Array) -> Array:
    total = np.zeros(x.size)
    for score in scores:
        total += _log_distribution(x - score)
    return total


def _log_line_integral(at_low: Array, at_high: Array, length: Array) -> Array:
    """Returns the log of the integral of the exponential of a line, from its values at
    both ends.
    """
    top, fall = np.maximum(at_low, at_high), np.abs(at_high - at_low)
    mean = np.where(fall > 0.0, -np.expm1(-fall) / np.where(fall > 0.0, fall, 1.0), 1.0)
    with np.errstate(divide="ignore"):  # no length, or a line that falls at once: nothing
        return np.asarray(top + np.log(length) + np.log(mean))


__all__ = ["NoisyMaxMechanism", "NoisyMaxMechanismConfig"]
