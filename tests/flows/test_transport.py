"""Transport on lines of cells: the generator, its solvers, and their accuracy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flow_examples import smooth_potential
from scipy.linalg import expm

from dvrenyi_plugin.flows.grid import Axis, Grid
from dvrenyi_plugin.flows.transport.line_solvers import LinearLineSolver, LogLineSolver
from dvrenyi_plugin.flows.transport.lines import ExponentialTransport, ImplicitTransport

BOUNDARIES = ("periodic", "reflecting")


def generator_matrix(grid: Grid, potential: np.ndarray) -> np.ndarray:
    """Returns the dense generator Q of one potential, shape (num_cells, num_cells)."""
    values = np.reshape(potential, grid.shape)
    index = np.arange(grid.num_cells).reshape(grid.shape)
    matrix = np.zeros((grid.num_cells, grid.num_cells))
    for k, axis in enumerate(grid.axes):
        here, there = index, np.roll(index, -1, axis=k)
        jumps = np.roll(values, -1, axis=k) - values
        if axis.boundary != "periodic":
            inner = tuple(slice(0, -1) if m == k else slice(None) for m in range(grid.dimension))
            here, there, jumps = here[inner], there[inner], jumps[inner]
        rate = 1.0 / axis.width**2
        np.add.at(matrix, (here.ravel(), there.ravel()), rate * np.exp(-jumps / 2.0).ravel())
        np.add.at(matrix, (there.ravel(), here.ravel()), rate * np.exp(jumps / 2.0).ravel())
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


class TestGenerator:
    @pytest.mark.parametrize("grid", [Grid.torus(9), Grid.box(0, 2, 7), Grid.torus(4, 2)])
    def test_reversible_with_zero_row_sums(self, grid: Grid) -> None:
        potential = smooth_potential(grid, np.random.default_rng(1), 3.0)
        matrix = generator_matrix(grid, potential)
        flow = np.exp(grid.gibbs(potential).ravel())[:, np.newaxis] * matrix
        np.testing.assert_allclose(matrix.sum(axis=1), 0.0, atol=1e-12)
        np.testing.assert_allclose(flow, flow.T, atol=1e-12)

    def test_approaches_the_fokker_planck_operator_at_second_order(self) -> None:
        errors = []
        for cells in (64, 128):
            grid = Grid.torus(cells)
            x = grid.midpoints()[:, 0]
            # On the ratio u the operator is u'' - V' u'; here V = cos x, u = 2 + sin x.
            exact = -np.sin(x) + np.sin(x) * np.cos(x)
            errors.append(np.abs(generator_matrix(grid, np.cos(x)) @ (2 + np.sin(x)) - exact).max())
        assert 1.9 < math.log2(errors[0] / errors[1]) < 2.1


class TestLineSolversAndTransports:
    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize("step", [1e-3, 0.1, 3.0])
    def test_against_dense_linear_algebra(self, boundary: str, step: float) -> None:
        axis = Axis(cells=24, boundary=boundary)
        grid = Grid((axis,))
        rng = np.random.default_rng(2)
        potential, log_ratio = rng.normal(size=(2, 24)), rng.normal(size=(2, 24))
        for k in range(2):
            generator = generator_matrix(grid, potential[k])
            exact = np.log(expm(step * generator) @ np.exp(log_ratio[k]))
            euler = np.log(np.linalg.solve(np.eye(24) - step * generator, np.exp(log_ratio[k])))
            lines, ratio = potential[k : k + 1], log_ratio[k : k + 1]
            dense = ExponentialTransport(lines, axis, step).apply(ratio)[0]
            np.testing.assert_allclose(dense, exact, atol=1e-12)
            for solver in (LinearLineSolver, LogLineSolver):
                np.testing.assert_allclose(
                    solver(lines, axis, step).solve(ratio, 1)[0], euler, atol=1e-12
                )

    def test_both_solvers_agree_over_three_hundred_orders_of_magnitude(self) -> None:
        axis = Axis(cells=128)
        x = axis.midpoints
        potential, log_ratio = 150.0 * np.cos(x)[None], -140.0 * np.sin(x)[None]
        linear = LinearLineSolver(potential, axis, 0.01).solve(log_ratio, 2)
        logarithmic = LogLineSolver(potential, axis, 0.01).solve(log_ratio, 2)
        np.testing.assert_allclose(linear, logarithmic, atol=1e-9)

    def test_the_dense_exponential_is_accurate_entry_by_entry(self) -> None:
        # From far below, u reaches the top only through entries of exp(hQ) that are tiny.
        axis = Axis(cells=64)
        potential = 20.0 * np.cos(axis.midpoints)[None]
        log_ratio = np.full((1, 64), -500.0)
        log_ratio[0, 0] = 0.0
        dense = ExponentialTransport(potential, axis, 0.02).apply(log_ratio)
        fine = ImplicitTransport(potential, axis, 0.02 / 512, 5)
        stepped = log_ratio
        for _ in range(512):
            stepped = fine.apply(stepped)
        assert dense.min() < -40.0
        np.testing.assert_allclose(dense, stepped, atol=1e-3)

    @pytest.mark.parametrize("order", [1, 2, 3, 4])
    def test_extrapolation_has_its_order(self, order: int) -> None:
        axis = Axis(cells=32)
        potential, ratio = np.cos(axis.midpoints)[None], np.sin(axis.midpoints)[None]
        errors = []
        for step in (0.004, 0.002):
            exact = ExponentialTransport(potential, axis, step).apply(ratio)
            errors.append(
                np.abs(ImplicitTransport(potential, axis, step, order).apply(ratio) - exact).max()
            )
        # One step: local error h^(order + 1).
        assert math.log2(errors[0] / errors[1]) > order + 0.6
