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
    Claim,
    GaussianDp,
    PureDp,
    RenyiDp,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    GaussianCurve,
    MinimumCurve,
    PointsCurve,
    TradeOffCurve,
)

Array = NDArray[np.float64]

# Levels at which a polygon touches its curve: dense toward 0 and 1.
_TOUCHING_LEVELS = expit(np.linspace(-34.0, 34.0, 801))
# Orders whose implied curves stand in for "every order" of zCDP.
_ZCDP_ORDERS = np.concatenate([1.0 + np.geomspace(0.01, 1.0, 15), np.geomspace(2.2, 256.0, 25)])
# Halvings of [level, 1]: to the last bit.
_HALVINGS = 70
_DIRECTIONS = ("remove", "add", "both")
# More than the rounding of a log moment at these levels, over its order: without it, a curve of a
# tiny epsilon would be noise.
_MOMENT_ROUNDING = 1e-13
# Levels below this are all as good as 0.
_SMALLEST_LEVEL = 1e-300
# Polygons are lifted by this, more than all rounding of their points.
_LIFT = 1e-13
_LIFT_PLD = 1e-11


def trade_off_curve(claim: Claim) -> TradeOffCurve:
    """Returns the most power that the claim allows, in both orders of the two laws.

    Args:
      claim: what `read_claim` returns.
    """
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


def renyi_curve(alpha: float, epsilon: float) -> MinimumCurve:
    """Returns what D_alpha <= epsilon in both orders implies for events: coins no further apart
    than that.

    F(a) is the largest b for which two coins with probabilities b and a have D_alpha <= epsilon in
    either order. The set of such (a, b) is convex, so F is concave. Source: Balle, Barthe,
    Gaboardi, Hsu and Sato (2020), "Hypothesis Testing Interpretations and Rényi Differential
    Privacy".

    Args:
      alpha: order > 1.
      epsilon: >= 0.
    """
    alpha, epsilon = check_order(alpha), check_epsilon(epsilon)
    log_bound = (alpha - 1.0) * epsilon + _MOMENT_ROUNDING * alpha
    return MinimumCurve(
        [_polygon(_log_moment_of_coins(alpha, swapped), log_bound) for swapped in (False, True)]
    )


_LogMoment = Callable[[Array, Array], tuple[Array, Array, Array]]


def _log_moment_of_coins(alpha: float, swapped: bool) -> _LogMoment:
    """Returns (a, b) -> log E[(ratio)^alpha] of the coins, and two numbers whose ratio is -db/da
    along its contour.
    """

    def log_moment(a: Array, b: Array) -> tuple[Array, Array, Array]:
        q, p = (a, b) if swapped else (b, a)
        log_q, log_p, log_not_q, log_not_p = np.log(q), np.log(p), np.log1p(-q), np.log1p(-p)
        yes = alpha * log_q + (1.0 - alpha) * log_p
        no = alpha * log_not_q + (1.0 - alpha) * log_not_p
        # Derivatives of the moment in q and p, up to one factor that keeps them finite.
        exponents = np.array([yes - log_q, no - log_not_q, no - log_not_p, yes - log_p])
        yes_q, no_q, no_p, yes_p = np.exp(exponents - exponents.max(axis=0))
        in_q, in_p = alpha * (yes_q - no_q), (alpha - 1.0) * (no_p - yes_p)
        in_b, in_a = (in_p, in_q) if swapped else (in_q, in_p)
        return np.logaddexp(yes, no), in_a, in_b

    return log_moment


def _polygon(log_moment: _LogMoment, log_bound: float) -> PointsCurve:
    """Returns the polygon of tangents at many levels of the curve b(a) on which the moment meets
    its bound.
    """
    a = _TOUCHING_LEVELS
    low, high = a.copy(), np.full_like(a, np.nextafter(1.0, 0.0))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            inside = log_moment(a, middle)[0] <= log_bound
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        moment, in_a, in_b = log_moment(a, high)
        certain = moment <= log_bound  # every event of this level may be certain under Q
        slope = np.where(certain, 0.0, -in_a / in_b)
    return _circumscribed(a, np.where(certain, 1.0, high), slope)


def _circumscribed(levels: Array, powers: Array, slopes: Array) -> PointsCurve:
    """Returns the polygon of the tangents to a concave curve at the given points: it lies nowhere
    below the curve.

    Args:
      levels: shape (k,), increasing, in (0, 1).
      powers: shape (k,), the curve there.
      slopes: shape (k,), its slopes there; what is not a number is left out.
    """
    good = np.isfinite(slopes) & (slopes >= 0.0)
    # Nothing is above 1: the last tangent.
    a, b, s = (
        np.append(values[good], end)
        for values, end in ((levels, 1.0), (powers + _LIFT, 1.0), (slopes, 0.0))
    )
    falling = np.append(True, np.diff(np.minimum.accumulate(s)) < -1e-9 * s[:-1])
    a, b, s = a[falling], b[falling], s[falling]
    offset = b - s * a
    corner = (offset[1:] - offset[:-1]) / (s[:-1] - s[1:])
    keep = (corner > a[:-1]) & (corner < a[1:])
    corners = np.concatenate([[0.0], corner[keep], [1.0]])
    height = np.min(offset[:, np.newaxis] + s[:, np.newaxis] * corners, axis=0)
    height = np.clip(height, corners, 1.0)
    height[-1] = 1.0
    return PointsCurve(corners, height)


def privacy_loss_curve(pld: Any, direction: str = "remove") -> PointsCurve:
    """Returns the curve of a privacy loss distribution of dp_accounting.

    It is the ROC of the distribution's own dominating pair, up to what falls below rounding at its
    ends. dp_accounting's discrete pair dominates the mechanism's, so the curve lies a little above
    the mechanism's.

    Args:
      pld: a `dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution`.
      direction: "remove" for Q the law with the record and P the one without it; "add" for the
        other way round; "both" for what is allowed whichever way round two given samples are.
    """
    direction = check_choice("direction", direction, _DIRECTIONS)
    from dp_accounting.pld import privacy_loss_distribution

    if not isinstance(pld, privacy_loss_distribution.PrivacyLossDistribution):
        raise ValueError(f"pld must be a PrivacyLossDistribution of dp_accounting, got {pld!r}")
    removing, adding = pld._pmf_remove, pld._pmf_add
    if direction == "both":
        first, second = _roc(removing), _roc(adding)
        return _concave_hull(np.concatenate([first, second], axis=1))
    return PointsCurve(*_roc(removing if direction == "remove" else adding))


def dp_event_curve(event: Any, direction: str = "remove") -> PointsCurve:
    """Returns the curve of a `dp_accounting.DpEvent` that the PLD accountant supports; see
    `privacy_loss_curve`.

    Raises:
      ValueError: the accountant does not support the event.
    """
    import dp_accounting
    from dp_accounting.pld import pld_privacy_accountant

    if not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(f"event must be a DpEvent of dp_accounting, got {event!r}")
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
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
    check_choice("direction", direction, _DIRECTIONS)
    if rate == 1.0:
        return GaussianCurve(dp_sgd_mu(num_steps, noise_multiplier))
    # As for `dp_sgd_epsilon`: beyond, the distribution of the loss grows past memory.
    check_int("num_steps", num_steps, at_most=10**6)
    check_real("sample_rate", rate, at_least=1e-12)
    check_real("noise_multiplier", noise_multiplier, at_least=0.02, at_most=1e30)
    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    return dp_event_curve(dp_accounting.SelfComposedDpEvent(step, num_steps), direction)


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
        level = np.append(0.0, np.cumsum((probs * np.exp(-losses))[::-1]))
    power = np.minimum(power + _LIFT_PLD, 1.0)
    power[0] = power[level < _SMALLEST_LEVEL][-1]
    # Sums of many masses carry rounding of some 1e-13: points closer than that are one, and all are
    # lifted by more.
    apart = np.diff(level) > np.maximum(1e-12 * level[1:], _SMALLEST_LEVEL)
    keep = np.append(True, apart) & (level < 1.0 - _LIFT_PLD)
    level, power = level[keep], power[keep]
    return np.stack([np.append(level, 1.0), np.append(power, 1.0)])


def _concave_hull(points: Array) -> PointsCurve:
    """Returns the least concave curve above the points, shape (2, k)."""
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
    return PointsCurve(*np.array(hull).T)
