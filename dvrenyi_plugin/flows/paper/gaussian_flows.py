"""Exact Gaussian flows toward a Gaussian target, in closed form: known answers for every sampler.

The target is N(b, L^{-1}) with precision L. A Gaussian start stays Gaussian along each flow:
- Wasserstein (Langevin): m' = -L (m - b),         S' = 2 I - L S - S L.
- Fisher-Rao (birth-death): m' = -S L (m - b),     S' = S - S L S.
- WFR (SHK): m' = -(L + S L) (m - b),              S' = 2 I - L S - S L + S - S L S.

The first is the Ornstein-Uhlenbeck process; the second has log density linear in e^{-t}; the
third is a matrix Riccati equation whose distance from its fixed point L^{-1} has a closed form.
Every function of L is taken in its eigenbasis, so the cost does not depend on the time or on how
narrow the target is.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.validation import check_numbers, check_real
from dvrenyi_plugin.flows.grid import FloatArray

# Precisions, their products with covariances, and squares of means stay in the range of a float.
_SMALLEST_VARIANCE, _LARGEST_NUMBER = 1e-100, 1e100
# No rate is below 1e-100, so every flow has reached its limit long before.
_LONGEST_TIME = 1e150


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian law.

    Attributes:
      mean: shape (d,), entries of at most 1e100 in absolute value.
      covariance: shape (d, d), symmetric, its eigenvalues from 1e-100 to 1e100.
    """

    mean: FloatArray
    covariance: FloatArray

    def __post_init__(self) -> None:
        mean = np.atleast_1d(_moderate("mean", self.mean))
        covariance = np.atleast_2d(_moderate("covariance", self.covariance))
        if mean.ndim != 1 or mean.size == 0 or covariance.shape != (mean.size, mean.size):
            raise ValueError(
                f"mean and covariance must have shapes (d,) and (d, d), got {mean.shape} and"
                f" {covariance.shape}"
            )
        if not np.allclose(covariance, covariance.T, rtol=1e-9, atol=0.0):
            raise ValueError(f"covariance must be symmetric, got {covariance.tolist()}")
        smallest = float(np.linalg.eigvalsh(covariance).min())
        if smallest < _SMALLEST_VARIANCE:
            raise ValueError(
                "covariance must be positive definite with eigenvalues of at least"
                f" {_SMALLEST_VARIANCE:g}, got {smallest:g}"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)


def gaussian(mean: ArrayLike, covariance: ArrayLike) -> Gaussian:
    """Returns a Gaussian from numbers or arrays."""
    return Gaussian(_moderate("mean", mean), _moderate("covariance", covariance))


def wasserstein_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the Langevin law at `time` >= 0."""
    variances, basis, offset, difference = _in_target_basis(start, target)
    decay = np.exp(-_check_time(time) / variances)
    spread = np.diag(variances) + decay[:, np.newaxis] * difference * decay
    return _from_target_basis(target, basis, decay * offset, spread)


def fisher_rao_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the birth-death law at `time` >= 0: density proportional to rho_0^{e^{-t}}
    pi^{1-e^{-t}}.
    """
    _check_same_dimension(start, target)
    weight = math.exp(-_check_time(time))
    first, second = np.linalg.inv(start.covariance), np.linalg.inv(target.covariance)
    covariance = np.linalg.inv(weight * first + (1.0 - weight) * second)
    mean = covariance @ (weight * first @ start.mean + (1.0 - weight) * second @ target.mean)
    return Gaussian(mean, _symmetric(covariance))


def wfr_flow(start: Gaussian, target: Gaussian, time: float) -> Gaussian:
    """Returns the SHK (Wasserstein-Fisher-Rao) law at `time` >= 0.

    With M = L + I/2 the distance D = S - L^{-1} follows D' = -M D - D M - D L D, so F in D =
    e^{-Mt} F e^{-Mt} has (F^{-1})' = e^{-Mt} L e^{-Mt} and
        F = (I + D_0 W)^{-1} D_0,    W = L (2 M)^{-1} (I - e^{-2Mt}),
        m - b = e^{-t/2} e^{-Mt} (I + D_0 W)^{-1} (m_0 - b).
    """
    time = _check_time(time)
    variances, basis, offset, difference = _in_target_basis(start, target)
    rates = 1.0 / variances + 0.5
    decay = np.exp(-time * rates)
    # L / (2 M) = 1 / (2 + variance)
    weights = -np.expm1(-2.0 * time * rates) / (2.0 + variances)
    # I + D_0 W = (I - L^{-1} W) + S_0 W, the first part in a form that does not cancel.
    rest = (2.0 + variances * np.exp(-2.0 * time * rates)) / (2.0 + variances)
    system = np.diag(rest) + (difference + np.diag(variances)) * weights
    solved = np.linalg.solve(system, np.column_stack([difference, offset]))
    spread = np.diag(variances) + decay[:, np.newaxis] * solved[:, :-1] * decay
    return _from_target_basis(target, basis, math.exp(-time / 2.0) * decay * solved[:, -1], spread)


def _in_target_basis(
    start: Gaussian, target: Gaussian
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Returns the target's variances and eigenvectors, and in them m_0 - b and S_0 - L^{-1}."""
    _check_same_dimension(start, target)
    variances, basis = np.linalg.eigh(target.covariance)
    covariance = basis.T @ start.covariance @ basis
    offset = basis.T @ (start.mean - target.mean)
    return variances, basis, offset, covariance - np.diag(variances)


def _from_target_basis(
    target: Gaussian, basis: FloatArray, offset: FloatArray, covariance: FloatArray
) -> Gaussian:
    return Gaussian(target.mean + basis @ offset, _symmetric(basis @ covariance @ basis.T))


def _check_same_dimension(start: Gaussian, target: Gaussian) -> None:
    for name, law in (("start", start), ("target", target)):
        if not isinstance(law, Gaussian):
            raise ValueError(f"{name} must be a Gaussian, got {law!r}")
    if start.mean.size != target.mean.size:
        raise ValueError(
            "start and target must have the same dimension, got"
            f" {start.mean.size} and {target.mean.size}"
        )


def _check_time(time: float) -> float:
    return min(check_real("time", time, at_least=0.0), _LONGEST_TIME)


def _moderate(name: str, values: ArrayLike) -> FloatArray:
    array = check_numbers(name, values)
    # Written so that NaN fails.
    if not np.all(np.abs(array) <= _LARGEST_NUMBER):
        raise ValueError(
            f"{name} must hold numbers of at most {_LARGEST_NUMBER:g} in absolute value, got"
            f" {values!r}"
        )
    return array


def _symmetric(matrix: FloatArray) -> FloatArray:
    return np.asarray((matrix + matrix.T) / 2.0)
