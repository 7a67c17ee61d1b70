"""Where particles live: a flat torus, a box with reflecting walls, or the whole space."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, OneOf
from dvrenyi_plugin._internal.ranges import LARGEST, check_interval, check_moderate
from dvrenyi_plugin._internal.validation import (
    check_int,
    check_many,
    check_numbers,
    check_real,
)

_KINDS = ("torus", "box", "euclidean")
# Far more than density estimates are good for.
_MOST_AXES = 1_000


@dataclasses.dataclass(frozen=True)
class ParticleDomain(CheckedSettings):
    """A product domain; build it with `torus`, `box` or `euclidean`.

    Attributes:
      kind: "torus" (opposite faces glued), "box" (reflecting walls) or "euclidean" (no walls).
      lower: lower end of each axis, length d; minus infinity for "euclidean".
      upper: upper end of each axis, length d; infinity for "euclidean".
    """

    kind: Annotated[str, OneOf(_KINDS)]
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        lower, upper = _as_tuple("lower", self.lower), _as_tuple("upper", self.upper)
        if len(lower) != len(upper) or not lower:
            raise ValueError(
                "lower and upper must have the same number of axes, at least 1, got"
                f" {len(lower)} and {len(upper)}"
            )
        for axis, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if self.kind == "euclidean":
                if (low, high) != (-math.inf, math.inf):
                    raise ValueError(
                        "lower and upper must be infinite for a euclidean domain, got"
                        f" [{low}, {high}] on axis {axis}"
                    )
            else:
                check_interval(f"lower and upper of axis {axis}", low, high)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @classmethod
    def torus(
        cls, dimension: int = 1, lower: float = -math.pi, upper: float = math.pi
    ) -> ParticleDomain:
        """Returns a torus whose axes all run over [lower, upper)."""
        dimension = check_int("dimension", dimension, at_least=1, at_most=_MOST_AXES)
        return cls("torus", (lower,) * dimension, (upper,) * dimension)

    @classmethod
    def box(cls, lower: Sequence[float], upper: Sequence[float]) -> ParticleDomain:
        """Returns the box [lower_1, upper_1] x ... x [lower_d, upper_d] with reflecting walls."""
        return cls("box", _as_tuple("lower", lower), _as_tuple("upper", upper))

    @classmethod
    def euclidean(cls, dimension: int) -> ParticleDomain:
        """Returns d-dimensional space."""
        dimension = check_int("dimension", dimension, at_least=1, at_most=_MOST_AXES)
        return cls("euclidean", (-math.inf,) * dimension, (math.inf,) * dimension)

    @property
    def dimension(self) -> int:
        """Number of axes d."""
        return len(self.lower)

    @property
    def is_bounded(self) -> bool:
        """True for a torus or a box."""
        return self.kind != "euclidean"

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Length of every axis, shape (d,); infinite for a euclidean domain."""
        return np.subtract(self.upper, self.lower)

    def confine(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns `points` (..., d) wrapped round the torus or reflected at the walls of the box.

        Raises:
          ValueError: NaN or a coordinate above 1e100 in absolute value, on a bounded domain.
        """
        if self.kind == "euclidean":
            return points
        points = self._checked(points)
        check_moderate("points", points)
        lower = np.asarray(self.lower)
        lengths = self.lengths
        offset = points - lower
        if self.kind == "torus":
            offset -= lengths * np.floor(offset / lengths)
        else:
            offset = np.abs(offset - 2.0 * lengths * np.round(offset / (2.0 * lengths)))
        offset += lower
        # Rounding can leave a point just outside; on the torus both ends are the same point.
        return np.asarray(np.clip(offset, lower, self.upper, out=offset))

    def contains(self, points: NDArray[np.float64]) -> bool:
        """Returns True when every coordinate of `points` (..., d) is inside and within 1e100 of
        zero.
        """
        points = self._checked(points)
        return bool(
            np.all(np.abs(points) <= LARGEST)
            and np.all(points >= np.asarray(self.lower))
            and np.all(points <= np.asarray(self.upper))
        )

    def _checked(self, points: Any) -> NDArray[np.float64]:
        array = check_numbers("points", points)
        # On one axis numbers may stand for points.
        if array.ndim == 0 or (self.dimension > 1 and array.shape[-1] != self.dimension):
            raise ValueError(
                f"points must have shape (..., {self.dimension}), got shape {array.shape}"
            )
        return array


def _as_tuple(name: str, values: Any) -> tuple[float, ...]:
    return tuple(
        value if isinstance(value, float) and math.isinf(value) else check_real(name, value)
        for value in check_many(name, values, "numbers")
    )


__all__ = ["ParticleDomain"]
