"""SHK, Langevin (Fokker-Planck) and birth-death flows on a grid, by exact splitting.

    d rho/dt = div(grad rho + rho grad V) - (s - E_rho s) rho
               transport (Langevin)         reaction (birth-death)

with s = log(rho / pi) and pi = exp(-V) / Z.

The state is s up to a constant. One step of length h is half a reaction, transport along the axes
there and back, half a reaction. The reaction has a closed form, s -> exp(-h/2) s; transport is
Markov and shrinks the oscillation (`transport`). Hence for every step size, not only as h -> 0,

    osc(s_t) <= exp(-t) osc(s_0)    for SHK and birth-death,
    osc(s_t) <= osc(s_0)            without the reaction,

which is Theorem 1's lemma for the program as run. The splitting is symmetric, so the law itself is
second order in h.

Source: "On the Stability of Spherical Hellinger-Kantorovich Flows and Their Implications for
Differential Privacy" (Mustafi and Mukherjee), section 3 and Theorem 1; the splitting and its
certificate are ours.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.limits import Allowed, CheckedSettings, Count, Int, OneOf
from dvrenyi_plugin._internal.ranges import MOST_STEPS, check_kind, check_max_jump, check_size
from dvrenyi_plugin.flows.grid import FloatArray, Grid
from dvrenyi_plugin.flows.transport.generator import DEFAULT_MAX_JUMP, check_resolution
from dvrenyi_plugin.flows.transport.lines import (
    AUTO,
    TRANSPORTS,
    LineTransport,
    make_line_transport,
)

SHK = "shk"
LANGEVIN = "langevin"
BIRTH_DEATH = "birth_death"
DYNAMICS = (SHK, LANGEVIN, BIRTH_DEATH)

_STEPS_PER_UNIT = 10
# A hundred units of time: e^{-100} of the start is left, which no double shows.
_MOST_DEFAULT_STEPS = 1_000


@dataclasses.dataclass(frozen=True)
class FlowConfig(CheckedSettings):
    """How a flow is advanced.

    Attributes:
      dynamics: "shk", "langevin" or "birth_death".
      num_steps: steps of equal length, 1 to 1,000,000; None takes ten per unit of time, at most
        1,000. Certificates hold for any number.
      transport: "exponential", "implicit" or "auto"; see `transport`.
      extrapolation_order: of implicit transport, 1 to 6; 1 is plain backward Euler.
      max_jump: largest difference of the potential between neighbouring cells, inf for no check.
      record_every: record the law every so many steps; None records start and end only.
    """

    dynamics: Annotated[str, OneOf(DYNAMICS)] = SHK
    num_steps: Annotated[int, Int(at_least=1, at_most=MOST_STEPS)] | None = None
    transport: Annotated[str, OneOf(TRANSPORTS)] = AUTO
    extrapolation_order: Annotated[int, Int(at_least=1, at_most=6)] = 4
    max_jump: Annotated[float, Allowed(check_max_jump)] = DEFAULT_MAX_JUMP
    record_every: Count | None = None

    def steps_for(self, time: float) -> int:
        """Returns the number of steps to reach `time`: 0 at time 0."""
        time = check_size("time", time)
        if time == 0.0:
            return 0
        return self.num_steps or max(1, math.ceil(min(_STEPS_PER_UNIT * time, _MOST_DEFAULT_STEPS)))


@dataclasses.dataclass(frozen=True)
class FlowPath:
    """The laws along one run.

    Attributes:
      grid: where the laws live.
      times: shape (k,), the recorded times, from 0 to the end.
      log_masses: shape (k, *batch, *grid.shape); every law's masses sum to one.
      log_target: shape (*batch, *grid.shape), log masses of pi.
      step_times: shape (num_steps + 1,), the time after every step.
      oscillations: shape (num_steps + 1, *batch), osc(log rho/pi) after every step.
    """

    grid: Grid
    times: FloatArray
    log_masses: FloatArray
    log_target: FloatArray
    step_times: FloatArray
    oscillations: FloatArray

    @property
    def final(self) -> FloatArray:
        """Log masses at the end, shape (*batch, *grid.shape)."""
        return np.asarray(self.log_masses[-1])


def run_flow(
    grid: Grid,
    potential: ArrayLike,
    time: float,
    initial_log_density: ArrayLike | None = None,
    config: FlowConfig | None = None,
) -> FlowPath:
    """Returns the laws of a flow from a common start to `time`.

    Args:
      grid: one to three axes.
      potential: V at the cells' midpoints, shape (*batch, *grid.shape), finite.
        `grid.evaluate(function)` makes it from a callable. Constants do not matter.
      time: how long to run, from 0 to 1e100.
      initial_log_density: log rho_0 up to a constant, broadcastable to the potential; None is
        uniform.
      config: how to advance; default `FlowConfig()`.

    Raises:
      ValueError: a non-finite potential or start, a negative time, a grid too coarse for the
        potential.
    """
    config = config or FlowConfig()
    check_kind("grid", grid, Grid)
    check_kind("config", config, FlowConfig)
    values = grid.check_values("potential", potential)
    time = check_size("time", time)
    check_resolution(grid, values, config.max_jump)
    start: Any = 0.0 if initial_log_density is None else initial_log_density
    if initial_log_density is not None:
        start = grid.check_values("initial_log_density", initial_log_density)
    log_target = grid.gibbs(values)
    log_ratio = np.array(np.broadcast_to(start - log_target, values.shape))
    # Centred, so that rounding is relative to half of the oscillation.
    axes = grid.cell_axes()
    log_ratio -= (
        log_ratio.max(axis=axes, keepdims=True) + log_ratio.min(axis=axes, keepdims=True)
    ) / 2

    num_steps = config.steps_for(time)
    records, recorded_at, oscillations = _advance(
        grid, (values, log_target, log_ratio), time, num_steps, config
    )
    step_times = np.linspace(0.0, time, num_steps + 1)
    return FlowPath(
        grid=grid,
        times=step_times[recorded_at],
        log_masses=np.stack(records),
        log_target=log_target,
        step_times=step_times,
        oscillations=np.stack(oscillations),
    )


def _advance(
    grid: Grid,
    start: tuple[FloatArray, FloatArray, FloatArray],
    time: float,
    num_steps: int,
    config: FlowConfig,
) -> tuple[list[FloatArray], list[int], list[FloatArray]]:
    """Returns the recorded laws, the steps after which they were recorded, and all oscillations."""
    values, log_target, log_ratio = start
    axes = grid.cell_axes()
    step = time / num_steps if num_steps else 0.0
    # Rounded down: the product of all factors must not exceed exp(-time).
    decay = math.nextafter(math.exp(-step / 2.0), 0.0)
    sweep = _Sweep(grid, values, step, config) if step and config.dynamics != BIRTH_DEATH else None

    records, recorded_at = [grid.normalise(log_target + log_ratio)], [0]
    oscillations = [grid.oscillation(log_ratio)]
    for k in range(1, num_steps + 1):
        if config.dynamics != LANGEVIN:
            log_ratio *= decay
        if sweep is not None:
            log_ratio = sweep.apply(log_ratio)
        if config.dynamics != LANGEVIN:
            log_ratio *= decay
        oscillations.append(np.ptp(log_ratio, axis=axes))
        if k == num_steps or (config.record_every and k % config.record_every == 0):
            records.append(grid.normalise(log_target + log_ratio))
            recorded_at.append(k)
    return records, recorded_at, oscillations


class _Sweep:
    """Transport along axes 0, 1, ..., last, ..., 1, 0: half a step each but a full one of
    the last.
    """

    def __init__(self, grid: Grid, potential: FloatArray, step: float, config: FlowConfig) -> None:
        self._lines: list[tuple[int, LineTransport]] = []
        for k, axis in enumerate(grid.axes):
            array_axis = k - grid.dimension
            stacked = np.ascontiguousarray(np.moveaxis(potential, array_axis, -1))
            is_last = k == grid.dimension - 1
            transport = make_line_transport(
                stacked.reshape(-1, axis.cells),
                axis,
                step if is_last else step / 2.0,
                config.transport,
                config.extrapolation_order,
            )
            self._lines.append((array_axis, transport))
        self._lines += self._lines[-2::-1]

    def apply(self, log_ratio: FloatArray) -> FloatArray:
        for array_axis, transport in self._lines:
            moved = np.moveaxis(log_ratio, array_axis, -1)
            lines = transport.apply(moved.reshape(-1, moved.shape[-1]))
            log_ratio = np.moveaxis(lines.reshape(moved.shape), -1, array_axis)
        return np.ascontiguousarray(log_ratio)
