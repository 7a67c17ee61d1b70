"""Clipped sums and means of records: what the Gaussian and the Laplace mechanism add noise to."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, NotNegative, OneOf, Real, Seed
from dvrenyi_plugin._internal.validation import (
    check_int,
    check_real,
    check_samples,
    check_seed,
)

# Sums of records, and noise many standard deviations away, stay finite.
LARGEST_RELEASE = 1e290


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveNoiseConfig(CheckedSettings):
    """What the additive-noise mechanisms have in common.

    Attributes:
      clip_norm: records with a larger norm are scaled down to it, > 0.
      statistic: "sum", or "mean": the sum over `denominator`.
      denominator: a public number, > 0, that "mean" divides by. It is never the number of records,
        which is private when a record may be added or removed.
      neighbours: "add_remove" (one dataset has one record more; sensitivity clip_norm) or
        "replace_one" (one record differs; sensitivity 2 clip_norm).
      noise_scale: multiplies the noise that is really added and leaves the claim alone, >= 0;
        anything below 1 breaks the claim on purpose.
      seed: where all randomness comes from, >= 0.
    """

    clip_norm: Annotated[float, Real(above=0.0, at_most=LARGEST_RELEASE)] = 1.0
    statistic: Annotated[str, OneOf(("sum", "mean"))] = "sum"
    denominator: float | None = None
    neighbours: Annotated[str, OneOf(("add_remove", "replace_one"))] = "add_remove"
    noise_scale: NotNegative = 1.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic == "sum" and self.denominator is not None:
            raise ValueError(
                f"denominator must be None for statistic 'sum', got {self.denominator!r}"
            )
        if self.statistic == "mean":
            check_real("denominator", self.denominator, above=0.0)
        self._check_scale("clip_norm", self.clip_norm)

    def _check_scale(self, name: str, size: float) -> None:
        """Raises ValueError when a quantity of this size, of the clipped sum, could make a release
        overflow.
        """
        divided = size / min(1.0, self.public_denominator)
        check_real(f"{name} (over denominator)", divided, at_most=LARGEST_RELEASE)

    @property
    def sensitivity(self) -> float:
        """Largest change of the clipped sum, in the norm of the clipping, between neighbours."""
        return self.clip_norm * (2.0 if self.neighbours == "replace_one" else 1.0)

    @property
    def public_denominator(self) -> float:
        """What the noisy sum is divided by."""
        return 1.0 if self.denominator is None else float(self.denominator)


def clipped_sum(dataset: Any, clip_norm: float, norm_order: int) -> NDArray[np.float64]:
    """Returns the sum of the records, each scaled down to norm `clip_norm`, shape (d,), float64.

    Args:
      dataset: records of shape (n,) or (n, d), n >= 0, finite.
      clip_norm: largest norm a record keeps, > 0.
      norm_order: 1 or 2.
    """
    records = check_samples("dataset", dataset, min_samples=0)
    clip_norm = check_real("clip_norm", clip_norm, above=0.0, at_most=LARGEST_RELEASE)
    norm_order = check_int("norm_order", norm_order, at_least=1, at_most=2)
    total: NDArray[np.float64] = np.sum(clip_rows(records, clip_norm, norm_order), axis=0)
    return total


def clip_rows(
    records: NDArray[np.float64], clip_norm: float, norm_order: int
) -> NDArray[np.float64]:
    """Returns the rows of a finite (n, d) array, each scaled down to norm `clip_norm` if it is
    longer.
    """
    # Dividing by the largest entry first: squares of entries near 1e200 would overflow.
    largest = np.max(np.abs(records), axis=1, keepdims=True)
    directions = records / np.where(largest > 0.0, largest, 1.0)
    relative_norms = np.linalg.norm(directions, ord=norm_order, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        norms = largest * relative_norms
    factors = np.minimum(norms, clip_norm) / np.where(relative_norms > 0.0, relative_norms, 1.0)
    return np.asarray(directions * factors)


class CallStreams:
    """A fresh random stream for every call of one mechanism object, the same for every
    new object.
    """

    def __init__(self, seed: int) -> None:
        self._seed = check_seed(seed)
        self._calls = 0

    def next_generator(self) -> np.random.Generator:
        """Returns the generator of the next call."""
        sequence = np.random.SeedSequence(self._seed, spawn_key=(self._calls,))
        self._calls += 1
        return np.random.Generator(np.random.PCG64(sequence))
