"""Domains, points and potentials that the tests of flows share."""

from __future__ import annotations

import numpy as np

from dvrenyi_plugin.flows.grid import Grid
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import uniform_start

CIRCLE = ParticleDomain.torus(1)


def make_domain(kind, dimension):
    if kind == "torus":
        return ParticleDomain.torus(dimension, -1.0, 2.0)
    if kind == "box":
        return ParticleDomain.box(
            [-1.0 + axis for axis in range(dimension)],
            [1.5 * axis + 1.0 for axis in range(dimension)],
        )
    return ParticleDomain.euclidean(dimension)


def points_in(domain, count, seed):
    if domain.is_bounded:
        return uniform_start(domain)(np.random.default_rng(seed), count)
    return np.random.default_rng(seed).standard_normal((count, domain.dimension))


def double_well(x):
    return 2.5 * (1.0 - np.cos(2.0 * x[:, 0]))


def smooth_potential(grid: Grid, rng: np.random.Generator, amplitude: float) -> np.ndarray:
    """A random trigonometric polynomial of degree 3 scaled to the given oscillation."""
    points = grid.midpoints()
    values = np.zeros(grid.num_cells)
    for _ in range(3):
        frequency = rng.integers(-3, 4, size=grid.dimension)
        values += rng.normal() * np.cos(points @ frequency + rng.uniform(0.0, 2.0 * np.pi))
    values = values.reshape(grid.shape)
    spread = grid.oscillation(values)
    return values * (amplitude / spread) if spread > 1e-9 else values
