"""The reversible finite-volume generator of Langevin dynamics on a grid.

Along every axis the process jumps from cell i to its neighbour j at rate
    q_ij = sqrt(pi_j / pi_i) / dx^2 = exp((V_i - V_j) / 2) / dx^2.
Then pi_i q_ij = pi_j q_ji, so the Gibbs law of the *grid* is exactly stationary, and exp(h Q) is a
stochastic matrix that is reversible for it. Acting on the ratio u = rho / pi, the law's evolution
is u -> exp(h Q) u: every new ratio is an average of old ones. That maximum principle is what the
certificates rest on. As dx -> 0 the scheme is second-order consistent with d rho/dt = div(grad rho
+ rho grad V).
"""

from __future__ import annotations

import math

import numpy as np

from dvrenyi_plugin._internal.ranges import check_max_jump
from dvrenyi_plugin.flows.grid import PERIODIC, FloatArray, Grid

DEFAULT_MAX_JUMP = 5.0
"""Largest difference of a potential between neighbouring cells: a density ratio of about 150."""


def check_resolution(grid: Grid, potential: FloatArray, max_jump: float = DEFAULT_MAX_JUMP) -> None:
    """Refuses a grid on which the potential is not resolved.

    Args:
      grid: where the potential lives.
      potential: shape (..., *grid.shape).
      max_jump: largest difference allowed between neighbouring cells; inf accepts the law of the
        grid as it is (certificates hold for it all the same, but it need not resemble the
        continuous law).

    Raises:
      ValueError: "grid too coarse", with the jump found and the number of cells that would do.
    """
    max_jump = check_max_jump("max_jump", max_jump)
    if max_jump == math.inf:
        return
    for k, axis in enumerate(grid.axes):
        jump = float(np.max(np.abs(neighbour_differences(grid, potential, k))))
        if jump > max_jump:
            raise ValueError(
                f"grid too coarse for the potential: neighbouring cells of axis {k} differ by up to"
                f" {jump:.4g}, allowed is max_jump = {max_jump:g}; about"
                f" {axis.cells * jump / max_jump:.4g} cells instead of {axis.cells} would do"
            )


def neighbour_differences(grid: Grid, values: FloatArray, axis_index: int) -> FloatArray:
    """Returns values[next] - values[here] along one axis; 0 through a reflecting wall."""
    array_axis = axis_index - grid.dimension
    differences = np.roll(values, -1, axis=array_axis) - values
    if grid.axes[axis_index].boundary != PERIODIC:
        np.moveaxis(differences, array_axis, -1)[..., -1] = 0.0
    return differences
