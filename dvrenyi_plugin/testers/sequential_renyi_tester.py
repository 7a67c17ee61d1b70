"""Tester on the growth-optimal e-process: every sample first certifies, then sharpens the next bets."""

from __future__ import annotations

import dataclasses
import functools
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Order, Orders, Seed
from dvrenyi_plugin._internal.streams import streams_of
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP, sample_size_warm_up
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess, most_promising_order
from dvrenyi_plugin.critics.named_fitters import FITTER_NAMES, named_fitter
from dvrenyi_plugin.interfaces import default_order, read_claim, renyi_threshold
from dvrenyi_plugin.testers.bound_result import BoundResult
from dvrenyi_plugin.testers.bound_tester import BoundTester, fewest_samples


@dataclasses.dataclass(frozen=True)
class SequentialRenyiPropertyTesterConfig(CheckedSettings):
    """Configuration of `SequentialRenyiPropertyTester`.

    Attributes:
      privacy_property: what is tested: Rényi DP, pure DP, Gaussian DP or zCDP; a PrivacyProperty of this
        package or of DP-Auditorium.
      alpha: Rényi order of the bound, > 1. None means the order of a Rényi DP claim, and 2 for any other.
      orders: several orders to choose from, in place of `alpha`; for claims that speak of every order. One
        is chosen on the samples before the first bet, which are never bet on, so none of the failure
        probability is spent on the choice.
      critic: estimator of the log density ratio: "auto" for polynomials, splines, monotone and step functions (one
        dimension) or linear and quadratic functions (more), whichever the past prefers; "network" for a small
        neural network.
      warm_up: pairs before the first bet, >= 2; None for about 2.2 sqrt(pairs).
      seed: of the order in which samples are taken, and of the network, >= 0.
    """

    privacy_property: Any
    alpha: Order | None = None
    orders: Orders = ()
    critic: Annotated[str, OneOf(FITTER_NAMES)] = "auto"
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


class SequentialRenyiPropertyTester(BoundTester):
    """Property tester; see `PropertyTester` of `dvrenyi_plugin.interfaces`.

    Nothing is carried from one audit to the next: the same samples give the same bound. For samples that are still
    arriving, `start` returns a process to update.

    Args:
      config: what to test and how.

    Raises:
      ValueError: the property bounds no Rényi divergence ((epsilon, delta)-DP).
    """

    def __init__(self, config: SequentialRenyiPropertyTesterConfig) -> None:
        self._config = config
        claim = read_claim(config.privacy_property)
        self._orders = config.candidate_orders
        self._thresholds = tuple(renyi_threshold(claim, order) for order in self._orders)
        super().__init__(config.privacy_property, self._thresholds[0])
        self._order_stream, self._critic_stream = streams_of("tester", config.seed, 2)

    def estimate_lower_bound(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> float:
        """Returns `audit(...).lower_bound`: one-sided, 0.0 when nothing can be certified, never NaN.

        Raises:
          ValueError: see `audit`; also when several orders are configured, since a bound without its order
            could not be compared with the claim.
        """
        self._check_one_order("estimate_lower_bound")
        return super().estimate_lower_bound(samples1, samples2, failure_probability)

    def reject_property(self, lower_bound: float) -> bool:
        """Returns True when `lower_bound` exceeds the most that the claim allows.

        Raises:
          ValueError: `lower_bound` is NaN or no number, or several orders are configured, each with its own limit.
        """
        self._check_one_order("reject_property")
        return super().reject_property(lower_bound)

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on D_alpha(law of samples1 || law of samples2), with what decided it.

        The bound exceeds the divergence with probability at most `failure_probability`, for any mechanism and
        any sample size. The samples must be independent draws; they are taken in a random order of the
        configured seed. The point estimate is the fitted log ratio's Donsker-Varadhan value on the samples
        that it was fitted to.

        Args:
          samples1: independent outputs on the first dataset, shape (n,) or (n, d).
          samples2: independent outputs on the second dataset, shape (m,) or (m, d); m may differ from n.
          failure_probability: one-sided, in (0, 1), for this one statement.

        Raises:
          ValueError: malformed samples, fewer than 2 a side, or a failure probability outside (0, 1).

        Source: `dvrenyi_plugin.bounds.growth_factor` (factor and proof), Ville's inequality.
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        rng = np.random.default_rng(self._order_stream)
        first, second = rng.permutation(first), rng.permutation(second)
        pairs = min(len(first), len(second))
        warm_up = self._config.warm_up or sample_size_warm_up(pairs)
        index = self._choose_order(first, second, warm_up)
        process = self._new_process(index, beta, warm_up)
        process.update(first, second)
        bound = process.lower_bound
        certify1, certify2 = process.num_certifying
        return BoundResult(
            lower_bound=bound,
            point_estimate=process.point_estimate(),
            threshold=self._thresholds[index],
            refuted=bound > self._thresholds[index],
            failure_probability=beta,
            method="growth-optimal e-process",
            alpha=self._orders[index],
            num_fit=(len(first) - certify1, len(second) - certify2),
            num_certify=(certify1, certify2),
            seed=self._config.seed,
            fewest_samples=fewest_samples(functools.partial(self._can_refute, beta), pairs),
            details=MappingProxyType(
                {
                    "orders_considered": self._orders,
                    "order_chosen_on": "pairs before the first bet"
                    if len(self._orders) > 1
                    else "given",
                    "warm_up_pairs": warm_up,
                    "log_ratio_family": process.log_ratio_family,
                    "log_e_value_of_claim": process.log_e_value(self._thresholds[index]),
                }
            ),
        )

    def start(self, failure_probability: float) -> GrowthOptimalEProcess:
        """Returns a process for samples that arrive in batches; stop whenever its lower bound says enough.

        The claim is refuted, at any time, when `lower_bound` exceeds it. Samples are taken as they come.

        Args:
          failure_probability: one-sided, in (0, 1), over all times at once.
        """
        self._check_one_order("start")
        return self._new_process(
            0,
            check_failure_probability(failure_probability),
            self._config.warm_up or STREAM_WARM_UP,
        )

    def _check_one_order(self, method: str) -> None:
        if len(self._orders) > 1:
            raise ValueError(
                f"orders must hold one order for {method}, got {self._orders}; use audit"
            )

    def _new_process(self, index: int, beta: float, warm_up: int) -> GrowthOptimalEProcess:
        return GrowthOptimalEProcess(
            self._orders[index],
            beta,
            claims=(self._thresholds[index],),
            fit=named_fitter(self._config.critic, self._critic_stream),
            warm_up=warm_up,
        )

    def _can_refute(self, beta: float, pairs: int) -> bool:
        warm_up = self._config.warm_up or sample_size_warm_up(pairs)
        return any(
            self._new_process(index, beta, warm_up).can_reject(threshold, pairs)
            for index, threshold in enumerate(self._thresholds)
        )

    def _choose_order(self, first: Any, second: Any, warm_up: int) -> int:
        if len(self._orders) == 1:
            return 0
        # Blocks take an even share of the longer sample, so this is no more than comes before the first bet.
        pairs = min(len(first), len(second))
        share = min(warm_up, pairs) / pairs
        seen1, seen2 = int(share * len(first)), int(share * len(second))
        return most_promising_order(
            self._orders,
            self._thresholds,
            first[: max(seen1, 1)],
            second[: max(seen2, 1)],
            named_fitter(self._config.critic, self._critic_stream),
        )
