"""The trade-off curve that a claim implies: of a privacy property, of a privacy loss distribution,
of a DpEvent.

Rényi DP and zCDP speak of divergences; the curve is what they imply for single events, by data
processing: an event turns two laws into two coins, whose divergence is no larger. Where a curve has
no closed form it is replaced by a polygon that lies above it, touching it at many levels: a little
less is claimed, so that nothing is refuted which the claim allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dvrenyi_plugin._internal.validation import (
    check_choice,
    check_epsilon,
    check_int,
    check_order,
    check_real,
)
from dvrenyi_plugin.privacy.properties import (
    ApproximateDp,
    BoundedRangeDp,
    Claim,
    GaussianDp,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    BoundedRangeCurve,
    GaussianCurve,
    MinimumCurve,
    PointsCurve,
    TradeOffCurve,
)

Array = NDArray[np.float64]

# A polygon touches its curve at levels with log odds from here up to those of the middle.
_FEWEST_LOG_ODDS, _NUM_TOUCHING = -34.0, 401
# Orders whose implied curves stand in for "every order" of zCDP.
_ZCDP_ORDERS = np.concatenate([1.0 + np.geomspace(0.01, 1.0, 15), np.geomspace(2.2, 256.0, 25)])
# Halvings of [level, 1]: to the last bit.
_HALVINGS = 70
# The accountant rounds losses up to multiples of this; coarser where the noise is smaller than
# that.
_LOSS_INTERVAL, _SMALL_NOISE = 1e-3, 0.05
CURVE_DIRECTIONS = ("remove", "add", "both")
# More than the rounding of a log moment at these levels, over its order: without it, a curve of a
# tiny epsilon would be noise.
_MOMENT_ROUNDING = 1e-13
# Levels below this are all as good as 0.
_SMALLEST_LEVEL = 1e-300
# Polygons are lifted by this, more than all rounding of their points.
_LIFT = 1e-13
_LIFT_PLD = 1e-11


def trade_off_curve(claim: Claim, direction: str = "both") -> TradeOffCurve:
    """Returns the most power that the claim allows.

    Args:
      claim: what `read_claim` returns.
      direction: see `privacy_loss_curve`; makes a difference to subsampled Gaussian DP alone.
    """
    check_choice("direction", direction, CURVE_DIRECTIONS)
    match claim:
        case GaussianDp(mu=mu):
            return GaussianCurve(mu)
        case PureDp(epsilon=epsilon):
            return ApproximateDpCurve(epsilon)
        case ApproximateDp(epsilon=epsilon, delta=delta):
            return ApproximateDpCurve(epsilon, delta)
        case RenyiDp(alpha=alpha, epsilon=epsilon):
            return renyi_curve(alpha, epsilon)
        case ZeroConcentratedDp(rho=rho):
            return MinimumCurve(
                [renyi_curve(float(alpha), float(alpha) * rho) for alpha in _ZCDP_ORDERS]
            )
        case BoundedRangeDp(width=width):
            return BoundedRangeCurve(width)
        case SubsampledGaussianDp(noise_multiplier=noise, sample_rate=rate, num_steps=steps):
            return dp_sgd_curve(steps, noise, rate, direction)


def renyi_curve(alpha: float, epsilon: float) -> TradeOffCurve:
    """Returns what D_alpha <= epsilon in both orders implies for events: coins no further apart.

    F(a) is the largest b for which two coins with probabilities b and a have D_alpha <= epsilon in
    either order. The set of such (a, b) is convex, so F is concave. Source: Balle, Barthe,
    Gaboardi, Hsu and Sato (2020), "Hypothesis Testing Interpretations and Renyi Differential
    Privacy".

    Args:
      alpha: order > 1.
      epsilon: >= 0.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    log_bound = (alpha - 1.0) * epsilon + _MOMENT_ROUNDING * alpha

    def is_allowed(a: Array, b: Array) -> NDArray[np.bool_]:
        return _log_moment_of_coins(alpha, a, b) <= log_bound

    # The curve is symmetric: what it says up to its point (a, 1 - a) it says mirrored beyond.
    least, half = np.array(_FEWEST_LOG_ODDS), np.array(0.0)
    if is_allowed(expit(least), expit(-least)):
        return PointsCurve([0.0], [1.0], symmetric=True)
    middle = _boundary(lambda odds: ~is_allowed(expit(odds), expit(-odds)), least, half)[0]
    a = expit(np.linspace(_FEWEST_LOG_ODDS, middle, _NUM_TOUCHING))
    b = _boundary(lambda power: is_allowed(a, power), a, 1.0 - a)[1]
    slope = _slope_of_coins(alpha, a, b)
    return _TangentsCurve(
        np.append(a, 1.0 - b[::-1]),
        np.append(b, 1.0 - a[::-1]),
        np.append(slope, 1.0 / slope[::-1]),
    )


def _log_moment_of_coins(alpha: float, p: Array, q: Array) -> Array:
    """Returns log E[(ratio)^alpha] of a coin of probability q against one of probability p."""
    yes = alpha * np.log(q) + (1.0 - alpha) * np.log(p)
    no = alpha * np.log1p(-q) + (1.0 - alpha) * np.log1p(-p)
    return np.logaddexp(yes, no)


def _slope_of_coins(alpha: float, p: Array, q: Array) -> Array:
    """Returns dq/dp along a contour of the moment, for q > p: a ratio of sums of positive terms."""
    log_yes, log_no = np.log1p((q - p) / p), np.log1p(-(q - p) / (1.0 - p))
    power = (alpha - 1.0) * (log_no - log_yes)
    ratio = (np.expm1(log_yes) - np.expm1(log_no + power)) / -np.expm1(power)
    return np.asarray((alpha - 1.0) / alpha * ratio)


def _boundary(
    holds: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array
) -> tuple[Array, Array]:
    """Returns the two sides of the place from which on a condition that holds at low does not."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        inside = holds(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low, high


class _TangentsCurve(TradeOffCurve):
    """The polygon of tangents to a symmetric concave curve: nowhere below the curve.

    At a level near a corner, rounding may take the tangent of a neighbour: it is above the curve,
    too.

    Args:
      levels: shape (k,), increasing, in (0, 1).
      powers: shape (k,), the curve there.
      slopes: shape (k,), its slopes there, decreasing.
    """

    def __init__(self, levels: Array, powers: Array, slopes: Array) -> None:
        # Nothing is above 1: the last tangent.
        a, b, s = np.append(levels, 1.0), np.append(powers + _LIFT, 1.0), np.append(slopes, 0.0)
        falling = np.append(True, np.diff(np.minimum.accumulate(s)) < -1e-9 * s[:-1])
        a, b, s = a[falling], b[falling], s[falling]
        offset = b - s * a
        # Tangents of neighbouring points meet between them.
        self._corners = np.clip((offset[1:] - offset[:-1]) / (s[:-1] - s[1:]), a[:-1], a[1:])
        self._levels, self._powers, self._slopes = a, b, s

    def power_at(self, level: Array) -> Array:
        """See `TradeOffCurve.power_at`."""
        return np.clip(self._tangent(level)[0], level, 1.0)

    def slope_at(self, level: Array) -> Array:
        """See `TradeOffCurve.slope_at`."""
        power, slope = self._tangent(level)
        return np.where(power < 1.0, slope, 0.0)

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True

    def _tangent(self, level: Array) -> tuple[Array, Array]:
        touched = np.searchsorted(self._corners, level)
        slope = self._slopes[touched]
        return self._powers[touched] + slope * (level - self._levels[touched]), slope


def privacy_loss_curve(pld: Any, direction: str = "remove") -> PointsCurve:
    """Returns the curve of a privacy loss distribution of dp_accounting.

    It is the ROC of the distribution's own dominating pair, up to what falls below rounding at its
    ends. dp_accounting's discrete pair dominates the mechanism's, so the curve lies a little above
    the mechanism's. All powers are lifted by 1e-11, more than the rounding of the accountant's
    sums: no epsilon is finite at a delta below that.

    Args:
      pld: a `dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution`.
      direction: "remove" for Q the law with the record and P the one without it; "add" for the
        other way round; "both" for what is allowed whichever way round two given samples are.
    """
    direction = check_choice("direction", direction, CURVE_DIRECTIONS)
    from dp_accounting.pld import privacy_loss_distribution

    if not isinstance(pld, privacy_loss_distribution.PrivacyLossDistribution):
        raise ValueError(f"pld must be a PrivacyLossDistribution of dp_accounting, got {pld!r}")
    removing, adding = pld._pmf_remove, pld._pmf_add
    if direction == "both":
        first, second = _roc(removing), _roc(adding)
        return _concave_hull(np.concatenate([first, second], axis=1))
    roc = _roc(removing if direction == "remove" else adding)
    return PointsCurve(*roc, symmetric=removing is adding)


def dp_event_curve(event: Any, direction: str = "remove") -> PointsCurve:
    """Returns the curve of a `dp_accounting.DpEvent` that the PLD accountant supports.

    Args:
      event: what the mechanism does.
      direction: see `privacy_loss_curve`.

    Raises:
      ValueError: the accountant does not support the event.
    """
    return _event_curve(event, direction, _LOSS_INTERVAL)


def _event_curve(event: Any, direction: str, loss_interval: float) -> PointsCurve:
    import dp_accounting
    from dp_accounting.pld import pld_privacy_accountant

    if not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(f"event must be a DpEvent of dp_accounting, got {event!r}")
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=loss_interval)
    if not accountant.supports(event):
        raise ValueError(f"event must be one that the PLD accountant supports, got {event!r}")
    accountant.compose(event)
    return privacy_loss_curve(accountant._pld, direction)


def dp_sgd_curve(
    num_steps: int, noise_multiplier: float, sample_rate: float, direction: str = "remove"
) -> TradeOffCurve:
    """Returns the curve of DP-SGD with full or Poisson batches: Gaussian DP at rate 1, else from
    the PLD.

    Args:
      num_steps: >= 1.
      noise_multiplier: standard deviation of the noise over the clipping norm, > 0.
      sample_rate: in (0, 1].
      direction: see `privacy_loss_curve`.
    """
    import dp_accounting

    from dvrenyi_plugin.privacy.conversions import dp_sgd_mu

    num_steps = check_int("num_steps", num_steps, at_least=1)
    rate = check_real("sample_rate", sample_rate, above=0.0, at_most=1.0)
    noise_multiplier = check_real("noise_multiplier", noise_multiplier, above=0.0)
    check_choice("direction", direction, CURVE_DIRECTIONS)
    if rate == 1.0:
        return GaussianCurve(dp_sgd_mu(num_steps, noise_multiplier))
    # As for `dp_sgd_epsilon`: beyond, the distribution of the loss grows past memory.
    check_int("num_steps", num_steps, at_most=10**6)
    check_real("sample_rate", rate, at_least=1e-12)
    check_real("noise_multiplier", noise_multiplier, at_least=0.02, at_most=1e30)
    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    # Losses grow with 1 / noise^2, and the time with their number of intervals.
    interval = _LOSS_INTERVAL * max(1.0, (_SMALL_NOISE / noise_multiplier) ** 2)
    event = dp_accounting.SelfComposedDpEvent(step, num_steps)
    return _event_curve(event, direction, interval)


def _roc(pmf: Any) -> Array:
    """Returns levels and powers, shape (2, k), of the tests "loss at or above t", from (0, infinity
    mass) on.
    """
    dense = pmf.to_dense_pmf()
    # Compositions are made by Fourier transforms, whose rounding may be negative.
    probs = np.maximum(np.asarray(dense._probs, dtype=np.float64), 0.0)
    losses = (dense._lower_loss + np.arange(probs.size)) * dense._discretization
    power = dense._infinity_mass + np.append(0.0, np.cumsum(probs[::-1]))
    with np.errstate(under="ignore"):
        # Masses of such losses are 0 but for rounding, which no factor may make infinite.
        likelihoods = np.exp(np.minimum(-losses, 700.0))
        level = np.append(0.0, np.cumsum((probs * likelihoods)[::-1]))
    power = np.minimum(power + _LIFT_PLD, 1.0)
    power[0] = power[level < _SMALLEST_LEVEL][-1]
    # Sums of many masses carry rounding of some 1e-13: points closer than that are one, and all are
    # lifted by more.
    apart = np.diff(level) > np.maximum(1e-12 * level[1:], _SMALLEST_LEVEL)
    keep = np.append(True, apart) & (level < 1.0 - _LIFT_PLD)
    level, power = level[keep], power[keep]
    return np.stack([np.append(level, 1.0), np.append(power, 1.0)])


def _concave_hull(points: Array) -> PointsCurve:
    """Returns the least concave curve above the points of a pair and of its swap, shape (2, k)."""
    order = np.lexsort((-points[1], points[0]))
    hull: list[tuple[float, float]] = []
    for a, b in points[:, order].T:
        if hull and a <= hull[-1][0]:
            continue
        while len(hull) > 1 and (b - hull[-1][1]) * (hull[-1][0] - hull[-2][0]) >= (
            hull[-1][1] - hull[-2][1]
        ) * (a - hull[-1][0]):
            hull.pop()
        hull.append((float(a), float(b)))
    return PointsCurve(*np.array(hull).T, symmetric=True)
