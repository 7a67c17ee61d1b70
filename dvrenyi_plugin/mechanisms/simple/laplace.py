"""The Laplace mechanism on a clipped sum or mean: pure DP with exactly known divergences."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import Order, Positive
from dvrenyi_plugin.interfaces import (
    PrivacyProperty,
    PureDp,
    RenyiDp,
    as_privacy_property,
    check_num_samples,
)
from dvrenyi_plugin.mechanisms.simple.additive_noise import (
    AdditiveNoiseConfig,
    CallStreams,
    clipped_sum,
)
from dvrenyi_plugin.privacy.divergences import renyi_laplace


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceMechanismConfig(AdditiveNoiseConfig):
    """Settings of the Laplace mechanism, those of `AdditiveNoiseConfig` and:

    Attributes:
      epsilon: claimed pure-DP epsilon, > 0; the noise has scale sensitivity / epsilon.
      alpha: order of the Rényi DP property that is claimed beside it, > 1.
    """

    epsilon: Positive = 1.0
    alpha: Order = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_scale("noise_scale * sensitivity / epsilon", self.noise_width)

    @property
    def noise_width(self) -> float:
        """Scale of the Laplace noise that is really added to the sum."""
        return self.noise_scale * self.sensitivity / float(self.epsilon)


class LaplaceMechanism:
    """Adds Laplace(sensitivity / epsilon) noise to every coordinate of a sum clipped in L1.

    Formal guarantee: pure epsilon-DP (Dwork, McSherry, Nissim and Smith 2006), and Rényi DP with
    the divergence of two Laplace laws one sensitivity apart (Mironov 2017, proposition 6), which a
    record along one axis attains and no other exceeds. It is a statement about real numbers:
    floating-point noise is fine for auditing, not for a release.
    """

    def __init__(self, config: LaplaceMechanismConfig) -> None:
        self.config = config
        self._streams = CallStreams(config.seed)

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Pure DP, and the exact Rényi DP at the config's order."""
        epsilon, alpha = self.config.epsilon, self.config.alpha
        return [
            as_privacy_property(PureDp(epsilon)),
            as_privacy_property(RenyiDp(alpha, renyi_laplace(alpha, 0.0, epsilon))),
        ]

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns independent noisy sums (or means), shape (num_samples, d).

        Args:
          dataset: records of shape (n,) or (n, d), n >= 0, finite.
          num_samples: outputs wanted, >= 1. Every call of one object uses fresh noise.
        """
        config = self.config
        num_samples = check_num_samples(num_samples)
        total = clipped_sum(dataset, config.clip_norm, norm_order=1)
        noise = self._streams.next_generator().laplace(size=(num_samples, total.size))
        return (total + config.noise_width * noise) / config.public_denominator
