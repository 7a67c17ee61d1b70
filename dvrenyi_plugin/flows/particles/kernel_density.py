"""Kernel density estimates of many particle ensembles at once, at the particles themselves.

The kernel is a product over the axes and integrates to one over the domain in every dimension:
  euclidean: Gaussian of standard deviation `bandwidth`;
  torus: von Mises of concentration (length / (2 pi bandwidth))^2, the periodic kernel with the
    Gaussian's curvature at its peak;
  box: the same on the circle of twice the length, plus its mirror image, so no mass leaks through a
    wall.
Every one of them is a Gaussian in an embedding of the axis (a line or a circle), so one matrix
product gives all pairwise log kernels of an ensemble.

Every particle counts itself. So the sum over an ensemble, relative to the kernel's peak, is at
least one at a particle, and taking its logarithm is safe without any shift.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from dvrenyi_plugin._internal.limits import CheckedSettings, OneOf
from dvrenyi_plugin._internal.ranges import LARGEST, check_kind
from dvrenyi_plugin._internal.validation import check_int, check_numbers, check_real
from dvrenyi_plugin.flows.particles.domain import ParticleDomain

Array = NDArray[np.float64]

_METHODS = ("auto", "binned", "exact")
# A megabyte of doubles: chunks that stay in the cache.
_PAIRS_PER_CHUNK = 1 << 17
_CELLS_PER_CHUNK = 1 << 17
# Linear binning and linear interpolation each add spacing^2 / 6 to the kernel's variance, which the
# binned kernel gives back; at three cells a bandwidth what is left of the difference is below one
# per cent of the density.
_CELLS_PER_BANDWIDTH = 3.0
_NARROWEST = 1e-6
# Squares of coordinates in bandwidths stay in the range of a float.
_SMALLEST_BANDWIDTH = 1e-50


def default_bandwidth(domain: ParticleDomain, num_particles: int) -> tuple[float, ...]:
    """Returns a bandwidth for every axis: length / 8 * num_particles^(-1 / (d + 4)).

    It depends on the domain and the count alone, never on the data or on where the particles are.
    The rate is the usual one for second-order kernels. The constant is a compromise measured on
    laws with wells from a twentieth to a sixth of the domain wide, in one and two dimensions: with
    less, a particle sees mostly itself and the ensemble comes out too concentrated; with more, the
    kernel blurs the wells, with the same effect.

    Raises:
      ValueError: the domain is euclidean and has no length to scale with.
    """
    check_kind("domain", domain, ParticleDomain)
    num_particles = check_int("num_particles", num_particles, at_least=1)
    if not domain.is_bounded:
        raise ValueError("bandwidth must be given on a euclidean domain, got None")
    rate = num_particles ** (-1.0 / (domain.dimension + 4))
    return tuple(float(length) / 8.0 * rate for length in domain.lengths)


@dataclasses.dataclass(frozen=True)
class KernelDensity(CheckedSettings):
    """Density estimates with a fixed kernel.

    Attributes:
      domain: where the particles live.
      bandwidth: width of the kernel on every axis, length d, in the domain's units, at least 1e-50;
        on a bounded axis from a millionth to half of its length.
      method: "exact" sums the kernel over all pairs; "binned" deposits the particles on a grid,
        convolves with the kernel by FFT and interpolates (one or two bounded axes); "auto" takes
        the cheaper one.
    """

    domain: ParticleDomain
    bandwidth: tuple[float, ...]
    method: Annotated[str, OneOf(_METHODS)] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("domain", self.domain, ParticleDomain)
        if not isinstance(self.bandwidth, tuple):
            raise ValueError(
                f"bandwidth must be a tuple, one entry per axis, got {self.bandwidth!r}"
            )
        bandwidth = tuple(
            check_real("bandwidth", width, at_least=_SMALLEST_BANDWIDTH, at_most=LARGEST)
            for width in self.bandwidth
        )
        if len(bandwidth) != self.domain.dimension:
            raise ValueError(
                f"bandwidth must have one entry per axis ({self.domain.dimension}), got"
                f" {len(bandwidth)}"
            )
        for width, length in zip(bandwidth, self.domain.lengths, strict=True):
            if math.isfinite(length) and not _NARROWEST * length <= width <= 0.5 * length:
                raise ValueError(
                    f"bandwidth must be from {_NARROWEST:g} to half of the axis ({length:g}), got"
                    f" {width:g}"
                )
        if self.method == "binned" and not self._can_bin:
            raise ValueError(
                "method must be 'exact' or 'auto' on a euclidean domain or above two dimensions,"
                " got 'binned'"
            )
        object.__setattr__(self, "bandwidth", bandwidth)

    def log_density(self, particles: Array) -> Array:
        """Returns the log density estimate of every ensemble at its own particles, shape
        (ensembles, particles).

        Args:
          particles: shape (ensembles, particles, d), inside the domain.
        """
        particles = _check_ensembles("particles", particles, self.domain)
        num_particles = particles.shape[1]
        binned = self.method == "binned" or (
            self.method == "auto"
            and self._can_bin
            and 3 * math.prod(self._grid_shape) + 6 * num_particles <= num_particles**2
        )
        return self._binned_log_density(particles) if binned else self._exact_log_density(particles)

    @property
    def _can_bin(self) -> bool:
        return self.domain.is_bounded and self.domain.dimension <= 2

    @functools.cached_property
    def _circles(self) -> Array:
        """Length of the circle that carries each axis: a box is half of a circle."""
        return self.domain.lengths * (2.0 if self.domain.kind == "box" else 1.0)

    @functools.cached_property
    def _concentrations(self) -> Array:
        return (self._circles / (2.0 * math.pi * np.asarray(self.bandwidth))) ** 2

    @functools.cached_property
    def _log_peak(self) -> float:
        """Log of the kernel at displacement zero (without mirror images)."""
        widths = np.asarray(self.bandwidth)
        if not self.domain.is_bounded:
            return float(-np.sum(np.log(widths * math.sqrt(2.0 * math.pi))))
        return float(-np.sum(np.log(self._circles * special.i0e(self._concentrations))))

    def _embed(self, points: Array) -> Array:
        """Returns features in which every log kernel is minus half of a squared distance."""
        if not self.domain.is_bounded:
            return np.asarray(points / np.asarray(self.bandwidth))
        angles = (points - np.asarray(self.domain.lower)) * (2.0 * math.pi / self._circles)
        scale = np.sqrt(self._concentrations)
        return np.concatenate([scale * np.cos(angles), scale * np.sin(angles)], axis=-1)

    def _exact_log_density(self, particles: Array) -> Array:
        num_ensembles, num_particles, d = particles.shape
        centre = 0.0 if self.domain.is_bounded else particles.mean(axis=1, keepdims=True)
        features = self._embed(particles - centre)
        total = np.empty((num_ensembles, num_particles))
        for ensembles, rows in _pair_chunks(num_ensembles, num_particles):
            left, right = features[ensembles, rows], features[ensembles]
            kernel = _minus_half_squared_distance(left, right)
            np.exp(kernel, out=kernel)
            if self.domain.kind == "box":
                for axis in range(d, 2 * d):
                    product = left[:, :, np.newaxis, axis] * right[:, np.newaxis, :, axis]
                    kernel *= 1.0 + np.exp(-2.0 * product)
            total[ensembles, rows] = kernel.sum(axis=2)
        return np.log(total) + (self._log_peak - math.log(num_particles))

    @functools.cached_property
    def _circle_cells(self) -> tuple[int, ...]:
        """Grid cells on the circle of each axis; even on a box, so that both walls are nodes."""
        cells = []
        for circle, width in zip(self._circles, self.bandwidth, strict=True):
            wanted = max(8, math.ceil(_CELLS_PER_BANDWIDTH * circle / width))
            if self.domain.kind == "box":
                cells.append(2 * fft.next_fast_len(math.ceil(wanted / 2), real=True))
            else:
                cells.append(fft.next_fast_len(wanted, real=True))
        return tuple(cells)

    @property
    def _grid_shape(self) -> tuple[int, ...]:
        """Nodes on each axis: the whole circle of a torus, the half from wall to wall of a box."""
        if self.domain.kind == "box":
            return tuple(cells // 2 + 1 for cells in self._circle_cells)
        return self._circle_cells

    @functools.cached_property
    def _kernel_transform(self) -> Array:
        """Fourier multiplier of the grid kernel, as a density: its zero mode is 1 / (volume of a
        cell).
        """
        transform: Array = np.ones(())
        for axis, (circle, width, cells) in enumerate(
            zip(self._circles, self.bandwidth, self._circle_cells, strict=True)
        ):
            spacing = circle / cells
            narrowed = width**2 - spacing**2 / 3.0
            concentration = (circle / (2.0 * math.pi)) ** 2 / narrowed
            angles = 2.0 * math.pi * np.arange(cells) / cells
            kernel = np.exp(concentration * (np.cos(angles) - 1.0))
            kernel /= kernel.sum() * spacing
            # The even kernel has a real transform. Cosine transforms (box) and the last axis of a
            # real transform need its first half only.
            is_half = self.domain.kind == "box" or axis == self.domain.dimension - 1
            multiplier = fft.rfft(kernel).real if is_half else fft.fft(kernel).real
            transform = transform[..., np.newaxis] * multiplier
        return transform

    def _convolve(self, grid: Array) -> Array:
        """Returns the kernel's circular convolution with counts of shape (ensembles, nodes...).

        On a box every particle also counts at its mirror image; that even sequence on the doubled
        circle is what the cosine transform of type 1 transforms, once the walls, which are their
        own images, count twice.
        """
        axes = tuple(range(1, grid.ndim))
        if self.domain.kind == "torus":
            spectrum = fft.rfftn(grid, axes=axes)
            spectrum *= self._kernel_transform
            return np.asarray(fft.irfftn(spectrum, s=grid.shape[1:], axes=axes))
        for axis in axes:
            walls = np.moveaxis(grid, axis, 0)
            walls[[0, -1]] *= 2.0
        spectrum = fft.dctn(grid, type=1, axes=axes)
        spectrum *= self._kernel_transform
        return np.asarray(fft.idctn(spectrum, type=1, axes=axes))

    def _binned_log_density(self, particles: Array) -> Array:
        result = np.empty(particles.shape[:2])
        step = max(1, _CELLS_PER_CHUNK // math.prod(self._grid_shape))
        for start in range(0, particles.shape[0], step):
            block = slice(start, start + step)
            result[block] = self._binned_log_density_of_chunk(particles[block])
        return result

    def _binned_log_density_of_chunk(self, particles: Array) -> Array:
        """Deposits, convolves and interpolates, linearly in every axis.

        With f the offset from the node on the left in cells, a particle deposits 1 - f there and f
        on the next node: one mass moved f of the way. So the grid is the sum over subsets A of axes
        of (product over A of next minus own node) applied to the binned product of the f_a, and
        reading the density back is the transpose.
        """
        num_ensembles, num_particles, d = particles.shape
        nodes = self._grid_shape
        node: Any = np.arange(num_ensembles)[:, np.newaxis]
        offsets = []
        for axis in range(d):
            position = particles[:, :, axis] - self.domain.lower[axis]
            position *= self._circle_cells[axis] / self._circles[axis]
            left = position.astype(np.int64)
            position -= left
            if self.domain.kind == "torus":
                left[left == nodes[axis]] = 0  # the upper end is the lower end
            node = node * nodes[axis] + left
            offsets.append(position.ravel())
        node = node.ravel()
        shape = (num_ensembles, *nodes)
        terms = [
            (subset, _product([offsets[axis] for axis in subset]))
            for size in range(d + 1)
            for subset in itertools.combinations(range(d), size)
        ]
        grid = np.zeros(shape)
        for subset, weight in terms:
            part = np.bincount(node, weights=weight, minlength=grid.size).reshape(shape)
            for axis in subset:
                part = np.roll(part, 1, axis + 1) - part
            grid += part
        density = self._convolve(grid)
        value = np.zeros(num_ensembles * num_particles)
        for subset, weight in terms:
            part = density
            for axis in subset:
                part = np.roll(part, -1, axis + 1) - part
            read = part.ravel()[node]
            value += read if weight is None else weight * read
        value /= num_particles
        return np.log(value, out=value).reshape(num_ensembles, num_particles)


def _product(factors: list[Array]) -> Array | None:
    """Returns the product, or None (a weight of one) when there is no factor."""
    return functools.reduce(np.multiply, factors) if factors else None


def _minus_half_squared_distance(features1: Array, features2: Array) -> Array:
    """Returns -|f1_i - f2_j|^2 / 2 over the last two axes, by one matrix product."""
    squares1 = -0.5 * np.sum(features1**2, axis=-1, keepdims=True)
    squares2 = -0.5 * np.sum(features2**2, axis=-1, keepdims=True)
    ones1, ones2 = np.ones_like(squares1), np.ones_like(squares2)
    extended1 = np.concatenate([features1, squares1, ones1], axis=-1)
    extended2 = np.concatenate([features2, ones2, squares2], axis=-1)
    # Rounding of far points may leave a square below zero.
    return np.asarray(np.minimum(np.matmul(extended1, np.swapaxes(extended2, -1, -2)), 0.0))


def _pair_chunks(num_ensembles: int, num_particles: int) -> Iterator[tuple[slice, slice]]:
    """Yields blocks of ensembles and of rows with at most about `_PAIRS_PER_CHUNK` pairs each."""
    ensembles = max(1, _PAIRS_PER_CHUNK // num_particles**2)
    rows = max(1, min(num_particles, _PAIRS_PER_CHUNK // num_particles))
    for first in range(0, num_ensembles, ensembles):
        for row in range(0, num_particles, rows):
            yield slice(first, first + ensembles), slice(row, row + rows)


def _check_ensembles(name: str, values: Any, domain: ParticleDomain) -> Array:
    particles = check_numbers(name, values)
    if particles.ndim != 3 or particles.shape[2] != domain.dimension or particles.size == 0:
        raise ValueError(
            f"{name} must have shape (ensembles, particles, {domain.dimension}) with no empty axis,"
            f" got {particles.shape}"
        )
    if not domain.contains(particles):
        raise ValueError(f"{name} must be finite and inside the domain {domain}")
    return particles


__all__ = ["KernelDensity", "default_bandwidth"]
