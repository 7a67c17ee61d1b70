"""What the samplers that run a flow share: a start that knows no data, a running time, its
certificate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from dvrenyi_plugin._internal.limits import Allowed
from dvrenyi_plugin._internal.ranges import check_size
from dvrenyi_plugin._internal.validation import check_callable
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid_flow import SHK, FlowConfig, FlowPath, run_flow
from dvrenyi_plugin.flows.transport.lines import AUTO
from dvrenyi_plugin.mechanisms.exponential.grid import (
    FloatArray,
    GridMechanism,
    GridMechanismConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowMechanismConfig(GridMechanismConfig):
    """Settings of a flow on a grid: those of `GridMechanismConfig` and:

    Attributes:
      run_time: flow time t >= 0.
      num_steps: steps of the splitting, 1 to 1,000,000; None takes ten per unit of time, at most
        1,000. The claim holds for any number.
      transport: "auto", "exponential" or "implicit"; see `dvrenyi_plugin.flows.transport.lines`.
      start: maps midpoints of shape (m, d) to log rho_0 up to a constant, shape (m,), without a
        look at data; None is uniform.
    """

    run_time: Annotated[float, Allowed(check_size)]
    num_steps: int | None = None
    transport: str = AUTO
    start: Annotated[Callable[[FloatArray], Any], Allowed(check_callable)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flow_config(SHK)

    def flow_config(self, dynamics: str, record_every: int | None = None) -> FlowConfig:
        """Returns how the flow is advanced."""
        return FlowConfig(
            dynamics=dynamics,
            num_steps=self.num_steps,
            transport=self.transport,
            max_jump=self.max_jump,
            record_every=record_every,
        )


class FlowMechanism(GridMechanism):
    """A flow from a data-free start, stopped at `run_time`, then a draw from its law."""

    config: FlowMechanismConfig
    dynamics = SHK

    def __init__(self, config: FlowMechanismConfig) -> None:
        super().__init__(config)
        # log rho_0 at the midpoints, up to a constant, shape grid.shape.
        self.initial_log_density: FloatArray = (
            np.zeros(self.grid.shape)
            if config.start is None
            else self.grid.evaluate(config.start, "start")
        )

    @property
    def initial_oscillation(self) -> float:
        """Bound on osc(log rho_0 / pi_D) over all datasets: the start's own plus beta times the
        loss's.
        """
        return (
            float(self.grid.oscillation(self.initial_log_density))
            + self.config.potential_oscillation
        )

    @property
    def certificate(self) -> Certificate:
        """What holds for every pair of neighbours at `run_time`, without a look at data."""
        return Certificate(
            time=self.config.run_time,
            oscillation_distance=self.config.oscillation_distance,
            initial_oscillation1=self.initial_oscillation,
            initial_oscillation2=self.initial_oscillation,
            has_reaction=self.dynamics == SHK,
        )

    def pair_certificate(self, dataset1: Any, dataset2: Any) -> Certificate:
        """Returns the certificate of one known pair of datasets: sharper, but it looks at
        the data.
        """
        return Certificate.for_pair(
            self.grid,
            self.potential(dataset1),
            self.potential(dataset2),
            self.config.run_time,
            self.initial_log_density,
            has_reaction=self.dynamics == SHK,
        )

    def flow(self, dataset: Any, record_every: int | None = None) -> FlowPath:
        """Returns the laws along the run; the last one is `grid_law`."""
        return run_flow(
            self.grid,
            self.potential(dataset),
            self.config.run_time,
            self.initial_log_density,
            self.config.flow_config(self.dynamics, record_every),
        )

    def _compute_law(self, dataset: Any) -> FloatArray:
        return self.flow(dataset).final
