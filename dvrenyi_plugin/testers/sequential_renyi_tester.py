"""Tester on the growth-optimal e-process: every sample first certifies, then sharpens the next
bets."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from numpy.typing import ArrayLike, NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Order, Orders, Seed
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess, most_promising_order
from dvrenyi_plugin.critics.fitters import FITTER_NAMES
from dvrenyi_plugin.interfaces import default_order, read_claim, renyi_threshold
from dvrenyi_plugin.testers.eprocess_tester import EProcessTester


@dataclasses.dataclass(frozen=True)
class SequentialRenyiPropertyTesterConfig(CheckedSettings):
    """Configuration of `SequentialRenyiPropertyTester`.

    Attributes:
      privacy_property: what is tested: Rényi DP, pure DP, Gaussian DP or zCDP; a PrivacyProperty of
        this package or of DP-Auditorium.
      alpha: Rényi order of the bound, > 1. None means the order of a Rényi DP claim, and 2 for any
        other.
      orders: several orders to choose from, in place of `alpha`; for claims that speak of every
        order. One is chosen on the samples before the first bet, which are never bet on, so none of
        the failure probability is spent on the choice.
      log_ratio: estimator of the log density ratio: "auto" for polynomials, splines, monotone and
        step functions (one dimension) or linear and quadratic functions (more), whichever the past
        prefers; "network" for a small neural network.
      warm_up: pairs before the first bet, >= 2; None for about 2.2 sqrt(pairs).
      seed: of the order in which samples are taken, and of the network, >= 0.
    """

    privacy_property: Any
    alpha: Order | None = None
    orders: Orders = ()
    log_ratio: Annotated[str, OneOf(FITTER_NAMES)] = "auto"
    warm_up: Annotated[int, Int(at_least=2)] | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        if self.alpha is not None and self.orders:
            raise ValueError(
                f"orders must be empty when alpha is given, got {self.orders!r} and alpha"
                f" {self.alpha!r}"
            )
        for order in self.candidate_orders:
            renyi_threshold(claim, order)

    @property
    def candidate_orders(self) -> tuple[float, ...]:
        """The orders that may be tested, at least one."""
        if self.orders:
            return self.orders
        if self.alpha is not None:
            return (float(self.alpha),)
        return (default_order(read_claim(self.privacy_property)),)


class SequentialRenyiPropertyTester(EProcessTester[GrowthOptimalEProcess]):
    """Property tester; see `PropertyTester` of `dvrenyi_plugin.interfaces`.

    Bounded is D_alpha(law of samples1 || law of samples2). The point estimate is the fitted log
    ratio's Donsker-Varadhan value on the samples that it was fitted to.

    Nothing is carried from one audit to the next: the same samples give the same bound. For samples
    that are still arriving, `start` returns a process to update.

    Args:
      config: what to test and how.

    Raises:
      ValueError: the property bounds no Rényi divergence ((epsilon, delta)-DP).

    Source: `dvrenyi_plugin.bounds.growth_factor` (factor and proof), Ville's inequality.
    """

    _METHOD = "growth-optimal e-process"
    _STREAM_WARM_UP = STREAM_WARM_UP

    def __init__(self, config: SequentialRenyiPropertyTesterConfig) -> None:
        self._orders = config.candidate_orders
        claim = read_claim(config.privacy_property)
        super().__init__(config, tuple(renyi_threshold(claim, order) for order in self._orders))

    def estimate_lower_bound(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> float:
        """Returns `audit(...).lower_bound`: one-sided, 0.0 when nothing can be certified.

        Raises:
          ValueError: see `audit`; also when several orders are configured, since a bound without
            its order could not be compared with the claim.
        """
        self._check_one_order("estimate_lower_bound")
        return super().estimate_lower_bound(samples1, samples2, failure_probability)

    def reject_property(self, lower_bound: float) -> bool:
        """Returns True when `lower_bound` exceeds the most that the claim allows.

        Raises:
          ValueError: `lower_bound` is NaN or no number, or several orders are configured, each with
            its own limit.
        """
        self._check_one_order("reject_property")
        return super().reject_property(lower_bound)

    def start(self, failure_probability: float) -> GrowthOptimalEProcess:
        """Returns a process for samples that arrive in batches, which are taken as they come.

        The claim is refuted, at any time, when the process's `lower_bound` exceeds it.

        Args:
          failure_probability: one-sided, in (0, 1), over all times at once.

        Raises:
          ValueError: several orders are configured.
        """
        self._check_one_order("start")
        return super().start(failure_probability)

    def _check_one_order(self, method: str) -> None:
        if len(self._orders) > 1:
            raise ValueError(
                f"orders must hold one order for {method}, got {self._orders}; use audit"
            )

    def _new_process(self, index: int, beta: float, warm_up: int) -> GrowthOptimalEProcess:
        return GrowthOptimalEProcess(
            self._orders[index],
            beta,
            claims=(self._claimed_limits[index],),
            fit=self._fitter(),
            warm_up=warm_up,
        )

    def _alpha(self, index: int) -> float:
        return self._orders[index]

    def _details(self) -> dict[str, Any]:
        several = len(self._orders) > 1
        return {
            "orders_considered": self._orders,
            "order_chosen_on": "pairs before the first bet" if several else "given",
        }

    def _choose(self, first: NDArray[Any], second: NDArray[Any], warm_up: int) -> int:
        if len(self._orders) == 1:
            return 0
        # Blocks take an even share of the longer sample: this is no more than comes before the
        # first bet.
        pairs = min(len(first), len(second))
        share = min(warm_up, pairs) / pairs
        seen1, seen2 = int(share * len(first)), int(share * len(second))
        return most_promising_order(
            self._orders,
            self._claimed_limits,
            first[: max(seen1, 1)],
            second[: max(seen2, 1)],
            self._fitter(),
        )
