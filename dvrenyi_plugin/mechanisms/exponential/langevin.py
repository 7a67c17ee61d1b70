"""Langevin (Fokker-Planck) sampling toward exp(-beta L_D) on a grid: the SHK flow without its
reaction.
"""

from __future__ import annotations

import dataclasses

from dvrenyi_plugin.flows.grid_flow import LANGEVIN
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism, FlowMechanismConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LangevinMechanismConfig(FlowMechanismConfig):
    """Settings of the Langevin sampler: those of `FlowMechanismConfig`."""


class LangevinMechanism(FlowMechanism):
    """Releases a point from the Fokker-Planck flow toward exp(-beta L_D), started without a look at
    data.

    Formal guarantee: by the maximum principle alone osc(log rho_t / pi_D) never grows, so the log
    ratio of two neighbours' laws has width at most beta sensitivity + 2 (beta oscillation + osc(log
    rho_0)) at any time. True but weak: without a reaction nothing dimension-free makes the second
    term small. It is here to be compared with.
    """

    config: LangevinMechanismConfig
    dynamics = LANGEVIN

    def __init__(self, config: LangevinMechanismConfig) -> None:
        super().__init__(config)
