"""Transport along lines of cells: the log ratio log(rho / pi) under the reversible Markov
semigroup.

A grid of any dimension is moved axis by axis; one axis is a stack of independent lines, each a
reversible birth-death chain on a ring or an interval. Two ways to advance a line by time h:

- "exponential": the dense stochastic matrix exp(h Q), computed from nonnegative numbers only
  (uniformisation, scaling and squaring), so that it is accurate entry by entry. Cubic in the cells
  of a line.
- "implicit": backward Euler, (I - h/j Q)^{-j}, itself a stochastic matrix, for j = 1 .. `order`,
  extrapolated in h on the log ratio. Linear in the cells. Order 1 is plain backward Euler.

Whatever the arithmetic did, the result is clipped into the range of its line's input. For a
stochastic matrix the clip changes nothing but rounding; for the extrapolated scheme it enforces the
maximum principle. Either way
    osc(log rho/pi) after <= osc(log rho/pi) before
holds exactly for the numbers that are used, and a constant log ratio (rho = pi) is left as it is.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from dvrenyi_plugin._internal.validation import check_choice
from dvrenyi_plugin.flows.grid import PERIODIC, Axis, FloatArray
from dvrenyi_plugin.flows.transport.line_solvers import LinearLineSolver, LineSolver, LogLineSolver

EXPONENTIAL = "exponential"
IMPLICIT = "implicit"
AUTO = "auto"
TRANSPORTS = (AUTO, EXPONENTIAL, IMPLICIT)

# exp(-600) is a normal float with room for one more product; wider ranges go through logarithms.
_LINEAR_RANGE = 600.0
# The pivots of the linear solver lose the share 1e-16 times this of their digits.
_LINEAR_LARGEST_RATE = 1e6
_DENSE_ENTRIES = 2**14
# Rates of exp(50) times 1/dx^2 still leave the squarings of the exponential in range.
_DENSE_MAX_JUMP = 100.0
# Times e^50 it is still in the range of a float.
_LARGEST_RATE = 1e150


class LineTransport(Protocol):
    """Advances log ratios along lines by a fixed time."""

    def apply(self, log_ratio: FloatArray) -> FloatArray:
        """Returns the log ratio after the step, shape (lines, cells); only differences matter."""


def make_line_transport(
    potential: FloatArray, axis: Axis, step: float, kind: str, order: int
) -> LineTransport:
    """Returns the transport of a stack of lines.

    Args:
      potential: shape (lines, cells).
      axis: the axis the lines run along.
      step: time to advance, > 0.
      kind: "exponential", "implicit", or "auto": exponential while its matrices are small.
      order: extrapolation order of "implicit", >= 1.

    Raises:
      ValueError: "exponential" with neighbouring cells so far apart that rates leave the range of a
        float, or a step too long for cells so narrow.
    """
    check_choice("kind", kind, TRANSPORTS)
    if step > _LARGEST_RATE * axis.width**2:
        raise ValueError(
            f"time must be at most {_LARGEST_RATE:g} squared cell widths per step, got a step of"
            f" {step:g} for cells of width {axis.width:g}"
        )
    jump = float(np.max(np.abs(_jumps(potential, axis))))
    if kind == AUTO:
        is_small = potential.size * axis.cells <= _DENSE_ENTRIES and jump <= _DENSE_MAX_JUMP
        kind = EXPONENTIAL if is_small else IMPLICIT
    if kind == EXPONENTIAL:
        if jump > _DENSE_MAX_JUMP:
            raise ValueError(
                f"transport 'exponential' needs neighbouring potentials within {_DENSE_MAX_JUMP:g},"
                f" got a difference of {jump:.4g}; use 'implicit'"
            )
        return ExponentialTransport(potential, axis, step)
    return ImplicitTransport(potential, axis, step, order)


class ExponentialTransport:
    """u -> exp(h Q) u by one dense matrix for every line."""

    def __init__(self, potential: FloatArray, axis: Axis, step: float) -> None:
        self._matrices = _stochastic_exponentials(potential, axis, step)
        self._log_matrices: FloatArray | None = None

    def apply(self, log_ratio: FloatArray) -> FloatArray:
        """Returns the log ratio after the step, clipped into the range of its line's input."""
        low = log_ratio.min(axis=-1, keepdims=True)
        high = log_ratio.max(axis=-1, keepdims=True)
        if float(np.max(high - low)) <= _LINEAR_RANGE:
            moved = np.matmul(self._matrices, np.exp(log_ratio - high)[..., np.newaxis])
            with np.errstate(divide="ignore"):
                result = np.log(moved[..., 0]) + high
        else:
            if self._log_matrices is None:
                with np.errstate(divide="ignore"):
                    self._log_matrices = np.log(self._matrices)
            result = np.logaddexp.reduce(
                self._log_matrices + log_ratio[..., np.newaxis, :], axis=-1
            )
        return np.asarray(np.clip(result, low, high))


class ImplicitTransport:
    """Backward Euler with 1, 2, ..., `order` substeps, extrapolated on the log ratio."""

    def __init__(self, potential: FloatArray, axis: Axis, step: float, order: int) -> None:
        self._potential, self._axis, self._step = potential, axis, step
        self._weights = [
            math.prod(j / (j - k) for k in range(1, order + 1) if k != j)
            for j in range(1, order + 1)
        ]
        spread = potential.max(axis=-1) - potential.min(axis=-1)
        self._spread = float(np.max(spread))
        self._linear: list[LineSolver] | None = None
        self._logarithmic: list[LineSolver] | None = None

    def apply(self, log_ratio: FloatArray) -> FloatArray:
        """Returns the log ratio after the step, clipped into the range of its line's input."""
        low = log_ratio.min(axis=-1, keepdims=True)
        high = log_ratio.max(axis=-1, keepdims=True)
        solvers = self._solvers(float(np.max(high - low)))
        centred = log_ratio - high
        result = np.zeros_like(log_ratio)
        for substeps, (weight, solver) in enumerate(
            zip(self._weights, solvers, strict=True), start=1
        ):
            result += weight * solver.solve(centred, substeps)
        return np.asarray(np.clip(result + high, low, high))

    def _solvers(self, ratio_spread: float) -> list[LineSolver]:
        taus = [self._step / j for j in range(1, len(self._weights) + 1)]
        is_short = self._step <= _LINEAR_LARGEST_RATE * self._axis.width**2
        if is_short and self._spread + ratio_spread <= _LINEAR_RANGE:
            if self._linear is None:
                self._linear = [LinearLineSolver(self._potential, self._axis, t) for t in taus]
            return self._linear
        if self._logarithmic is None:
            self._logarithmic = [LogLineSolver(self._potential, self._axis, t) for t in taus]
        return self._logarithmic


def _jumps(potential: FloatArray, axis: Axis) -> FloatArray:
    """Returns the potential of the next cell minus this one's, 0 through a wall."""
    jumps = np.roll(potential, -1, axis=-1) - potential
    if axis.boundary != PERIODIC:
        jumps[:, -1] = 0.0
    return np.asarray(jumps)


def _stochastic_exponentials(potential: FloatArray, axis: Axis, step: float) -> FloatArray:
    """Returns exp(step Q) of every line, shape (lines, cells, cells)."""
    lines, cells = potential.shape
    jumps = _jumps(potential, axis)
    up = np.exp(-jumps / 2.0) * (step / axis.width**2)
    down = np.exp(jumps / 2.0) * (step / axis.width**2)  # rate from the next cell back to this one
    if axis.boundary != PERIODIC:
        up[:, -1] = down[:, -1] = 0.0
    here = np.arange(cells)
    there = np.roll(here, -1)
    matrices = np.zeros((lines, cells, cells))
    matrices[:, here, there] += up
    matrices[:, there, here] += down
    exit_rates = matrices.sum(axis=-1)
    largest = float(exit_rates.max())
    squarings = max(0, math.ceil(math.log2(largest))) if largest > 0.0 else 0
    matrices *= 0.5**squarings
    # exp(A) = e^{-c} exp(A + c I): with c the largest exit rate every term of the series is
    # nonnegative.
    shift = largest * 0.5**squarings
    matrices[:, here, here] += shift - exit_rates * 0.5**squarings
    np.maximum(matrices, 0.0, out=matrices)
    result = np.broadcast_to(np.eye(cells), matrices.shape).copy()
    for term in range(_TAYLOR_TERMS, 0, -1):
        result = np.matmul(matrices, result) / term
        result[:, here, here] += 1.0
    result /= result.sum(axis=-1, keepdims=True)
    for _ in range(squarings):
        result = np.matmul(result, result)
        result /= result.sum(axis=-1, keepdims=True)
    return result


# Row sums of A + c I are c <= 1, so the terms left out add up to less than 1.1 / 19! < 1e-17.
_TAYLOR_TERMS = 18
