"""Pointwise stability of SHK flows under a change of potential: Theorems 1 and 3, and the width
beyond them.

Two flows with potentials V and V' start from one density rho_0. Write s = log(rho / pi), R_0 =
osc(s_0) and likewise with primes, and `mismatch` for one of
    2 ||V - V'||_inf      (assumption A1),
    osc(V - V')           (assumption A1', never larger, blind to constants),
    ||log pi / pi'||_inf  (the exact target floor, for a known pair).
Assumptions: the domain is compact without boundary (a torus) and the flows are smooth and positive.
On a grid the statements hold for the reversible splitting of `grid_flow` at every step size, by the
discrete maximum principle, and there also for reflecting walls: nothing in the discrete proof looks
at the boundary. For a continuous flow in a box the paper's theorem does not apply as stated; with a
no-flux boundary its maximum principle needs Hopf's lemma.

Source: "On the Stability of Spherical Hellinger-Kantorovich Flows and Their Implications for
Differential Privacy" (Mustafi and Mukherjee).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.ranges import check_kind, check_size
from dvrenyi_plugin._internal.validation import check_real
from dvrenyi_plugin.flows.grid import FloatArray, Grid
from dvrenyi_plugin.flows.transport.generator import neighbour_differences


@dataclasses.dataclass(frozen=True)
class PairConstants:
    """What the theorems need to know about two potentials and a common start.

    Attributes:
      sup_distance: ||V - V'||_inf.
      oscillation_distance: osc(V - V').
      target_log_ratio: ||log pi / pi'||_inf.
      initial_oscillation1: R_0 = osc(log rho_0 / pi).
      initial_oscillation2: R_0' = osc(log rho_0 / pi').
      gradient_distance: ||grad V - grad V'||_inf or a bound above it, as the caller gave it; None
        when not given.
    """

    sup_distance: float
    oscillation_distance: float
    target_log_ratio: float
    initial_oscillation1: float
    initial_oscillation2: float
    gradient_distance: float | None = None


def pair_constants(
    grid: Grid,
    potential1: ArrayLike,
    potential2: ArrayLike,
    initial_log_density: ArrayLike | None = None,
    *,
    gradient_distance: float | None = None,
) -> PairConstants:
    """Returns the constants of one pair of potentials on a grid.

    The distance of the gradients cannot be read off a grid: difference quotients are averages of
    the derivative over a cell and miss its peak, so a bound that is fed with them is no upper
    bound.

    Args:
      grid: where the potentials live.
      potential1: V, shape grid.shape.
      potential2: V', shape grid.shape.
      initial_log_density: log rho_0 up to a constant, broadcastable to grid.shape; None is uniform.
      gradient_distance: ||grad V - grad V'||_inf of the continuous potentials, or a bound above it;
        None when the theorems that need it (`kl_stability`) are not asked.

    Raises:
      ValueError: potentials of another shape or out of range, or a gradient_distance below a
        difference quotient.
    """
    check_kind("grid", grid, Grid)
    first = _one_on_grid(grid, "potential1", potential1)
    second = _one_on_grid(grid, "potential2", potential2)
    start = np.zeros(grid.shape)
    if initial_log_density is not None:
        start = _one_on_grid(grid, "initial_log_density", initial_log_density)
    difference = first - second
    if gradient_distance is not None:
        gradient_distance = check_size("gradient_distance", gradient_distance)
        _check_above_quotients(grid, difference, gradient_distance)
    return PairConstants(
        sup_distance=float(np.max(np.abs(difference))),
        oscillation_distance=float(grid.oscillation(difference)),
        target_log_ratio=float(np.max(np.abs(grid.gibbs(first) - grid.gibbs(second)))),
        initial_oscillation1=float(grid.oscillation(start + first)),
        initial_oscillation2=float(grid.oscillation(start + second)),
        gradient_distance=gradient_distance,
    )


def _one_on_grid(grid: Grid, name: str, values: ArrayLike) -> FloatArray:
    array = grid.check_values(name, values)
    if array.size != grid.num_cells:
        raise ValueError(f"{name} must have shape {grid.shape}, got {array.shape}")
    return array.reshape(grid.shape)


def _check_above_quotients(grid: Grid, difference: FloatArray, gradient_distance: float) -> None:
    for k, axis in enumerate(grid.axes):
        steepest = float(np.max(np.abs(neighbour_differences(grid, difference, k)))) / axis.width
        if steepest > gradient_distance * (1.0 + 1e-9):
            raise ValueError(
                "gradient_distance must bound the gradient of potential1 - potential2, which"
                f" reaches {steepest:.9g} along axis {k}, got {gradient_distance:.9g}"
            )


def log_ratio_bound(
    mismatch: float, initial_oscillation1: float, initial_oscillation2: float, time: float
) -> float:
    """Returns Theorem 1's bound on ||log rho_t / rho'_t||_inf: mismatch + e^{-t} (R_0 + R_0').

    It bounds every Rényi divergence too. Proof: log rho_t/rho'_t = s_t - s'_t + log pi/pi'; s_t has
    mean-zero exponential under pi, so 0 lies in its range and |s_t| <= osc(s_t) <= e^{-t} R_0 (the
    reaction contracts s by e^{-t} and transport takes averages of e^s); the last term is at most
    `mismatch`.

    Args:
      mismatch: one of the three choices in the module's docstring, >= 0.
      initial_oscillation1: R_0 >= 0.
      initial_oscillation2: R_0' >= 0.
      time: t >= 0.
    """
    mismatch = check_size("mismatch", mismatch)
    first = check_size("initial_oscillation1", initial_oscillation1)
    second = check_size("initial_oscillation2", initial_oscillation2)
    return mismatch + math.exp(-check_real("time", time, at_least=0.0)) * (first + second)


def pure_dp_epsilon(mismatch: float, initial_bound: float, time: float) -> float:
    """Returns Theorem 3's pure-DP level mismatch + 2 B e^{-t}, B bounding R_0 for every dataset.

    Assumptions: rho_0 does not depend on the data, `mismatch` bounds the chosen quantity over all
      neighbours.
    """
    initial_bound = check_size("initial_bound", initial_bound)
    return log_ratio_bound(mismatch, initial_bound, initial_bound, time)


def log_ratio_width(
    oscillation_distance: float,
    initial_oscillation1: float,
    initial_oscillation2: float,
    time: float,
) -> float:
    """Returns w(t) = osc(V - V') + e^{-t} (R_0 + R_0'), a bound on the *width* of log rho_t /
    rho'_t.

    Beyond the paper. Proof: the oscillation of a sum is at most the sum of oscillations, applied to
    log rho_t/rho'_t = s_t - s'_t - (V - V') + constant. As a bound on a sup norm it is Theorem 1
    under A1'; as a bound on a width it implies D_alpha <= alpha w^2 / 8, hence w^2/8-zCDP
    (`bounded_range`), about a quarter of what the sup norm gives.
    """
    return log_ratio_bound(oscillation_distance, initial_oscillation1, initial_oscillation2, time)


def time_for_width(target_width: float, oscillation_distance: float, initial_sum: float) -> float:
    """Returns the least t with w(t) <= target_width: log((R_0 + R_0') / (target_width - osc)), cut
    at 0.

    Args:
      target_width: wanted width (which is also the pure-DP level), above `oscillation_distance`.
      oscillation_distance: osc(V - V') over neighbours.
      initial_sum: R_0 + R_0' over neighbours.

    Raises:
      ValueError: the target is not above osc(V - V'). No running time brings the bound w(t) below
        that, whatever the width of the law itself is: from a common start it is 0 at t = 0.
    """
    floor = check_size("oscillation_distance", oscillation_distance)
    initial_sum = check_size("initial_sum", initial_sum)
    target_width = check_real("target_width", target_width, above=floor)
    if initial_sum <= target_width - floor:
        return 0.0
    return math.log(initial_sum / (target_width - floor))
