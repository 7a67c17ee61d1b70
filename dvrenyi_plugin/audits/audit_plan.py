"""The plan of an audit of mu-Gaussian DP as a table: models a world, by Rényi order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dvrenyi_plugin._validation import (
    check_failure_probability,
    check_int,
    check_order,
    check_real,
)
from dvrenyi_plugin.audits.planner import RefutationPlan, plan_refutation
from dvrenyi_plugin.audits.report_text import table
from dvrenyi_plugin.bounds.limit import gaussian_pair
from dvrenyi_plugin.divergences import renyi_gaussian_dp


@dataclasses.dataclass(frozen=True)
class AuditPlanConfig:
    """What is claimed, what is assumed to be true, and what the audit should achieve.

    Attributes:
      mu: claimed Gaussian DP, > 0.
      true_mu: mu of the assumed truth, > 0; above `mu` the claim is false.
      alphas: Rényi orders to compare, each > 1.
      failure_probability: of the whole audit, in (0, 1).
      num_statements: bounds that share it evenly, >= 1; 2 for an audit of both directions.
      fraction: part of a kept claim's epsilon to certify, in (0, 1).
      powers: wanted probabilities of success, each in (0, 1).
      num_models: models a world at which the probability to refute is shown, each >= 1.
    """

    mu: float
    true_mu: float
    alphas: tuple[float, ...] = (1.25, 2.0, 4.0)
    failure_probability: float = 0.05
    num_statements: int = 2
    fraction: float = 0.5
    powers: tuple[float, ...] = (0.5, 0.9)
    num_models: tuple[int, ...] = (100, 250, 500, 1000)

    def __post_init__(self) -> None:
        check_real("mu", self.mu, above=0.0, at_most=1e100)
        check_real("true_mu", self.true_mu, above=0.0, at_most=1e100)
        check_failure_probability(self.failure_probability)
        check_int("num_statements", self.num_statements, at_least=1)
        check_real("fraction", self.fraction, above=0.0, below=1.0)
        for name, values in (("alphas", self.alphas), ("powers", self.powers)):
            if not values:
                raise ValueError(f"{name} must hold at least one number, got none")
        for alpha in self.alphas:
            check_order(alpha, "alphas")
        for power in self.powers:
            check_real("powers", power, above=0.0, below=1.0)
        for count in self.num_models:
            check_int("num_models", count, at_least=1)


@dataclasses.dataclass(frozen=True)
class AuditPlan:
    """What an audit needs.

    Attributes:
      config: what was asked.
      refute: one plan an order, for refuting the claim if the truth is `true_mu`.
      certify: one plan an order, for certifying `fraction` of the claim if it is exactly true.
    """

    config: AuditPlanConfig
    refute: tuple[RefutationPlan, ...]
    certify: tuple[RefutationPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain values that JSON can hold; None for "no number is enough"."""
        return {
            "config": dataclasses.asdict(self.config),
            "refute": [self._plan_values(plan) for plan in self.refute],
            "certify": [self._plan_values(plan) for plan in self.certify],
        }

    def to_markdown(self) -> str:
        """Returns both tables with what they assume."""
        config = self.config
        share = config.failure_probability / config.num_statements
        return "\n".join(
            [
                f"# Plan: claim mu = {config.mu:g}, failure probability {config.failure_probability:g}"
                f" over {config.num_statements} bounds ({share:g} each)",
                "",
                f"## Models a world to refute the claim, if the true mu is {config.true_mu:g}",
                "",
                self._table(self.refute),
                "",
                f"## Models a world to certify {config.fraction:g} of the claim, if it is exactly true",
                "",
                self._table(self.certify),
                "",
                "These are predictions for Gaussian observations, not statements about a mechanism. `limit`: the mean log"
                " e-value reaches the threshold if the log ratio is known; no method does better. The other columns allow for"
                " learning it from the same models.",
                "",
            ]
        )

    def _plan_values(self, plan: RefutationPlan) -> dict[str, Any]:
        values = dataclasses.asdict(plan)
        growth = plan.growth_pairs
        values["growth_pairs"] = growth if math.isfinite(growth) else None
        values["models_for_power"] = {
            f"{power:g}": plan.pairs_for_power(power) for power in self.config.powers
        }
        values["probability_by_models"] = {
            str(count): plan.probability_to_refute(count) for count in self.config.num_models
        }
        return values

    def _table(self, plans: tuple[RefutationPlan, ...]) -> str:
        config = self.config
        header = (
            "alpha",
            "epsilon to exceed",
            "true D",
            "limit",
            *(f"{power:.0%} succeed" for power in config.powers),
            *(f"with {count}" for count in config.num_models),
        )
        rows = [
            (
                f"{plan.alpha:g}",
                f"{plan.epsilon:.4g}",
                f"{plan.divergence:.4g}",
                _count(plan.growth_pairs),
                *(_count(plan.pairs_for_power(power)) for power in config.powers),
                *(f"{plan.probability_to_refute(count):.0%}" for count in config.num_models),
            )
            for plan in plans
        ]
        return table(header, rows)


def plan_audit(config: AuditPlanConfig) -> AuditPlan:
    """Returns the plan of an audit of mu-Gaussian DP by one number a model."""
    share = config.failure_probability / config.num_statements
    refute, certify = [], []
    for alpha in config.alphas:
        epsilon = renyi_gaussian_dp(alpha, config.mu)
        refute.append(plan_refutation(gaussian_pair(config.true_mu, alpha), alpha, epsilon, share))
        certify.append(
            plan_refutation(
                gaussian_pair(config.mu, alpha), alpha, config.fraction * epsilon, share
            )
        )
    return AuditPlan(config, tuple(refute), tuple(certify))


def _count(pairs: float | None) -> str:
    if pairs is None or not math.isfinite(pairs):
        return "never"
    return f"{math.ceil(pairs):,}"
