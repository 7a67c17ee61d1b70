"""Product grids of equal cells on a torus or a box, and laws that are constant on every cell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._internal.limits import CheckedSettings, Finite, Int, OneOf
from dvrenyi_plugin._internal.ranges import MOST_CELLS, check_interval, check_moderate
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_int, check_numbers

PERIODIC = "periodic"
REFLECTING = "reflecting"

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Axis(CheckedSettings):
    """One axis of a grid: `cells` equal cells on [low, high).

    Attributes:
      low: left end, finite.
      high: right end, finite, above low.
      cells: number of cells, 3 to 10,000,000.
      boundary: "periodic" (the ends are glued, the setting of the stability theorems) or
        "reflecting" (no flux through the ends).
    """

    low: Finite = -math.pi
    high: Finite = math.pi
    cells: Annotated[int, Int(at_least=3, at_most=MOST_CELLS)] = 192
    boundary: Annotated[str, OneOf((PERIODIC, REFLECTING))] = PERIODIC

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("low and high", self.low, self.high, self.cells)

    @property
    def length(self) -> float:
        """high - low."""
        return self.high - self.low

    @property
    def width(self) -> float:
        """Width of one cell."""
        return self.length / self.cells

    @property
    def midpoints(self) -> FloatArray:
        """Centres of the cells, shape (cells,)."""
        return np.asarray(self.low + (np.arange(self.cells) + 0.5) * self.width)


@dataclasses.dataclass(frozen=True)
class Grid:
    """The product of one to three axes.

    Arrays of values on the grid have shape (..., *grid.shape); leading axes are a batch. A law on
    the grid is stored as log masses of the cells (they sum to one after exponentiation) and has a
    constant density on every cell, so ratios of masses are ratios of densities.

    Attributes:
      axes: one to three axes, at most 10,000,000 cells in all.
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.axes, tuple) or not all(isinstance(a, Axis) for a in self.axes):
            raise ValueError(f"axes must be a tuple of Axis, got {self.axes!r}")
        if not 1 <= len(self.axes) <= 3:
            raise ValueError(f"axes must hold 1 to 3 axes, got {len(self.axes)}")
        if self.num_cells > MOST_CELLS:
            raise ValueError(
                f"axes must have at most {MOST_CELLS:,} cells in all, got {self.num_cells:,}"
            )

    @classmethod
    def torus(cls, cells: int = 192, dimension: int = 1) -> Grid:
        """Returns the torus [-pi, pi)^dimension with `cells` cells per axis."""
        return cls((Axis(cells=cells),) * check_int("dimension", dimension, at_least=1, at_most=3))

    @classmethod
    def box(cls, low: float, high: float, cells: int = 192, dimension: int = 1) -> Grid:
        """Returns the box [low, high]^dimension with reflecting walls and `cells` cells per
        axis."""
        dimension = check_int("dimension", dimension, at_least=1, at_most=3)
        return cls((Axis(low, high, cells, REFLECTING),) * dimension)

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of every axis."""
        return tuple(axis.cells for axis in self.axes)

    @property
    def num_cells(self) -> int:
        """Cells in all."""
        return math.prod(self.shape)

    @property
    def cell_volume(self) -> float:
        """Volume of one cell."""
        return math.prod(axis.width for axis in self.axes)

    @property
    def volume(self) -> float:
        """Volume of the domain."""
        return math.prod(axis.length for axis in self.axes)

    def midpoints(self) -> FloatArray:
        """Returns the centres of all cells in C order, shape (num_cells, dimension)."""
        coordinates = np.meshgrid(*(axis.midpoints for axis in self.axes), indexing="ij")
        return np.stack([c.ravel() for c in coordinates], axis=-1)

    def evaluate(
        self, function: Callable[[FloatArray], ArrayLike], name: str = "function"
    ) -> FloatArray:
        """Returns `function(midpoints)` on the grid, shape `shape`.

        Args:
          function: maps points of shape (num_cells, dimension) to values of shape (num_cells,).
          name: of the function, for messages.

        Raises:
          ValueError: the values have another shape or are not all finite.
        """
        values = user_numbers(
            name, call_user_code(name, function, self.midpoints()), (self.num_cells,), finite=False
        )
        return self.check_values(name, values.reshape(self.shape))

    def check_values(self, name: str, values: Any) -> FloatArray:
        """Returns values of shape (..., *shape) as float64.

        Raises:
          ValueError: wrong shape, NaN, or entries above 1e100 in absolute value.
        """
        array = check_numbers(name, values)
        if array.ndim < self.dimension or array.shape[array.ndim - self.dimension :] != self.shape:
            raise ValueError(f"{name} must have shape (..., {self.shape}), got {array.shape}")
        return check_moderate(name, array)

    def cell_axes(self) -> tuple[int, ...]:
        """Returns the array axes that run over cells: (-dimension, ..., -1)."""
        return tuple(range(-self.dimension, 0))

    def normalise(self, log_weights: FloatArray) -> FloatArray:
        """Returns log masses proportional to exp(log_weights), shape (..., *shape)."""
        log_weights = self.check_values("log_weights", log_weights)
        total = logsumexp(log_weights, axis=self.cell_axes(), keepdims=True)
        return np.asarray(log_weights - total)

    def gibbs(self, potential: ArrayLike) -> FloatArray:
        """Returns the log masses of pi = exp(-potential) / Z, shape (..., *shape)."""
        values = self.check_values("potential", potential)
        # Shifting first keeps the digits of the differences when the potential has a huge constant.
        return self.normalise(values.min(axis=self.cell_axes(), keepdims=True) - values)

    def oscillation(self, values: FloatArray) -> FloatArray:
        """Returns max - min over the grid, of the batch's shape."""
        return np.asarray(np.ptp(self.check_values("values", values), axis=self.cell_axes()))

    def draw(
        self, log_masses: FloatArray, num_samples: int, generator: np.random.Generator
    ) -> FloatArray:
        """Returns independent draws from one law on the grid, shape (num_samples, dimension).

        A cell by inverse distribution function, then a uniform offset inside it, so the law of a
        draw has
        exactly the cell masses given, up to the 53 bits of the uniform numbers: a cell's frequency
        is off by at most 2^-53 in absolute terms, and a cell of smaller mass may never be drawn.

        Args:
          log_masses: one law, shape `shape` or (num_cells,).
          num_samples: draws wanted, >= 1.
          generator: where the randomness comes from.

        Raises:
          ValueError: `log_masses` of another shape, or so far from summing to 1 that no law is
            meant.
        """
        num_samples = check_int("num_samples", num_samples, at_least=1)
        log_masses = check_numbers("log_masses", log_masses)
        if log_masses.shape not in (self.shape, (self.num_cells,)):
            raise ValueError(
                f"log_masses must have shape {self.shape} or ({self.num_cells},), got"
                f" {log_masses.shape}"
            )
        # Written so that NaN fails; beyond 600 sums of the masses may leave the range of a float.
        if not -600.0 <= log_masses.max() <= 600.0:
            raise ValueError(
                "log_masses must be the logarithms of masses that sum to 1, got a largest one of"
                f" {log_masses.max():g}"
            )
        masses = np.exp(log_masses.ravel())
        cumulative = np.cumsum(masses)
        uniforms = generator.random(num_samples) * cumulative[-1]
        flat = np.searchsorted(cumulative, uniforms, side="right")
        # A product rounded up to the total would fall behind the last cell that has mass.
        np.minimum(flat, int(np.flatnonzero(masses)[-1]), out=flat)
        cells = np.unravel_index(flat, self.shape)
        draws = generator.random((num_samples, self.dimension))
        for k, axis in enumerate(self.axes):
            # Rounding may reach a cell's right end, which belongs to the next cell.
            right_ends = np.nextafter(axis.low + (cells[k] + 1) * axis.width, axis.low)
            draws[:, k] = np.minimum(axis.low + (cells[k] + draws[:, k]) * axis.width, right_ends)
        return draws
