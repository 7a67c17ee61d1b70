"""The plan of an audit of mu-Gaussian DP as a table: models per dataset, by Rényi order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dvrenyi_plugin._internal.validation import (
    check_bool,
    check_failure_probability,
    check_int,
    check_many,
    check_orders,
    check_real,
)
from dvrenyi_plugin.audits.planner import RefutationPlan, plan_refutation
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.render import Format, render
from dvrenyi_plugin.reports.text import Table


@dataclasses.dataclass(frozen=True)
class AuditPlanConfig:
    """What is claimed, what is assumed to be true, and what the audit should achieve.

    Attributes:
      mu: claimed Gaussian DP, > 0 and at most 1e60.
      true_mu: mu of the assumed truth, > 0 and at most 1e60; above `mu` the claim is false.
      alphas: Rényi orders to compare, each > 1.
      failure_probability: of the whole audit, in (0, 1).
      num_statements: bounds that share it evenly, >= 1; 2 for an audit of both directions.
      fraction: part of a kept claim's epsilon to certify, in (0, 1).
      powers: wanted probabilities of success, each in (0, 1).
      num_models: models per dataset at which the probability to refute is shown, each >= 1.
      sequential: whether the audit trains in batches and stops once it refutes, as with
        --sequential; if not, it trains a number of models that is fixed beforehand.
      batch_models: models per dataset between two looks of a sequential audit, >= 2.
    """

    mu: float
    true_mu: float
    alphas: tuple[float, ...] = (1.25, 2.0, 4.0)
    failure_probability: float = 0.05
    num_statements: int = 2
    fraction: float = 0.5
    powers: tuple[float, ...] = (0.5, 0.9)
    num_models: tuple[int, ...] = (100, 250, 500, 1000)
    sequential: bool = False
    batch_models: int = 20

    def __post_init__(self) -> None:
        check_real("mu", self.mu, above=0.0, at_most=1e60)
        check_real("true_mu", self.true_mu, above=0.0, at_most=1e60)
        check_failure_probability(self.failure_probability)
        check_int("num_statements", self.num_statements, at_least=1)
        check_real("fraction", self.fraction, above=0.0, below=1.0)
        alphas = check_orders(self.alphas, "alphas")
        powers = tuple(
            check_real("powers", power, above=0.0, below=1.0)
            for power in check_many("powers", self.powers, "numbers > 0 and < 1")
        )
        num_models = tuple(
            check_int("num_models", count, at_least=1)
            for count in check_many("num_models", self.num_models, "integers >= 1")
        )
        for name, values in (("alphas", alphas), ("powers", powers)):
            if not values:
                raise ValueError(f"{name} must hold at least one number, got none")
        object.__setattr__(self, "alphas", alphas)
        object.__setattr__(self, "powers", powers)
        object.__setattr__(self, "num_models", num_models)
        check_bool("sequential", self.sequential)
        check_int("batch_models", self.batch_models, at_least=2)

    @property
    def warm_up(self) -> int | None:
        """Models per dataset before the audit's first bet; None if their number decides it."""
        return STREAM_WARM_UP if self.sequential else None

    def describe_audit(self) -> str:
        """Returns in a few words for which audit the plan is."""
        if not self.sequential:
            return "an audit of a fixed number of models (`--tester=sequential`, no `--sequential`)"
        return (
            f"an audit in batches of {self.batch_models} models per dataset (`--sequential"
            f" --batch_models={self.batch_models}`), whose first {STREAM_WARM_UP} models per"
            " dataset are not bet on"
        )

    def models_for_power(self, plan: RefutationPlan, power: float) -> int | None:
        """Returns the models per dataset with which the audit succeeds with probability `power`.

        They are whole batches of a sequential audit, which looks at the end of each.
        """
        pairs = plan.pairs_for_power(power)
        if pairs is None or not self.sequential:
            return pairs
        return -(-pairs // self.batch_models) * self.batch_models


@dataclasses.dataclass(frozen=True)
class AuditPlan:
    """What an audit needs.

    Attributes:
      config: what was asked.
      refute: one plan per order, for refuting the claim if the truth is `true_mu`.
      certify: one plan per order, for certifying `fraction` of the claim if it is exactly true.
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
        """Returns both tables with what they assume, as Markdown."""
        return self._render("markdown")

    def to_html(self) -> str:
        """Returns the same as one HTML page."""
        return self._render("html")

    def _render(self, target: Format) -> str:
        config = self.config
        share = config.failure_probability / config.num_statements
        return render(
            "plan.jinja",
            target,
            title=f"Plan: claim mu = {config.mu:g}, failure probability"
            f" {config.failure_probability:g} over {config.num_statements} bounds ({share:g} each)",
            audit=config.describe_audit(),
            sections=(
                Section(
                    f"Models per dataset to refute the claim, if the true mu is {config.true_mu:g}",
                    table=self._table(self.refute, "refuted"),
                ),
                Section(
                    f"Models per dataset to certify {config.fraction:g} of the claim, if it is"
                    " exactly true",
                    table=self._table(self.certify, "certified"),
                ),
            ),
        )

    def _plan_values(self, plan: RefutationPlan) -> dict[str, Any]:
        values = dataclasses.asdict(plan)
        growth = plan.growth_pairs
        values["growth_pairs"] = growth if math.isfinite(growth) else None
        values["models_for_power"] = {
            f"{power:g}": self.config.models_for_power(plan, power) for power in self.config.powers
        }
        values["probability_by_models"] = {
            str(count): plan.probability_to_refute(count) for count in self.config.num_models
        }
        return values

    def _table(self, plans: tuple[RefutationPlan, ...], verb: str) -> Table:
        config = self.config
        header = (
            "alpha",
            "epsilon to exceed",
            "true D",
            "limit",
            *(f"{power:.0%} succeed" for power in config.powers),
            *(f"{verb} with {count} models" for count in config.num_models),
        )
        rows = [
            (
                f"{plan.alpha:g}",
                f"{plan.epsilon:.4g}",
                f"{plan.divergence:.4g}",
                _count(plan.growth_pairs),
                *(_count(config.models_for_power(plan, power)) for power in config.powers),
                *(f"{plan.probability_to_refute(count):.0%}" for count in config.num_models),
            )
            for plan in plans
        ]
        return Table(header, rows)


def plan_audit(config: AuditPlanConfig) -> AuditPlan:
    """Returns the plan of an audit of mu-Gaussian DP by one number per model."""
    share = config.failure_probability / config.num_statements
    refute: list[RefutationPlan] = []
    certify: list[RefutationPlan] = []
    for alpha in config.alphas:
        epsilon = renyi_gaussian_dp(alpha, config.mu)
        for plans, mu, null in (
            (refute, config.true_mu, epsilon),
            (certify, config.mu, config.fraction * epsilon),
        ):
            pair = gaussian_pair(mu, alpha)
            plans.append(plan_refutation(pair, alpha, null, share, warm_up=config.warm_up))
    return AuditPlan(config, tuple(refute), tuple(certify))


def _count(pairs: float | None) -> str:
    if pairs is None or not math.isfinite(pairs):
        return "never"
    return f"{math.ceil(pairs):,}"
