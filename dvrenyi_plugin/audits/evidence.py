"""Evidence against the claims of an audit while its outputs arrive: one e-process per direction of
each claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from dvrenyi_plugin.audits.planner import (
    ORDER_OF_CURVE_GRID,
    RefutationPlan,
    plan_curve_refutation,
    plan_refutation,
)
from dvrenyi_plugin.audits.settings import SequentialAuditConfig
from dvrenyi_plugin.bounds.eprocess import EProcess
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.bounds.trade_off_eprocess import TradeOffEProcess
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.reports.claims import DirectionReport
from dvrenyi_plugin.reports.sequential_outcome import EvidencePath
from dvrenyi_plugin.testers.base import BoundResult
from dvrenyi_plugin.testers.both_directions import shares_of_directions

# A truth that takes more to refute a curve keeps it up to rounding.
_MOST_PAIRS = 1e7


@runtime_checkable
class SequentialTester(Protocol):
    """A property tester that can certify samples while they arrive."""

    @property
    def privacy_property(self) -> Any:
        """The property under test."""

    @property
    def claimed_limit(self) -> float:
        """The most that the property allows, on the scale of the bound."""

    def start(self, failure_probability: float) -> EProcess:
        """Returns a process whose lower bound holds at all times at once."""

    def result_of(self, process: Any, failure_probability: float) -> BoundResult:
        """Returns what a process of `start` has certified by now."""


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
        self._tester = tester
        self.failure_probability = failure_probability
        self.process = tester.start(failure_probability)
        self.path: list[float] = []

    @property
    def refuted(self) -> bool:
        return self.process.lower_bound > self._tester.claimed_limit

    @property
    def log_e_value(self) -> float:
        return self.process.log_e_value(self._tester.claimed_limit)

    def plan(self, mu: float) -> RefutationPlan:
        """Returns the plan for refuting the claim if the truth is mu-Gaussian DP."""
        process, claim = self.process, self._tester.claimed_limit
        if isinstance(process, TradeOffEProcess):
            pair, share = gaussian_pair(mu, ORDER_OF_CURVE_GRID), self.failure_probability
            plan = plan_curve_refutation(pair, process.family, claim, share)
            if plan.growth_pairs > _MOST_PAIRS:
                raise ValueError(
                    f"futility_mu must break the claim: {process.family.parameter} {claim:g} of"
                    f" {process.family.name}, got mu {mu:g}"
                )
            return plan
        if not isinstance(process, GrowthOptimalEProcess):
            raise ValueError(
                f"futility_mu needs a tester of this package, got {type(self._tester).__name__}"
            )
        alpha = process.alpha
        divergence = renyi_gaussian_dp(alpha, mu)
        if divergence <= claim:
            raise ValueError(
                f"futility_mu must break the claim: epsilon {claim:g} at order {alpha:g},"
                f" got mu {mu:g} with epsilon {divergence:g}"
            )
        return plan_refutation(gaussian_pair(mu, alpha), alpha, claim, self.failure_probability)

    @property
    def quantity(self) -> str:
        """What the bound is of, in a word or two."""
        bound = self.result()
        return str(bound.details.get("parameter", f"order {bound.alpha}"))

    def result(self) -> BoundResult:
        return self._tester.result_of(self.process, self.failure_probability)


class Evidence:
    """The e-processes of all claims in both directions.

    Args:
      testers: of the claims.
      shares: of the failure probability, one for each claim in both directions.
      config: when to give up.

    Attributes:
      refuted_after: pairs with which a claim was refuted first; None so far.
    """

    def __init__(
        self,
        testers: Sequence[SequentialTester],
        shares: Sequence[float],
        config: SequentialAuditConfig,
    ) -> None:
        self._claims = [
            [
                _Direction(tester, of_direction)
                for of_direction in shares_of_directions(tester, share)
            ]
            for tester, share in zip(testers, shares, strict=True)
        ]
        self._config = config
        mu = config.futility_mu
        # The divergence between Gaussian laws of one variance is the same in both directions.
        self._plans = [] if mu is None else [claim[0].plan(mu) for claim in self._claims]
        self.refuted_after: int | None = None

    def update(self, samples: tuple[NDArray[Any], NDArray[Any]]) -> None:
        """Bets on the next outputs, pair by pair, and notes the evidence after the last of them."""
        first, second = samples
        directions = [direction for claim in self._claims for direction in claim]
        for index in range(len(first)):
            pair = first[[index]], second[[index]]
            for claim in self._claims:
                for direction, ordered in zip(claim, (pair, pair[::-1]), strict=False):
                    direction.process.update(*ordered)
            if self.refuted_after is None and any(one.refuted for one in directions):
                self.refuted_after = directions[0].process.num_pairs
        for direction in directions:
            direction.path.append(direction.log_e_value)

    def nearest(self) -> tuple[float, float]:
        """Returns the log e-value after the last batch that is nearest to what it has to reach, and
        that.
        """
        found = [
            (direction.path[-1], -math.log(direction.failure_probability))
            for claim in self._claims
            for direction in claim
        ]
        return min(found, key=lambda pair: pair[1] - pair[0])

    def pairs_to_refute(self) -> float:
        """Returns about how many more pairs refute a claim if the evidence grows as it has so far;
        infinity where it does not grow.
        """
        log_e_value, threshold = self.nearest()
        bets = min(self._claims[0][0].process.num_certifying)
        if log_e_value <= 0.0:
            return math.inf
        return (threshold - log_e_value) / log_e_value * bets

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
        """Returns the evidence after each batch, with the directions named, and with several claims
        what each is about.
        """
        return tuple(
            EvidencePath(
                f"{name}, {direction.quantity}" if len(self._claims) > 1 else name,
                tuple(direction.path),
                -math.log(direction.failure_probability),
            )
            for claim in self._claims
            for name, direction in zip(names, claim, strict=False)
        )

    def results(self, names: tuple[str, str]) -> list[tuple[DirectionReport, ...]]:
        """Returns the bounds of every claim in the directions in which it is tested."""
        return [
            tuple(
                DirectionReport(name, direction.result())
                for name, direction in zip(names, claim, strict=False)
            )
            for claim in self._claims
        ]
