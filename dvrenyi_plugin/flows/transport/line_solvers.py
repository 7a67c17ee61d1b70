"""Backward Euler on lines of cells: (I - tau Q) v = u for a reversible birth-death chain, in
O(cells).

A ring is cut at its first cell: the other cells form a tridiagonal system that is solved with the
first cell's value as a parameter, and the first cell's own equation then gives that value. Walls
are the same with no weight on the closing edge. Both solvers only ever add, multiply and divide
nonnegative numbers on the right-hand side, so every entry of the solution has a small *relative*
error, however small it is.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.linalg import lapack

from dvrenyi_plugin.flows.grid import PERIODIC, Axis, FloatArray


class LineSolver(Protocol):
    """Backward Euler of one step size on a stack of lines."""

    def solve(self, log_ratio: FloatArray, substeps: int) -> FloatArray:
        """Returns log (I - tau Q)^{-substeps} exp(log_ratio), shape (lines, cells)."""


class LinearLineSolver:
    """Works with pi u on the symmetric system (pi - tau pi Q), by LAPACK's LDL^T for all lines at
    once.

    For potentials and log ratios whose ranges add up to less than the exponent range of a float.
    """

    def __init__(self, potential: FloatArray, axis: Axis, tau: float) -> None:
        weights = np.exp(potential.min(axis=-1, keepdims=True) - potential)
        # Root first: the product of two weights may leave the range of a float.
        roots = np.sqrt(weights)
        edges = roots * np.roll(roots, -1, axis=-1) * (tau / axis.width**2)
        if axis.boundary != PERIODIC:
            edges[:, -1] = 0.0
        diagonal = weights + edges + np.roll(edges, 1, axis=-1)
        off_diagonal = -edges[:, 1:].copy()
        off_diagonal[:, -1] = 0.0  # the last inner cell of a line and the first of the next
        self._factors = lapack.dpttrf(diagonal[:, 1:].ravel(), off_diagonal.ravel()[:-1])[:2]
        self._weights = weights
        self._to_first, self._to_last = edges[:, 0], edges[:, -1]
        unit = np.zeros_like(weights[:, 1:])
        unit[:, 0] += self._to_first
        unit[:, -1] += self._to_last
        self._from_cut = self._inner(unit)
        # 1 - from_cut solves the system with right-hand side pi: no cancellation.
        missing = self._inner(weights[:, 1:])
        self._cut_pivot = (
            weights[:, 0] + self._to_first * missing[:, 0] + self._to_last * missing[:, -1]
        )

    def solve(self, log_ratio: FloatArray, substeps: int) -> FloatArray:
        """Returns the log ratio after `substeps` steps; see `LineSolver`."""
        ratio = np.exp(log_ratio)
        for _ in range(substeps):
            right = self._weights * ratio
            inner = self._inner(right[:, 1:])
            cut = (
                right[:, 0] + self._to_first * inner[:, 0] + self._to_last * inner[:, -1]
            ) / self._cut_pivot
            ratio[:, 0] = cut
            ratio[:, 1:] = inner + self._from_cut * cut[:, np.newaxis]
        return np.log(ratio)

    def _inner(self, right: FloatArray) -> FloatArray:
        solution, _ = lapack.dpttrs(*self._factors, right.ravel())
        return np.asarray(solution).reshape(right.shape)


class LogLineSolver:
    """The same in logarithms throughout: potentials of 1e6 neither overflow nor underflow.

    With e_i = 1 - c_i and c_i the elimination factor, e_i = a_i / (a_i + tau up_i), a_i = 1 + tau
    down_i e_{i-1}: sums of nonnegative terms only. Forward and backward substitution are cumulative
    log-sum-exps.
    """

    def __init__(self, potential: FloatArray, axis: Axis, tau: float) -> None:
        log_tau = math.log(tau) - 2.0 * math.log(axis.width)
        to_next = potential - np.roll(potential, -1, axis=-1)
        up = to_next / 2.0 + log_tau
        down = np.roll(-to_next, 1, axis=-1) / 2.0 + log_tau
        if axis.boundary != PERIODIC:
            up[:, -1] = down[:, 0] = -np.inf
        self._up_first, self._down_first = up[:, 0], down[:, 0]
        inner_up, inner_down = up[:, 1:], down[:, 1:]
        pivots = np.empty_like(inner_up)
        missing = np.zeros(len(up))  # log e of the cut: its value is known, so nothing returns
        for i in range(pivots.shape[1]):
            survival = np.logaddexp(0.0, inner_down[:, i] + missing)
            pivots[:, i] = np.logaddexp(survival, inner_up[:, i])
            missing = survival - pivots[:, i]
        self._pivots = pivots
        self._forward = np.cumsum(inner_down[:, 1:] - pivots[:, 1:], axis=-1)
        self._forward = np.concatenate([np.zeros((len(up), 1)), self._forward], axis=-1)
        carry = (inner_up - pivots)[:, :-1]
        self._backward = np.zeros_like(pivots)
        self._backward[:, :-1] = np.cumsum(carry[:, ::-1], axis=-1)[:, ::-1]
        unit = np.full_like(pivots, -np.inf)
        unit[:, 0] = inner_down[:, 0]
        unit[:, -1] = np.logaddexp(unit[:, -1], inner_up[:, -1])
        self._from_cut = self._inner(unit)
        rest = self._inner(np.zeros_like(pivots))
        self._cut_pivot = self._first_row(np.zeros(len(up)), rest)

    def solve(self, log_ratio: FloatArray, substeps: int) -> FloatArray:
        """Returns the log ratio after `substeps` steps; see `LineSolver`."""
        for _ in range(substeps):
            inner = self._inner(log_ratio[:, 1:])
            cut = self._first_row(log_ratio[:, 0], inner) - self._cut_pivot
            rest = np.logaddexp(inner, self._from_cut + cut[:, np.newaxis])
            log_ratio = np.concatenate([cut[:, np.newaxis], rest], axis=-1)
        return log_ratio

    def _inner(self, right: FloatArray) -> FloatArray:
        forward = self._forward + np.logaddexp.accumulate(
            right - self._pivots - self._forward, axis=-1
        )
        reversed_terms = (forward - self._backward)[:, ::-1]
        return np.asarray(
            self._backward + np.logaddexp.accumulate(reversed_terms, axis=-1)[:, ::-1]
        )

    def _first_row(self, own: FloatArray, inner: FloatArray) -> FloatArray:
        return np.asarray(
            np.logaddexp(
                own,
                np.logaddexp(self._up_first + inner[:, 0], self._down_first + inner[:, -1]),
            )
        )
