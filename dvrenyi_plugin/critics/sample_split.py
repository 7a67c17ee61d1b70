"""The one way to divide a sample: a part of it at random, and the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def part_size(count: int, fraction: float, at_least: int = 1) -> int:
    """Returns how many of `count` samples the first part gets: neither part less than `at_least`.

    Args:
      count: >= 2 * at_least.
      fraction: of the first part, in (0, 1).
      at_least: samples that either part needs, >= 1.
    """
    return min(count - at_least, max(at_least, round(fraction * count)))


def split_samples(
    samples: NDArray[np.float64],
    fraction: float,
    stream: np.random.SeedSequence | np.random.Generator | None,
    at_least: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns a random part of the rows and the rest.

    At random, since mechanisms may return their outputs in an order that means something, and
    betting bounds need the certifying samples in an order that nobody chose.

    Args:
      samples: shape (n, d), n >= 2 * at_least, rows independent.
      fraction: of the first part, in (0, 1).
      stream: of this split alone, or a generator that other splits draw from, too; None takes the
        first rows as they come.
      at_least: rows that either part needs, >= 1.
    """
    size = part_size(len(samples), fraction, at_least)
    if stream is not None:
        samples = samples[np.random.default_rng(stream).permutation(len(samples))]
    return samples[:size], samples[size:]
