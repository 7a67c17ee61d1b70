"""The family of curves in which a privacy claim is tested, so that its bound is on the scale of the
claim.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.validation import check_order, check_real
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
from dvrenyi_plugin.privacy.trade_off import TradeOffCurve, check_curve
from dvrenyi_plugin.privacy.trade_off_claims import renyi_curve, trade_off_curve
from dvrenyi_plugin.privacy.trade_off_families import (
    ApproximateDpFamily,
    BoundedRangeFamily,
    GaussianFamily,
    TradeOffFamily,
)

Array = NDArray[np.float64]

# A family of one has its level a hair above the claim, so that a refuted claim is exceeded by its
# bound.
_HAIR = 1.0 + 1e-9


class RenyiFamily(TradeOffFamily):
    """What D_alpha <= epsilon at one order implies for events, by epsilon.

    Its curves are polygons that take milliseconds to make, so its grid is coarse.

    Args:
      alpha: order > 1.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = check_order(alpha)

    @property
    def name(self) -> str:
        """Returns which order it is."""
        return f"events of Renyi DP of order {self.alpha:g}"

    @property
    def parameter(self) -> str:
        """Returns "epsilon"."""
        return "epsilon"

    def curve(self, value: float) -> TradeOffCurve:
        """Returns the implied curve."""
        return _renyi_curve(self.alpha, check_real("value", value, at_least=0.0))

    @property
    def grid(self) -> Array:
        """0.005 to 50 in steps of 10%."""
        return np.geomspace(0.005, 50.0, 98)


class SingleCurveFamily(TradeOffFamily):
    """One curve, for a claim that is not tested in a family: it is refuted or not, and nothing
    beyond it is certified.

    Args:
      claimed: the curve.
      level: the claim's own number; refuting the curve certifies this number, and no more.
      parameter: what that number is.
      name: what the curve is.
    """

    def __init__(
        self,
        claimed: TradeOffCurve,
        level: float = 1.0,
        parameter: str = "claims refuted",
        name: str = "the claimed curve",
    ) -> None:
        self._claimed = check_curve("claimed", claimed)
        self._level = check_real("level", level, above=0.0)
        for argument, value in (("parameter", parameter), ("name", name)):
            if not isinstance(value, str):
                raise ValueError(f"{argument} must be text, got {value!r}")
        self._parameter, self._name = parameter, name

    @property
    def name(self) -> str:
        """As it was given."""
        return self._name

    @property
    def parameter(self) -> str:
        """As it was given."""
        return self._parameter

    def curve(self, value: float) -> TradeOffCurve:
        """Returns the one curve, whatever the value."""
        return self._claimed

    @property
    def grid(self) -> Array:
        """The one level."""
        return np.array([self._level])


@functools.lru_cache(maxsize=64)  # a tester and its configuration ask for the same one
def family_of(claim: Claim, direction: str = "both") -> TradeOffFamily:
    """Returns the family whose parameter is the claim's own number; a claim above the family's grid
    is a null of its own.

    zCDP and subsampled Gaussian DP have families of one, since their curves take up to seconds to
    make: the least of 40 polygons, and the accountant's.

    Args:
      claim: what `read_claim` returns.
      direction: see `trade_off_curve`.
    """
    match claim:
        case GaussianDp():
            return GaussianFamily()
        case PureDp():
            return ApproximateDpFamily(0.0)
        case ApproximateDp(delta=delta):
            return ApproximateDpFamily(delta)
        case RenyiDp(alpha=alpha):
            return RenyiFamily(alpha)
        case BoundedRangeDp():
            return BoundedRangeFamily()
        case ZeroConcentratedDp(rho=rho):
            level = max(rho * _HAIR, 1e-9)
            return SingleCurveFamily(
                trade_off_curve(ZeroConcentratedDp(level)), level, "rho", "events of zCDP"
            )
        case SubsampledGaussianDp(noise_multiplier=noise):
            return SingleCurveFamily(
                trade_off_curve(claim, direction),
                _HAIR / noise,
                "1 / noise multiplier",
                "the accountant's curve of subsampled Gaussian noise",
            )


@functools.lru_cache(maxsize=256)  # every refit of every audit asks for the same ones
def _renyi_curve(alpha: float, epsilon: float) -> TradeOffCurve:
    return renyi_curve(alpha, epsilon)
