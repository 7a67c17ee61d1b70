"""The Gaussian mechanism on a clipped sum or mean: a mechanism whose divergences are
known exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import Order, Real
from dvrenyi_plugin.interfaces import (
    GaussianDp,
    PrivacyProperty,
    RenyiDp,
    as_privacy_property,
    check_num_samples,
)
from dvrenyi_plugin.mechanisms.simple.additive_noise import (
    AdditiveNoiseConfig,
    CallStreams,
    clipped_sum,
)
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianMechanismConfig(AdditiveNoiseConfig):
    """Settings of the Gaussian mechanism, those of `AdditiveNoiseConfig` and:

    Attributes:
      noise_multiplier: claimed standard deviation of the noise over the L2 sensitivity, >= 1e-140.
        The claim is mu-GDP with mu = 1 / noise_multiplier, whichever `neighbours` are meant.
      alpha: order of the Rényi DP property that is claimed beside it, > 1.
    """

    noise_multiplier: Annotated[float, Real(at_least=1e-140)] = 1.0
    alpha: Order = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # The claim's mu is its inverse, and alpha mu^2 / 2 must be a float.
        self._check_scale("noise_scale * noise_multiplier * sensitivity", self.noise_std)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise that is really added to the sum."""
        return self.noise_scale * self.noise_multiplier * self.sensitivity


class GaussianMechanism:
    """Adds N(0, (noise_multiplier sensitivity)^2) to every coordinate of a sum clipped in L2.

    Formal guarantee: mu-Gaussian DP with mu = 1 / noise_multiplier, attained by neighbours that
    differ in a record of norm at least clip_norm (Dong, Roth and Su 2022, theorem 2.7). It is a
    statement about real numbers: floating-point noise is fine for auditing, not for a release.
    """

    def __init__(self, config: GaussianMechanismConfig) -> None:
        self.config = config
        self._streams = CallStreams(config.seed)

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Gaussian DP, and the Rényi DP it implies at the config's order."""
        mu = 1.0 / float(self.config.noise_multiplier)  # float32 would overflow
        alpha = self.config.alpha
        return [
            as_privacy_property(GaussianDp(mu)),
            as_privacy_property(RenyiDp(alpha, renyi_gaussian_dp(alpha, mu))),
        ]

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns independent noisy sums (or means), shape (num_samples, d).

        Args:
          dataset: records of shape (n,) or (n, d), n >= 0, finite.
          num_samples: outputs wanted, >= 1. Every call of one object uses fresh noise.
        """
        config = self.config
        num_samples = check_num_samples(num_samples)
        total = clipped_sum(dataset, config.clip_norm, norm_order=2)
        noise = self._streams.next_generator().standard_normal((num_samples, total.size))
        return (total + config.noise_std * noise) / config.public_denominator
