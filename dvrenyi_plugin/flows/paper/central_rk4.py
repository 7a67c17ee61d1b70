"""The paper's own scheme, for comparison: central finite-volume flux and classical Runge-Kutta on
one ring.

Its stationary law is not exactly the Gibbs law of the grid, and it needs steps of a quarter of
dx^2, so it is here to reproduce the paper's figures and as the baseline of the benchmarks, not for
releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.ranges import check_kind, check_size, check_step_count
from dvrenyi_plugin._internal.validation import check_choice, check_int
from dvrenyi_plugin.flows.grid import PERIODIC, FloatArray, Grid
from dvrenyi_plugin.flows.grid_flow import LANGEVIN, SHK

CENTRAL = "central"
REVERSIBLE = "reversible"

# Densities and the rates between neighbours stay in the range of a float.
_LARGEST_RANGE = 600.0

# Some ten seconds; the paper's experiments take up to 26,000.
_MOST_STEPS = 50_000


def rk4_step_count(grid: Grid, time: float) -> int:
    """Returns the number of steps of at most dx^2 / 4 that reach `time`."""
    check_kind("grid", grid, Grid)
    return math.ceil(check_size("time", time) / (0.25 * grid.axes[0].width ** 2))


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
      potential: shape (*batch, cells), max - min at most 600: densities are kept as they are.
      time: >= 0; divided into steps of at most dx^2 / 4, of which at most 1,000,000 are made.
      initial_log_density: up to a constant; None is uniform.
      dynamics: "shk" or "langevin".
      flux: "central" is the paper's, (rho_i + rho_{i+1})/2 (V_{i+1} - V_i)/dx + (rho_{i+1} -
        rho_i)/dx; "reversible" is the flux of `generator`, to which the splitting converges as h ->
        0.
      max_steps: stop after so many steps (for timing a step).

    Raises:
      ValueError: more steps than that, arguments out of range, or a law that leaves the positive
        numbers because the potential is too steep for this scheme.

    Source: Mustafi and Mukherjee, appendix A.3 "Setup".
    """
    check_kind("grid", grid, Grid)
    axis = grid.axes[0]
    if grid.dimension != 1 or axis.boundary != PERIODIC:
        raise ValueError(f"grid must have one periodic axis, got {grid.axes}")
    values = grid.check_values("potential", potential)
    num_steps = rk4_step_count(grid, time)
    h = float(time) / num_steps if num_steps else 0.0
    if max_steps is not None:
        num_steps = min(num_steps, check_int("max_steps", max_steps, at_least=0))
    check_step_count(num_steps, "time (in steps of a quarter of the squared cell width)")
    if max_steps is None and num_steps > _MOST_STEPS:
        raise ValueError(
            f"time must take at most {_MOST_STEPS:,} steps on this grid unless max_steps is given,"
            f" got {time!r}, which takes {num_steps:,}; `run_flow` takes a few for any time"
        )
    check_choice("dynamics", dynamics, (SHK, LANGEVIN))
    check_choice("flux", flux, (CENTRAL, REVERSIBLE))
    log_density = np.zeros(values.shape)
    if initial_log_density is not None:
        log_density = log_density + grid.check_values("initial_log_density", initial_log_density)
    for name, array in (("potential", values), ("initial_log_density", log_density)):
        if float(np.max(grid.oscillation(array))) > _LARGEST_RANGE:
            raise ValueError(
                f"{name} must vary by at most {_LARGEST_RANGE:g}, got"
                f" {float(np.max(grid.oscillation(array))):.4g}"
            )
    density = np.exp(grid.normalise(log_density)) / axis.width
    density = _runge_kutta(_rate_of(grid, values, dynamics, flux), density, h, num_steps)
    return grid.normalise(np.log(density))


def _runge_kutta(
    rate: Callable[[FloatArray], FloatArray], density: FloatArray, h: float, num_steps: int
) -> FloatArray:
    with np.errstate(all="ignore"):
        for _ in range(num_steps):
            k1 = rate(density)
            k2 = rate(density + h / 2.0 * k1)
            k3 = rate(density + h / 2.0 * k2)
            k4 = rate(density + h * k3)
            density = density + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    # Written so that NaN fails.
    if not np.all((density > 0.0) & (density < np.inf)):
        raise ValueError(
            "potential is too steep for Runge-Kutta steps of a quarter of the squared cell width:"
            " densities did not stay positive and finite; use run_flow, or more cells"
        )
    return density


def _rate_of(
    grid: Grid, values: FloatArray, dynamics: str, flux: str
) -> Callable[[FloatArray], FloatArray]:
    """Returns the right-hand side of the flow's equation, from densities to their rates
    of change.
    """
    dx = grid.axes[0].width
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

    return rate
