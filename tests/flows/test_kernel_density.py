"""Kernel densities of particles: they integrate to one, and binning agrees with the exact sum."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flow_examples import CIRCLE, make_domain, points_in
from scipy import stats

from dvrenyi_plugin.flows.particles import kernel_density
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import uniform_start
from dvrenyi_plugin.flows.particles.kernel_density import KernelDensity, default_bandwidth


def density_at(density, points, members):
    """Returns the density estimate of one ensemble at points (m, d), shape (m,).

    From pairs: an ensemble of x and y has at x the density (K(x, x) + K(x, y)) / 2.
    """
    own = np.exp(density.log_density(points[:, np.newaxis]))
    result = np.zeros(len(points))
    for member in members:
        pairs = np.stack([points, np.broadcast_to(member, points.shape)], axis=1)
        result += 2.0 * np.exp(density.log_density(pairs)[:, 0]) - own[:, 0]
    return result / len(members)


@pytest.mark.parametrize("kind", ["torus", "box", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("relative_bandwidth", [0.15, 0.5])
def test_a_density_estimate_integrates_to_one(kind, dimension, relative_bandwidth):
    """Also with kernels that wrap round the torus or reach over both walls, and with
    unequal axes.
    """
    domain = make_domain(kind, dimension)
    lengths = domain.lengths if domain.is_bounded else np.full(dimension, 2.0)
    bandwidth = tuple(relative_bandwidth * lengths / (1.0 + 0.2 * np.arange(dimension)))
    members = points_in(domain, 5, seed=dimension)
    if domain.is_bounded:
        lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
    else:
        reach = 7.0 * np.asarray(bandwidth)
        lower, upper = members.min(axis=0) - reach, members.max(axis=0) + reach
    cells = 40 if dimension == 3 else 80
    axes = [
        low + (np.arange(cells) + 0.5) * (high - low) / cells
        for low, high in zip(lower, upper, strict=True)
    ]
    grid = np.array(list(itertools.product(*axes)))
    density = density_at(KernelDensity(domain, bandwidth), grid, members)
    total = density.sum() * np.prod((upper - lower) / cells)
    # The midpoint rule is exact to rounding on the smooth periodic kernels and, by evenness, on the
    # box.
    assert total == pytest.approx(1.0, abs=1e-6)


def test_the_euclidean_kernel_is_the_gaussian_with_one_width_an_axis():
    domain = ParticleDomain.euclidean(3)
    widths = np.array([0.3, 1.0, 2.5])
    members, points = points_in(domain, 6, seed=1), points_in(domain, 4, seed=2) + 1e3
    members = members + 1e3
    expected = np.mean(
        [stats.multivariate_normal(m, np.diag(widths**2)).pdf(points) for m in members], axis=0
    )
    estimate = density_at(KernelDensity(domain, tuple(widths)), points, members)
    np.testing.assert_allclose(estimate, expected, rtol=1e-8)


def test_a_narrow_periodic_kernel_is_nearly_the_wrapped_gaussian():
    offsets = np.linspace(-0.3, 0.3, 7)
    points = CIRCLE.confine(math.pi + offsets)[:, np.newaxis]
    density = density_at(KernelDensity(CIRCLE, (0.1,)), points, np.array([[-math.pi]]))
    np.testing.assert_allclose(np.log(density), stats.norm.logpdf(offsets, scale=0.1), atol=0.04)


@pytest.mark.parametrize("kind", ["torus", "box", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_density_at_the_particles_counts_every_particle_once(monkeypatch, kind, dimension, chunk):
    """The estimate at the particles equals the plain double loop over single-particle densities,
    self included.
    """
    monkeypatch.setattr(kernel_density, "_PAIRS_PER_CHUNK", chunk)
    domain = make_domain(kind, dimension)
    density = KernelDensity(domain, (0.4,) * dimension, "exact")
    ensembles = points_in(domain, 3 * 9, seed=5).reshape(3, 9, dimension)
    estimate = density.log_density(ensembles)
    for ensemble in range(3):
        for i in range(9):
            point = ensembles[ensemble, i : i + 1]
            expected = math.log(density_at(density, point, ensembles[ensemble])[0])
            assert estimate[ensemble, i] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kind", ["torus", "box"])
@pytest.mark.parametrize("dimension", [1, 2])
def test_binning_agrees_with_the_exact_sum(monkeypatch, kind, dimension):
    monkeypatch.setattr(kernel_density, "_CELLS_PER_CHUNK", 1 << 14)
    domain = make_domain(kind, dimension)
    ensembles = points_in(domain, 5 * 400, seed=8).reshape(5, 400, dimension)
    # One crowd in a corner, with particles exactly on both ends of the axes.
    ensembles[0] = domain.lower + 0.1 * (ensembles[0] - domain.lower)
    ensembles[0, 0], ensembles[0, 1] = domain.lower, domain.upper
    bandwidth = default_bandwidth(domain, 400)
    exact = KernelDensity(domain, bandwidth, "exact").log_density(ensembles)
    binned = KernelDensity(domain, bandwidth, "binned").log_density(ensembles)
    np.testing.assert_allclose(binned, exact, atol=0.05)
    assert abs(np.mean(binned - exact)) < 0.005


def test_bad_density_input_is_refused():
    density = KernelDensity(CIRCLE, (0.1,))
    for bad in (
        np.zeros((3, 1)),
        np.zeros((1, 3, 2)),
        np.zeros((1, 0, 1)),
        np.full((1, 3, 1), 4.0),
    ):
        with pytest.raises(ValueError, match="particles must"):
            density.log_density(bad)
    with pytest.raises(ValueError, match="uniform law"):
        uniform_start(ParticleDomain.euclidean(1))
