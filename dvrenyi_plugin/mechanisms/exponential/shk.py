"""Exponential-mechanism sampling by the spherical Hellinger-Kantorovich flow, stopped at a finite
time.
"""

from __future__ import annotations

import dataclasses

from dvrenyi_plugin._internal.validation import check_real
from dvrenyi_plugin.flows.grid_flow import SHK
from dvrenyi_plugin.flows.stability import time_for_width
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism, FlowMechanismConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShkExponentialMechanismConfig(FlowMechanismConfig):
    """Settings of the SHK sampler: those of `FlowMechanismConfig`."""


class ShkExponentialMechanism(FlowMechanism):
    """Releases a point from the SHK flow toward exp(-beta L_D), started without a look at data.

    Formal guarantee (neighbours: one record added, removed or replaced), for the program as run at
    any number of
    steps: the log ratio of two neighbours' laws has width at most
        w = beta sensitivity + 2 e^{-run_time} (beta oscillation + osc(log rho_0)),
    so the release is w-DP and w^2/8-zCDP, and has the exact Rényi value of bounded range at every
    order.
    Source: Mustafi and Mukherjee, "On the Stability of Spherical Hellinger-Kantorovich Flows and
    Their Implications for Differential Privacy", Theorem 3; width and discretisation:
    `dvrenyi_plugin.flows`.
    """

    config: ShkExponentialMechanismConfig
    dynamics = SHK

    def __init__(self, config: ShkExponentialMechanismConfig) -> None:
        super().__init__(config)

    def time_for_epsilon(self, epsilon: float) -> float:
        """Returns the least running time, up to rounding, whose pure-DP claim is at most `epsilon`.

        The claim comes down with time to beta times the sensitivity, which is what the exponential
        mechanism claims.
        The law itself may leak less, above all early in the run: from the common start it knows no
        data at time 0. No claim says so, because none is proved for the program.

        Raises:
          ValueError: epsilon is not above beta times the sensitivity: no running time brings the
            claim below that.
        """
        floor = self.config.oscillation_distance
        # Once for what the claim adds, once for the arithmetic here: the claim must not end above
        # epsilon.
        rounding = 2.0 * self.certificate.rounding
        epsilon = check_real("epsilon", epsilon, above=floor + rounding)
        return time_for_width(epsilon - rounding, floor, 2.0 * self.initial_oscillation)
