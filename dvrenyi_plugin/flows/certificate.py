"""One object that answers every privacy question about a flow stopped at time t, and names the
result it used.

The answers hold for the law that the program of `grid_flow` produces, at every step size, because
each rests on
    width(log rho_t / rho'_t) <= osc(V - V') + decay (R_0 + R_0'),
with decay = e^{-t} where the reaction runs and 1 where it does not. A relative 1e-12 is added to
the width for rounding. What a 64-bit random number does to the tails of a draw is not covered: see
`Grid.draw`.
"""

from __future__ import annotations

import dataclasses
import math

from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.ranges import check_size
from dvrenyi_plugin._internal.validation import (
    check_bool,
    check_epsilon,
    check_order,
    check_real,
)
from dvrenyi_plugin.flows.grid import Grid
from dvrenyi_plugin.flows.stability import pair_constants
from dvrenyi_plugin.flows.utility import excess_bound
from dvrenyi_plugin.privacy.bounded_range import (
    delta_of_pure_dp,
    delta_of_range,
    kullback_leibler_of_range,
    renyi_of_range,
)
from dvrenyi_plugin.privacy.divergences import renyi_pure_dp
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    BoundedRangeCurve,
    MinimumCurve,
    TradeOffCurve,
)

_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class CertifiedValue:
    """An upper bound and where it comes from.

    Attributes:
      value: the bound.
      source: the result that gave it.
    """

    value: float
    source: str


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Privacy of a flow at one time, for one pair of potentials or for all neighbours.

    Attributes:
      time: t >= 0.
      oscillation_distance: osc(V - V'), or its bound over all neighbours.
      initial_oscillation1: R_0 = osc(log rho_0 / pi), or its bound over all datasets.
      initial_oscillation2: R_0', likewise.
      sup_distance: ||V - V'||_inf or a bound, if known (assumption A1).
      target_log_ratio: ||log pi / pi'||_inf or a bound, if known (the exact target floor).
      has_reaction: True for SHK (initial terms decay as e^{-t}), False for plain Langevin (they do
        not grow).
    """

    time: float
    oscillation_distance: float
    initial_oscillation1: float
    initial_oscillation2: float
    sup_distance: float | None = None
    target_log_ratio: float | None = None
    has_reaction: bool = True

    def __post_init__(self) -> None:
        values = {"time": check_real("time", self.time, at_least=0.0)}
        for name in (
            "oscillation_distance",
            "initial_oscillation1",
            "initial_oscillation2",
            "sup_distance",
            "target_log_ratio",
        ):
            value = getattr(self, name)
            if value is not None or name not in ("sup_distance", "target_log_ratio"):
                values[name] = check_size(name, value)
        for name, number in values.items():
            object.__setattr__(self, name, number)  # a float32 would round the claim
        check_bool("has_reaction", self.has_reaction)

    @classmethod
    def for_pair(
        cls,
        grid: Grid,
        potential1: ArrayLike,
        potential2: ArrayLike,
        time: float,
        initial_log_density: ArrayLike | None = None,
        *,
        has_reaction: bool = True,
    ) -> Certificate:
        """Returns the certificate of one known pair of potentials (arguments as
        `pair_constants`).
        """
        constants = pair_constants(grid, potential1, potential2, initial_log_density)
        return cls(
            time=time,
            oscillation_distance=constants.oscillation_distance,
            initial_oscillation1=constants.initial_oscillation1,
            initial_oscillation2=constants.initial_oscillation2,
            sup_distance=constants.sup_distance,
            target_log_ratio=constants.target_log_ratio,
            has_reaction=has_reaction,
        )

    @property
    def decay(self) -> float:
        """What is left of the initial oscillations: e^{-t}, or 1 without a reaction."""
        return math.exp(-self.time) if self.has_reaction else 1.0

    @property
    def width(self) -> float:
        """Bound on the width of log rho_t / rho'_t, rounding included."""
        return self.oscillation_distance + self._start_term

    def pure_dp(self) -> CertifiedValue:
        """Returns epsilon with |log rho_t / rho'_t| <= epsilon everywhere."""
        options = [CertifiedValue(self.width, "Theorem 3, oscillation sensitivity (A1')")]
        if self.sup_distance is not None:
            bound = 2.0 * self.sup_distance + self._start_term
            options.append(CertifiedValue(bound, "Theorem 3, sup-norm sensitivity (A1)"))
        if self.target_log_ratio is not None:
            bound = self.target_log_ratio + self._start_term
            options.append(CertifiedValue(bound, "Theorem 1, exact target ratio"))
        return _smallest(options)

    def renyi_dp(self, alpha: float) -> CertifiedValue:
        """Returns a bound on D_alpha in both directions, for order alpha > 1; at most alpha width^2
        / 8.
        """
        alpha = check_order(alpha)
        pure = self.pure_dp()
        return _smallest(
            [
                CertifiedValue(renyi_of_range(alpha, self.width), "bounded range, exact"),
                CertifiedValue(
                    renyi_pure_dp(alpha, pure.value), f"randomised response after {pure.source}"
                ),
            ]
        )

    def trade_off(self) -> TradeOffCurve:
        """Returns the most power that the certificate allows any test of the two laws, in both
        orders of them.

        By bounded range the odds of an event differ by a factor of at most e^width: power a / (a +
        (1 - a) e^-width) at level a. Where pure DP is known with less, the smaller of both.

        Raises:
          ValueError: a width above 600.
        """
        curve = BoundedRangeCurve(self.width)
        pure = self.pure_dp().value
        return curve if pure >= self.width else MinimumCurve([curve, ApproximateDpCurve(pure)])

    def zcdp(self) -> CertifiedValue:
        """Returns rho such that D_alpha <= alpha rho for all alpha > 1."""
        pure = self.pure_dp()
        return _smallest(
            [
                CertifiedValue(self.width**2 / 8.0, "bounded range"),
                CertifiedValue(pure.value**2 / 2.0, f"pure DP after {pure.source}"),
            ]
        )

    def kullback_leibler(self) -> CertifiedValue:
        """Returns a bound on KL in both directions."""
        pure = self.pure_dp()
        return _smallest(
            [
                CertifiedValue(kullback_leibler_of_range(self.width), "bounded range"),
                CertifiedValue(
                    pure.value * math.tanh(pure.value / 2.0),
                    f"randomised response after {pure.source}",
                ),
            ]
        )

    def approximate_dp(self, epsilon: float) -> CertifiedValue:
        """Returns delta such that (epsilon, delta)-DP holds, for epsilon >= 0.

        Theorem 4's delta is about the continuous flow and needs gradients:
        `kl_stability.approximate_dp_delta`.
        """
        epsilon = check_epsilon(epsilon)
        pure = self.pure_dp()
        return _smallest(
            [
                CertifiedValue(delta_of_range(epsilon, self.width), "bounded range, exact"),
                CertifiedValue(
                    delta_of_pure_dp(pure.value, epsilon),
                    f"randomised response after {pure.source}",
                ),
            ]
        )

    def utility(self, loss_range: float, target_excess: float) -> CertifiedValue:
        """Returns a bound on E_rho_t[f] - min f under the first potential's flow.

        Args:
          loss_range: max f - min f.
          target_excess: E_pi[f] - min f or a bound on it, such as Proposition 1's.
        """
        width = self.decay * self.initial_oscillation1
        return CertifiedValue(
            excess_bound(target_excess, loss_range, width), "target excess + range tanh(width / 4)"
        )

    @property
    def rounding(self) -> float:
        """What every bound on the log ratio holds for rounding, at any time."""
        start = self.initial_oscillation1 + self.initial_oscillation2
        return _ROUNDING * (1.0 + start + self.oscillation_distance)

    @property
    def _start_term(self) -> float:
        return self.decay * (self.initial_oscillation1 + self.initial_oscillation2) + self.rounding


def _smallest(options: list[CertifiedValue]) -> CertifiedValue:
    return min(options, key=lambda option: option.value)
