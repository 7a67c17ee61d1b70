"""Models that repeat each other are not independent, whatever a training says of its randomness.

A training that sets its own seed gives the same model again and again, and every bound then counts
one model many times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

# Of two observations that float32 rounds into one cell of 32 neighbouring numbers, one pair in 32
# is equal. Twice that allows for laws so narrow that they have few such numbers.
_CELL_BITS = 5
_SHARE_OF_EQUAL_PAIRS = 2.0 / 2**_CELL_BITS
_STEP_OF_FLOAT32_AT_1 = 2.0**-23
_FALSE_ALARM_PROBABILITY = 1e-9
_FEWEST_OTHER_VALUES = 3


def check_independent(observations: NDArray[np.float64], which: str) -> None:
    """Raises unless repeated rows can be explained by the rounding of float32.

    Equal pairs of rows are held against pairs that agree in all but the last bits of float32: the
    audit stops when so many of those are equal that rounding alone would make it with probability
    at most 1e-9 (a binomial tail; pairs of models are treated as independent). Laws that have a
    density and are computed in float32 or better, with a standard deviation of at least 5 of the
    steps of float32 there (at 1, for smaller numbers that come in such steps, as the losses of a
    softmax do), therefore go through. So do rows at the smallest or largest value of every column,
    a loss that saturates, as long as at least three others differ; and rows that are not finite.

    Args:
      observations: shape (n, k), a row per model, all of one law.
      which: the models, for the message: "without the canary".

    Raises:
      ValueError: with the likely cause.
    """
    rows = observations[np.isfinite(observations).all(axis=1)] + 0.0  # -0.0 is 0.0
    if len(rows) < 2:
        return
    at_ends = ((rows == rows.min(axis=0)) | (rows == rows.max(axis=0))).all(axis=1)
    if len(np.unique(rows[~at_ends], axis=0)) >= _FEWEST_OTHER_VALUES:
        rows = rows[~at_ends]
    values, counts = np.unique(rows, axis=0, return_counts=True)
    widths = _cell_widths(rows)
    cells = np.unique(np.floor(rows / widths) * widths, axis=0, return_counts=True)[1]
    equal, close = _pairs(counts), _pairs(cells)
    if equal == 0 or binom.sf(equal - 1, close, _SHARE_OF_EQUAL_PAIRS) > _FALSE_ALARM_PROBABILITY:
        return
    often = int(counts.argmax())
    example = values[often]
    shown = ", ".join(f"{value:.6g}" for value in example[:3]) + (
        ", ..." if len(example) > 3 else ""
    )
    raise ValueError(
        f"models must be independent, got {int(counts[counts > 1].sum())} of {len(observations)}"
        f" {which} whose observation another one has too (most often {shown}, in"
        f" {int(counts[often])}). The likely cause is a seed set inside the training: all its"
        " randomness must come from the seed that it is given. Training without any noise does this"
        " too, and so does an observation that no weight changes, as the loss of a record of zeros"
        " under a linear model without intercept. If observations take few values by"
        " nature (an accuracy, a rounded loss), or every model is the same on purpose, declare it:"
        " discrete_outputs=True"
    )


def _cell_widths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the width of the cell of each entry, shape (n, k): 32 steps of the rounding there.

    A loss that was computed by way of numbers near 1 (a softmax) comes in steps of float32 at 1,
    however small it is.
    Where a column has values closer than that, its smallest gap is taken: small numbers need not be
    coarse.
    """
    octaves = np.frexp(rows)[1] - 1.0
    own_steps = np.ldexp(_STEP_OF_FLOAT32_AT_1, np.maximum(octaves, -900.0).astype(int))
    gaps = [np.diff(np.unique(column)).min(initial=np.inf) for column in rows.T]
    steps = np.maximum(own_steps, np.minimum(gaps, _STEP_OF_FLOAT32_AT_1))
    return np.asarray(2.0**_CELL_BITS * steps)


def _pairs(counts: NDArray[np.int64]) -> int:
    return int((counts * (counts - 1) // 2).sum())


__all__ = ["check_independent"]
