"""Pairs of laws on common points, in log masses: the truths that bounds are compared with."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import check_int, check_numbers, check_order, check_real
from dvrenyi_plugin.privacy.divergences import renyi_from_log_masses

Array = NDArray[np.float64]

_NUM_CELLS = 1001


@dataclasses.dataclass(frozen=True)
class GridPair:
    """Two laws on the same points.

    Attributes:
      log_q: shape (k,), read-only, log masses of the numerator law; -inf where it has none; they
        sum to one.
      log_p: the same for the other law.
    """

    log_q: Array
    log_p: Array

    def __post_init__(self) -> None:
        for name in ("log_q", "log_p"):
            values = np.array(check_numbers(name, getattr(self, name)))
            if values.ndim != 1 or values.size == 0 or not np.all(values < np.inf):
                raise ValueError(
                    f"{name} must hold log masses of shape (k,), each a number or -inf,"
                    f" got shape {values.shape}"
                )
            with np.errstate(over="ignore"):
                total = float(np.exp(values).sum())
            if not abs(total - 1.0) <= 1e-9:
                raise ValueError(f"{name} must be masses that sum to 1, got a sum of {total!r}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        if self.log_q.shape != self.log_p.shape:
            raise ValueError(
                f"log_q and log_p must have one shape, got {self.log_q.shape} and"
                f" {self.log_p.shape}"
            )

    def renyi(self, alpha: float) -> float:
        """Returns D_alpha(Q || P) on the grid."""
        return renyi_from_log_masses(alpha, self.log_q, self.log_p)


def gaussian_pair(mu: float, largest_alpha: float = 64.0, num_cells: int = _NUM_CELLS) -> GridPair:
    """Returns N(mu, 1) and N(0, 1) on a grid that carries D_alpha for orders up to `largest_alpha`.

    The moment behind D_alpha sits around alpha mu, far outside both laws, where the masses are far
    below the smallest float: only logs are kept. Equal cells and smooth densities make the sums
    accurate to rounding.
    """
    mu = check_real("mu", mu, above=0.0)
    largest_alpha = check_order(largest_alpha, "largest_alpha")
    # The squares of the grid's ends and those of the log ratio there must be floats.
    check_real("mu^2 * largest_alpha", mu * mu * largest_alpha, at_most=1e150)
    top = check_real("mu * largest_alpha", mu * largest_alpha, at_most=1e150) + 10.0
    x = np.linspace(-10.0, top, check_int("num_cells", num_cells, at_least=2))
    return GridPair(normalised(-0.5 * (x - mu) ** 2), normalised(-0.5 * x**2))


def laplace_pair(shift: float, scale: float = 1.0, num_cells: int = _NUM_CELLS) -> GridPair:
    """Returns Laplace(shift, scale) and Laplace(0, scale): both tails as one cell each, as the log
    ratio is constant there, and fine cells between the centres."""
    shift, scale = check_real("shift", shift, above=0.0), check_real("scale", scale, above=0.0)
    # Below, neighbouring edges would be the same float.
    width = check_real("shift / scale", shift / scale, at_least=1e-300, at_most=1e150)
    edges = np.linspace(0.0, width, check_int("num_cells", num_cells, at_least=2) - 1)
    step = np.log(-np.expm1(-np.diff(edges))) - math.log(2.0)
    tail, far_tail = -math.log(2.0), -math.log(2.0) - width
    log_p = np.concatenate([[tail], step - edges[:-1], [far_tail]])
    return GridPair(log_p[::-1].copy(), log_p)


def discrete_pair(q: Any, p: Any) -> GridPair:
    """Returns the pair of two probability vectors of shape (k,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return GridPair(np.log(check_numbers("q", q)), np.log(check_numbers("p", p)))


def check_pair(pair: GridPair) -> GridPair:
    """Returns `pair` when it is a `GridPair`."""
    if not isinstance(pair, GridPair):
        raise ValueError(f"pair must be a GridPair, got {pair!r}")
    return pair


def normalised(log_masses: Array) -> Array:
    """Returns log masses whose masses sum to one, from those of any finite sum."""
    top = log_masses.max()
    return np.asarray(log_masses - (top + math.log(float(np.exp(log_masses - top).sum()))))
