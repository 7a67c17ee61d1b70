"""SHK samplers that break their claim, each in one way, and a pair of datasets on which it shows.

For tests and benchmarks of auditors: the laws are known, so it is known by how much a claim is
broken.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import OneOf, Real
from dvrenyi_plugin._internal.ranges import LARGEST, check_size
from dvrenyi_plugin._internal.validation import check_int
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid_flow import SHK, FlowPath, run_flow
from dvrenyi_plugin.mechanisms.exponential.defects import (
    DATA_DEPENDENT_START,
    SAMPLER_DEFECTS,
    UNDERSTATED_SENSITIVITY,
    WRONG_TEMPERATURE,
)
from dvrenyi_plugin.mechanisms.exponential.shk import (
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokenShkMechanismConfig(ShkExponentialMechanismConfig):
    """Settings of a broken sampler: those it pretends to follow and:

    Attributes:
      defect: "wrong_temperature" runs at `factor` times the inverse temperature it claims for;
        "data_dependent_start" starts from exp(-factor beta L_D), to be near the optimum at once,
        and stops after a fiftieth of `run_time`, but claims a uniform start and all of `run_time`;
        "understated_sensitivity" divides the sensitivity in its claim by `factor`.
      factor: > 1.
    """

    defect: Annotated[str, OneOf(SAMPLER_DEFECTS)] = WRONG_TEMPERATURE
    factor: Annotated[float, Real(above=1.0, at_most=LARGEST)] = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("factor times inverse_temperature", self.factor * self.inverse_temperature)


class BrokenShkMechanism(ShkExponentialMechanism):
    """An SHK sampler whose `claimed_privacy` does not hold.

    On `balanced_circle_pair(20)` with CircularMeanLoss(num_records=20), inverse_temperature 5,
    run_time 6 and factor 4 the exact D_2 is 1.349, 1.024 and 0.120 for the three defects in the
    order of `SAMPLER_DEFECTS`: 5.1, 3.9 and 5.4 times the claim. The honest sampler has 0.120
    there, 0.46 times its claim.
    """

    config: BrokenShkMechanismConfig

    def __init__(self, config: BrokenShkMechanismConfig) -> None:
        super().__init__(config)

    @property
    def certificate(self) -> Certificate:
        """What is claimed, wrongly."""
        honest = super().certificate
        if self.config.defect != UNDERSTATED_SENSITIVITY:
            return honest
        return dataclasses.replace(
            honest, oscillation_distance=honest.oscillation_distance / self.config.factor
        )

    def flow(self, dataset: Any, record_every: int | None = None) -> FlowPath:
        """Returns the laws along the run that is really made."""
        potential, start, time = (
            self.potential(dataset),
            self.initial_log_density,
            self.config.run_time,
        )
        if self.config.defect == WRONG_TEMPERATURE:
            potential = self.config.factor * potential
        elif self.config.defect == DATA_DEPENDENT_START:
            start, time = -self.config.factor * potential, time / 50.0
        settings = self.config.flow_config(SHK, record_every)
        return run_flow(self.grid, potential, time, start, settings)


def balanced_circle_pair(num_records: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns neighbouring datasets of angles, shape (num_records, 1), on which the circular mean
    leaks most.

    All records but the first are spread evenly over the circle, so they cancel in the loss; the
    first is 0 in one dataset and pi in the other.
    """
    num_records = check_int("num_records", num_records, at_least=3)
    others = 2.0 * math.pi * np.arange(num_records - 1) / (num_records - 1) - math.pi
    first, second = np.concatenate([[0.0], others]), np.concatenate([[math.pi], others])
    return first[:, np.newaxis], second[:, np.newaxis]
