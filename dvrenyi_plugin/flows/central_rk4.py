"""The paper's own scheme, for comparison: central finite-volume flux and classical Runge-Kutta on one ring.

Its stationary law is not exactly the Gibbs law of the grid, and it needs steps of a quarter of dx^2, so it is
here to reproduce the paper's figures and as the baseline of the benchmarks, not for releases.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._validation import check_choice, check_real
from dvrenyi_plugin.flows.grid import PERIODIC, FloatArray, Grid
from dvrenyi_plugin.flows.splitting import LANGEVIN, SHK

CENTRAL = "central"
REVERSIBLE = "reversible"


def rk4_step_count(grid: Grid, time: float) -> int:
    """Returns the number of steps of at most dx^2 / 4 that reach `time`."""
    return math.ceil(time / (0.25 * grid.axes[0].width ** 2))


def run_rk4(
    grid: Grid,
    potential: ArrayLike,
    time: float,
    initial_log_density: ArrayLike | None = None,
    *,
    dynamics: str = SHK,
    flux: str = CENTRAL,
    max_steps: int | None = None,
) -> FloatArray:
    """Returns log masses after `time`, shape (*batch, cells).

    Args:
      grid: one periodic axis.
      potential: shape (*batch, cells), of moderate range: densities are kept as they are.
      time: >= 0; divided into steps of at most dx^2 / 4.
      initial_log_density: up to a constant; None is uniform.
      dynamics: "shk" or "langevin".
      flux: "central" is the paper's, (rho_i + rho_{i+1})/2 (V_{i+1} - V_i)/dx + (rho_{i+1} - rho_i)/dx;
        "reversible" is the flux of `generator`, to which the splitting converges as h -> 0.
      max_steps: stop after so many steps (for timing a step).

    Source: Mustafi and Mukherjee, appendix A.3 "Setup".
    """
    axis = grid.axes[0]
    if grid.dimension != 1 or axis.boundary != PERIODIC:
        raise ValueError(f"grid must have one periodic axis, got {grid.axes}")
    values = grid.check_values("potential", potential)
    time = check_real("time", time, at_least=0.0)
    check_choice("dynamics", dynamics, (SHK, LANGEVIN))
    check_choice("flux", flux, (CENTRAL, REVERSIBLE))
    dx = axis.width
    log_density = np.zeros(values.shape)
    if initial_log_density is not None:
        log_density = log_density + grid.check_values("initial_log_density", initial_log_density)
    density = np.exp(grid.normalise(log_density)) / dx
    slope = (np.roll(values, -1, axis=-1) - values) / (2.0 * dx)
    target = np.exp(grid.gibbs(values))
    edge = np.sqrt(target * np.roll(target, -1, axis=-1)) / dx

    def rate(rho: FloatArray) -> FloatArray:
        if flux == CENTRAL:
            after = np.roll(rho, -1, axis=-1)
            flow = (after - rho) / dx + (rho + after) * slope
        else:
            ratio = rho / target
            flow = edge * (np.roll(ratio, -1, axis=-1) - ratio)
        change = (flow - np.roll(flow, 1, axis=-1)) / dx
        if dynamics == SHK:
            log_ratio = np.log(rho) + values
            mean = (rho * log_ratio).sum(axis=-1, keepdims=True) * dx
            change -= (log_ratio - mean) * rho
        return np.asarray(change)

    num_steps = rk4_step_count(grid, time)
    h = time / num_steps if num_steps else 0.0
    for _ in range(num_steps if max_steps is None else min(max_steps, num_steps)):
        k1 = rate(density)
        k2 = rate(density + h / 2.0 * k1)
        k3 = rate(density + h / 2.0 * k2)
        k4 = rate(density + h * k3)
        density = density + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return grid.normalise(np.log(density))
