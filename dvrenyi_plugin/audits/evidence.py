"""Evidence against the claims of an audit while its outputs arrive: one e-process per direction of
each claim.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from dvrenyi_plugin.audits.planner import RefutationPlan, plan_refutation
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.interfaces import read_claim, renyi_threshold
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.reports.model import DirectionReport
from dvrenyi_plugin.reports.sequential_outcome import EvidencePath
from dvrenyi_plugin.testers.base import BoundResult, fewest_samples


@runtime_checkable
class SequentialTester(Protocol):
    """A property tester that can certify samples while they arrive."""

    @property
    def privacy_property(self) -> Any:
        """The property under test."""

    def start(self, failure_probability: float) -> GrowthOptimalEProcess:
        """Returns a process whose lower bound holds at all times at once."""


def check_sequential(tester: Any) -> SequentialTester:
    """Returns the tester.

    Raises:
      ValueError: it needs all samples at once.
    """
    if not isinstance(tester, SequentialTester):
        raise ValueError(
            "tester must be able to certify samples while they arrive"
            " (SequentialRenyiPropertyTester), got"
            f" {type(tester).__name__}"
        )
    return tester


class _Direction:
    """The e-process of one direction of one claim, and its evidence after each batch."""

    def __init__(self, tester: SequentialTester, failure_probability: float) -> None:
        self._failure_probability = failure_probability
        self.process = tester.start(failure_probability)
        self.claim = renyi_threshold(read_claim(tester.privacy_property), self.process.alpha)
        self.path: list[float] = []

    @property
    def refuted(self) -> bool:
        return self.process.lower_bound > self.claim

    @property
    def log_e_value(self) -> float:
        return self.process.log_e_value(self.claim)

    def plan(self, mu: float) -> RefutationPlan:
        """Returns the plan for refuting the claim if the truth is mu-Gaussian DP."""
        alpha = self.process.alpha
        divergence = renyi_gaussian_dp(alpha, mu)
        if divergence <= self.claim:
            raise ValueError(
                f"futility_mu must break the claim: epsilon {self.claim:g} at order {alpha:g},"
                f" got mu {mu:g} with epsilon {divergence:g}"
            )
        return plan_refutation(
            gaussian_pair(mu, alpha), alpha, self.claim, self._failure_probability
        )

    def result(self, seed: int) -> BoundResult:
        process = self.process
        seen1, seen2 = process.num_samples
        certify1, certify2 = process.num_certifying
        return BoundResult(
            lower_bound=process.lower_bound,
            point_estimate=process.point_estimate(),
            claimed_limit=self.claim,
            refuted=self.refuted,
            failure_probability=self._failure_probability,
            method="growth-optimal e-process, anytime-valid",
            alpha=process.alpha,
            num_fit=(seen1 - certify1, seen2 - certify2),
            num_certify=(certify1, certify2),
            fewest_samples=fewest_samples(
                functools.partial(process.can_reject, self.claim), process.num_pairs
            ),
            seed=seed,
            details=MappingProxyType(
                {
                    "log_ratio_family": process.log_ratio_family,
                    "log_e_value_of_claim": self.log_e_value,
                }
            ),
        )


class Evidence:
    """The e-processes of all claims in both directions.

    Args:
      testers: of the claims.
      failure_probability: of each direction of each claim.
      config: when to give up.

    Attributes:
      refuted_after: pairs with which a claim was refuted first; None so far.
    """

    def __init__(
        self,
        testers: Sequence[SequentialTester],
        failure_probability: float,
        config: SequentialAuditConfig,
    ) -> None:
        self._claims = [
            tuple(_Direction(tester, failure_probability) for _ in range(2)) for tester in testers
        ]
        self._failure_probability = failure_probability
        self._config = config
        mu = config.futility_mu
        # The divergence between Gaussian laws of one variance is the same in both directions.
        self._plans = [] if mu is None else [first.plan(mu) for first, _ in self._claims]
        self.refuted_after: int | None = None

    @property
    def log_threshold(self) -> float:
        """log(1 / failure probability), which the log e-value of a refuted claim has reached."""
        return -math.log(self._failure_probability)

    def update(self, samples: tuple[NDArray[Any], NDArray[Any]]) -> None:
        """Bets on the next outputs, pair by pair, and notes the evidence after the last of them."""
        first, second = samples
        directions = [direction for claim in self._claims for direction in claim]
        for index in range(len(first)):
            pair = first[[index]], second[[index]]
            for forwards, backwards in self._claims:
                forwards.process.update(*pair)
                backwards.process.update(*pair[::-1])
            if self.refuted_after is None and any(one.refuted for one in directions):
                self.refuted_after = directions[0].process.num_pairs
        for direction in directions:
            direction.path.append(direction.log_e_value)

    def is_futile(self, pairs_left: int) -> bool:
        """Returns whether even the violation that the auditor cares about would hardly be refuted
        any more.
        """
        return bool(self._plans) and all(
            plan.is_futile(direction.log_e_value, pairs_left, self._config.futility_probability)
            for plan, claim in zip(self._plans, self._claims, strict=True)
            for direction in claim
        )

    def paths(self, names: tuple[str, str]) -> tuple[EvidencePath, ...]:
        """Returns the evidence after each batch, the directions named; of several claims each by
        its order.
        """
        several = len(self._claims) > 1
        return tuple(
            EvidencePath(
                f"{name}, order {direction.process.alpha:g}" if several else name,
                tuple(direction.path),
            )
            for claim in self._claims
            for name, direction in zip(names, claim, strict=True)
        )

    def results(
        self, names: tuple[str, str], seed: int
    ) -> list[tuple[DirectionReport, DirectionReport]]:
        """Returns the bounds of every claim in both directions."""
        return [
            (
                DirectionReport(names[0], forwards.result(seed)),
                DirectionReport(names[1], backwards.result(seed)),
            )
            for forwards, backwards in self._claims
        ]
