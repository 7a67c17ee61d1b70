"""The exponential mechanism itself: draws from exp(-beta L_D) on a grid."""

from __future__ import annotations

import dataclasses
from typing import Any

from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.mechanisms.exponential.grid import (
    FloatArray,
    GridMechanism,
    GridMechanismConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialMechanismConfig(GridMechanismConfig):
    """Settings of the exponential mechanism: those of `GridMechanismConfig`."""


class ExponentialMechanism(GridMechanism):
    """Releases a point with density proportional to exp(-beta L_D).

    Formal guarantee: the log ratio of two neighbours' laws has width at most beta times the
    sensitivity, so it is (beta sensitivity)-DP and, by bounded range, (beta sensitivity)^2 /
    8-zCDP. Neighbours: one record added, removed or replaced. Source: McSherry and Talwar (2007);
    Dong, Durfee and Rogers (2020) for the range.
    """

    config: ExponentialMechanismConfig

    def __init__(self, config: ExponentialMechanismConfig) -> None:
        super().__init__(config)

    @property
    def certificate(self) -> Certificate:
        """The floor that the flows' certificates come down to: no initial oscillation is left."""
        return Certificate(
            time=0.0,
            oscillation_distance=self.config.oscillation_distance,
            initial_oscillation1=0.0,
            initial_oscillation2=0.0,
        )

    def _compute_law(self, dataset: Any) -> FloatArray:
        return self.grid.gibbs(self.potential(dataset))
