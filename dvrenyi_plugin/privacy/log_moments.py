"""The moment behind a Rényi divergence as a sum of positive terms, in the log domain.

With f = dP/dQ, L = log f and b = alpha - 1, both laws of mass one,

    E_Q[f^alpha] - 1 = E_Q[f^alpha - 1 - alpha (f - 1)] = E_P[phi(b L) + b phi(-L)] + b Q(f = 0),

where phi(y) = e^y - 1 - y >= 0. Nothing cancels: divergences far below the rounding error of 1 keep
their digits, near order 1 and at large orders alike, and so do those whose moment overflows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

# e^y - 1 - y = y^2 sum y^k / (k + 2)!, to rounding for |y| < 1/2.
_SERIES = [1.0 / math.factorial(k + 2) for k in range(14)]


def log_phi(y: ArrayLike) -> Array:
    """Returns log(e^y - 1 - y) elementwise, -inf at 0."""
    y = np.asarray(y, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        small = 2.0 * np.log(np.abs(y)) + np.log(np.polynomial.polynomial.polyval(y, _SERIES))
        beyond = np.minimum(y, 1e3)  # e^-y is 0 from there on, and infinity times 0 is no number
        positive = y + np.log1p(-(1.0 + beyond) * np.exp(-beyond))
        negative = np.log(np.expm1(np.minimum(y, 0.0)) - y)
        return np.asarray(np.where(np.abs(y) < 0.5, small, np.where(y > 0.0, positive, negative)))


def log_moment_excess(alpha: float, log_p: ArrayLike, log_ratio: ArrayLike) -> Array:
    """Returns log(p (phi(b L) + b phi(-L))) elementwise: what a point adds to the moment minus 1.

    Args:
      alpha: order > 1.
      log_p: log of P's mass or density, not -inf.
      log_ratio: L, log of P's over Q's, finite.
    """
    log_p, log_ratio = np.asarray(log_p), np.asarray(log_ratio)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = log_phi((alpha - 1.0) * log_ratio)
    return np.asarray(
        log_p + np.logaddexp(upper, math.log(alpha - 1.0) + log_phi(-log_ratio)), dtype=np.float64
    )


def renyi_from_excess(alpha: float, log_excess: ArrayLike, axis: int | None = None) -> Array:
    """Returns D_alpha = log(1 + sum of excesses) / (alpha - 1), summed over `axis` (None: all).

    Args:
      alpha: order > 1.
      log_excess: logs of the parts of E_Q[f^alpha] - 1; inf allowed.
      axis: summed over.
    """
    with np.errstate(divide="ignore"):
        total = logsumexp(log_excess, axis=axis)
    return np.asarray(np.logaddexp(0.0, total) / (alpha - 1.0))
