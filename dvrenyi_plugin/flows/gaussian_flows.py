"""Exact Gaussian flows toward a Gaussian target, in closed form: known answers for every sampler.

The target is N(b, L^{-1}) with precision L. A Gaussian start stays Gaussian along each flow:
- Wasserstein (Langevin, Fokker-Planck): m' = -L (m - b),               S' = 2 I - L S - S L.
- Fisher-Rao (birth-death):              m' = -S L (m - b),             S' = S - S L S.
- WFR (SHK):                             m' = -(L + S L) (m - b),       S' = 2 I - L S - S L + S - S L S.
The first is the Ornstein-Uhlenbeck process; the second has log density linear in e^{-t}; the third is a matrix Riccati
equation, solved by the linear flow of (X, Y) with S = X Y^{-1}, whose Y also carries the mean.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from dvrenyi_plugin._validation import check_real
from dvrenyi_plugin.flows.grid import FloatArray


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian law.

    Attributes:
      mean: shape (d,).
      covariance: shape (d, d), symmetric positive definite.
    """

    mean: FloatArray
    covariance: FloatArray

    def __post_init__(self) -> None:
        mean = np.atleast_1d(np.asarray(self.mean, dtype=np.float64))
        covariance = np.atleast_2d(np.asarray(self.covariance, dtype=np.float64))
        if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
            raise ValueError(
                f"mean and covariance must have shapes (d,) and (d, d), got {mean.shape} and"
                f" {covariance.shape}"
            )
        if not np.all(np.isfinite(mean)) or not np.allclose(covariance, covariance.T):
            raise ValueError("mean must be finite and covariance symmetric")
        if np.linalg.eigvalsh(covariance).min() <= 0.0:
            raise ValueError("covariance must be positive definite")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)


def gaussian(mean: ArrayLike, covariance: ArrayLike) -> Gaussian:
    """Returns a Gaussian from numbers or arrays."""
    return Gaussian(np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64))


def wasserstein_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the Langevin law at `time` >= 0."""
    time = check_real("time", time, at_least=0.0)
    precision = np.linalg.inv(target.covariance)
    decay = expm(-time * precision)
    spread = target.covariance + decay @ (start.covariance - target.covariance) @ decay
    return Gaussian(target.mean + decay @ (start.mean - target.mean), _symmetric(spread))


def fisher_rao_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the birth-death law at `time` >= 0: density proportional to rho_0^{e^{-t}} pi^{1-e^{-t}}."""
    time = check_real("time", time, at_least=0.0)
    weight = np.exp(-time)
    first, second = np.linalg.inv(start.covariance), np.linalg.inv(target.covariance)
    covariance = np.linalg.inv(weight * first + (1.0 - weight) * second)
    mean = covariance @ (weight * first @ start.mean + (1.0 - weight) * second @ target.mean)
    return Gaussian(mean, _symmetric(covariance))


def wfr_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the SHK (Wasserstein-Fisher-Rao) law at `time` >= 0.

    With A = I/2 - L the Riccati equation is S' = A S + S A + 2 I - S L S, so X' = A X + 2 Y, Y' = L X - A Y; then
    Y' = (L S + L - I/2) Y and m - b = e^{-t/2} Y^{-T} (m_0 - b).
    """
    time = check_real("time", time, at_least=0.0)
    # X and Y grow like e^{(lambda + 1/2) t} at a rate for each eigenvalue: short pieces keep them well conditioned.
    largest = float(np.linalg.eigvalsh(target.covariance)[0]) ** -1
    pieces = max(1, math.ceil(time * (largest + 0.5)))
    law = start
    for _ in range(pieces):
        law = _wfr_piece(law, target, time / pieces)
    return law


def _wfr_piece(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    size = start.mean.size
    identity = np.eye(size)
    precision = np.linalg.inv(target.covariance)
    linear = identity / 2.0 - precision
    flow = expm(time * np.block([[linear, 2.0 * identity], [precision, -linear]]))
    top = flow[:size, :size] @ start.covariance + flow[:size, size:]
    bottom = flow[size:, :size] @ start.covariance + flow[size:, size:]
    covariance = np.linalg.solve(bottom.T, top.T).T
    offset = np.exp(-time / 2.0) * np.linalg.solve(bottom.T, start.mean - target.mean)
    return Gaussian(target.mean + offset, _symmetric(covariance))


def _symmetric(matrix: FloatArray) -> FloatArray:
    return np.asarray((matrix + matrix.T) / 2.0)
