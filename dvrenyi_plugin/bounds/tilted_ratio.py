"""The density ratio r of the growth-optimal factor and both of its halves, along one number z.

With Phi = e^{(alpha - 1) epsilon} and the bet c = lambda alpha Phi, the halves of the factor are

    first  = 1 + c (r^{alpha - 1} / Phi - 1),                   used at samples of Q,
    second = 1 + c (alpha - 1) / alpha (1 - r^alpha / Phi),     used at samples of P,

and r solves log r + log first - log second = log dQ/dP, which is explicit in r. r lies between the
places where the halves reach 0 (for c <= 1 the first never does, and r may come down to 0). z is
the logit of (r / sup r)^alpha for c <= 1, and of the place of log r between its ends for c > 1:
log dQ/dP is smooth in z, bends only for |z| of a few units, and increases with slope between
1 / alpha and about 1 at both ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

Array = NDArray[np.float64]

# Below, e^y - 1 and 1 - e^-y are y to the last bit, and y may underflow where log y does not.
_UNDERFLOW = 1e-290


class Halves(NamedTuple):
    """log r and the logarithms of both halves of the factor, all of one shape."""

    log_r: Array
    log_first: Array
    log_second: Array

    @property
    def log_ratio(self) -> Array:
        """The log dQ/dP to which they belong."""
        return self.log_r + self.log_first - self.log_second


class TiltedRatio(Protocol):
    """r along z, for one bet or for several, whose arrays are broadcast against those of z."""

    def halves(self, z: Array) -> Halves:
        """Returns r and both halves at z."""

    def slope(self, z: Array) -> Array:
        """Returns the derivative of `Halves.log_ratio` by z."""


def log_r_inf(alpha: float, bet: Any) -> Array:
    """Returns the infimum of log r, less epsilon, for bets c > 1."""
    return np.asarray(np.log1p(-1.0 / bet) / (alpha - 1.0))


def log_r_sup(alpha: float, epsilon: Any, bet: Any) -> Array:
    """Returns the supremum of log r, less epsilon."""
    return np.asarray(_scaled_log_r_sup(alpha, epsilon, bet) / alpha)


def tilted_ratio(alpha: float, epsilon: Any, bet: Any) -> TiltedRatio:
    """Returns the parametrisation for bets that are all at most 1, or all above 1.

    Args:
      alpha: order > 1.
      epsilon: one null, >= 0, or an array of them.
      bet: c > 0, of one shape with `epsilon`, with some r left between the ends.
    """
    kind = _SmallBets if np.max(bet) <= 1.0 else _LargeBets
    return kind(alpha, epsilon, bet)


def _scaled_log_r_sup(alpha: float, epsilon: Any, bet: Any) -> Array:
    """Returns alpha (log r - epsilon) where the second half is 0.

    One expression for the difference: at large orders (alpha - 1) epsilon and alpha log r are both
    so large that their difference would be rounding alone, and the mean of a factor above 1.
    """
    return np.asarray(np.log1p(alpha / (alpha - 1.0) / bet) - epsilon)


class _SmallBets:
    """Bets c <= 1, where r may come down to 0."""

    def __init__(self, alpha: float, epsilon: Any, bet: Any) -> None:
        self._alpha, self._epsilon, self._bet = alpha, epsilon, bet
        self._second_at_zero = np.log1p(bet * ((alpha - 1.0) / alpha))
        self._top = _scaled_log_r_sup(alpha, epsilon, bet)

    def halves(self, z: Array) -> Halves:
        scaled = self._top + log_expit(z)
        # No overflow at any order: alpha (log r - epsilon) <= top keeps the exponent below
        # -log(c) + 1.
        first = np.log1p(self._bet * np.expm1(self._tilt(scaled)))
        log_r = self._epsilon + scaled / self._alpha
        return Halves(log_r, first, self._second_at_zero + log_expit(-z))

    def slope(self, z: Array) -> Array:
        tilt = self._tilt(self._top + log_expit(z))
        first = np.log1p(self._bet * np.expm1(tilt))
        log_r_slope = expit(-z) / self._alpha
        first_slope = (self._alpha - 1.0) * self._bet * np.exp(tilt - first) * log_r_slope
        return np.asarray(log_r_slope + first_slope + expit(z))

    def _tilt(self, scaled: Array) -> Array:
        """Returns (alpha - 1) (log r - epsilon)."""
        return (self._alpha - 1.0) / self._alpha * scaled


class _LargeBets:
    """Bets c > 1, where r stays above the zero of the first half."""

    def __init__(self, alpha: float, epsilon: Any, bet: Any) -> None:
        self._alpha, self._epsilon, self._bet = alpha, epsilon, bet
        self._second_at_zero = np.log1p(bet * ((alpha - 1.0) / alpha))
        self._top = log_r_sup(alpha, epsilon, bet)
        self._width = self._top - log_r_inf(alpha, bet)

    def halves(self, z: Array) -> Halves:
        rise, fall = self._rise_and_fall(z)
        log_rise = np.log((self._alpha - 1.0) * self._width) + log_expit(z)
        log_fall = np.log(self._alpha * self._width) + log_expit(-z)
        first = np.log(self._bet - 1.0) + np.where(
            rise > _UNDERFLOW, np.log(np.expm1(np.maximum(rise, _UNDERFLOW))), log_rise
        )
        second = self._second_at_zero + np.where(
            fall > _UNDERFLOW, np.log(-np.expm1(-np.maximum(fall, _UNDERFLOW))), log_fall
        )
        return Halves(self._epsilon + self._top - self._width * expit(-z), first, second)

    def slope(self, z: Array) -> Array:
        rise, fall = self._rise_and_fall(z)
        first_slope = expit(-z) * _over_one_minus_exp(rise)
        second_slope = expit(z) * np.exp(-fall) * _over_one_minus_exp(fall)
        return np.asarray(self._width * expit(z) * expit(-z) + first_slope + second_slope)

    def _rise_and_fall(self, z: Array) -> tuple[Array, Array]:
        """Returns (alpha - 1) times log r above its infimum, alpha times log r below its supremum.

        The first half is (c - 1) (e^rise - 1), the second its value at r = 0 times 1 - e^-fall.
        """
        return (self._alpha - 1.0) * (self._width * expit(z)), self._alpha * (
            self._width * expit(-z)
        )


def _over_one_minus_exp(y: Array) -> Array:
    """Returns y / (1 - e^-y) for y >= 0, 1 at 0."""
    positive = np.where(y > 0.0, y, 1.0)
    return np.where(y > 0.0, positive / -np.expm1(-positive), 1.0)
