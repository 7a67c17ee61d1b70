"""The plan of an audit of mu-Gaussian DP as a table: models per dataset, for the whole trade-off
curve and by Rényi order.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dvrenyi_plugin.audits.planner import (
    ORDER_OF_CURVE_GRID,
    RefutationPlan,
    plan_curve_refutation,
    plan_refutation,
)
from dvrenyi_plugin.audits.settings import AuditPlanConfig
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.privacy.trade_off_families import GaussianFamily
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.render import Format, render
from dvrenyi_plugin.reports.text import Table


@dataclasses.dataclass(frozen=True)
class AuditPlan:
    """What an audit needs.

    Attributes:
      config: what was asked.
      refute: a plan of the curve, unless orders alone are tested, and one per order, for refuting
        the claim if the truth is `true_mu`.
      certify: the same, for certifying `fraction` of the claim if it is exactly true.
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

    def models_for_power(self, plan: RefutationPlan, power: float) -> int | None:
        """Returns the models per dataset with which the audit succeeds with probability `power`.

        They are whole batches of a sequential audit, which looks at the end of each, if not sooner.
        """
        pairs = plan.pairs_for_power(power)
        if pairs is None or not self.config.sequential:
            return pairs
        return -(-pairs // self.config.batch_models) * self.config.batch_models

    def _render(self, target: Format) -> str:
        config = self.config
        return render(
            "plan.jinja",
            target,
            title=f"Plan: claim mu = {config.mu:g}, failure probability"
            f" {config.failure_probability:g}: {_describe_shares(config)}",
            audit=_describe_audit(config),
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
            f"{power:g}": self.models_for_power(plan, power) for power in self.config.powers
        }
        values["probability_by_models"] = {
            str(count): plan.probability_to_refute(count) for count in self.config.num_models
        }
        return values

    def _table(self, plans: tuple[RefutationPlan, ...], verb: str) -> Table:
        config = self.config
        header = (
            "bound on",
            "to exceed",
            "true value",
            "limit",
            *(f"{power:.0%} succeed" for power in config.powers),
            *(f"{verb} with {count} models" for count in config.num_models),
        )
        rows = [
            (
                "mu" if plan.alpha is None else f"D_{plan.alpha:g}",
                f"{plan.epsilon:.4g}",
                f"{plan.true_value:.4g}",
                _count(plan.growth_pairs),
                *(_count(self.models_for_power(plan, power)) for power in config.powers),
                *(f"{plan.probability_to_refute(count):.0%}" for count in config.num_models),
            )
            for plan in plans
        ]
        return Table(header, rows)


def plan_audit(config: AuditPlanConfig) -> AuditPlan:
    """Returns the plan of an audit of mu-Gaussian DP by one number per model."""
    # None: the number of models decides it.
    warm_up = STREAM_WARM_UP if config.sequential else None
    refute: list[RefutationPlan] = []
    certify: list[RefutationPlan] = []
    if config.curve_share > 0.0:
        for plans, mu, null in (
            (refute, config.true_mu, config.mu),
            (certify, config.mu, config.fraction * config.mu),
        ):
            plans.append(_plan_of_curve(config, mu, null))
    for alpha in config.alphas:
        epsilon = renyi_gaussian_dp(alpha, config.mu)
        for plans, mu, null in (
            (refute, config.true_mu, epsilon),
            (certify, config.mu, config.fraction * epsilon),
        ):
            pair = gaussian_pair(mu, alpha)
            plans.append(plan_refutation(pair, alpha, null, config.order_share, warm_up=warm_up))
    return AuditPlan(config, tuple(refute), tuple(certify))


def _plan_of_curve(config: AuditPlanConfig, mu: float, null: float) -> RefutationPlan:
    """Returns the plan for refuting Gaussian DP of `null` if the truth is that of `mu`."""
    plan = plan_curve_refutation(
        gaussian_pair(mu, ORDER_OF_CURVE_GRID),
        GaussianFamily(),
        null,
        config.curve_share,
        warm_up=TRADE_OFF_WARM_UP if config.sequential else None,
    )
    return dataclasses.replace(plan, true_value=mu)


def _describe_shares(config: AuditPlanConfig) -> str:
    bounds = f"{config.order_share:g} for each of {config.num_statements} bounds at an order"
    if config.curve_share == 0.0:
        return bounds
    return f"{config.curve_share:g} for the trade-off curve, {bounds}"


def _describe_audit(config: AuditPlanConfig) -> str:
    if not config.sequential:
        return (
            f"an audit of a fixed number of models (`--tester={config.tester}`, no `--sequential`)"
        )
    return (
        f"an audit in batches of {config.batch_models} models per dataset (`--sequential"
        f" --tester={config.tester} --batch_models={config.batch_models}`), whose first models per"
        f" dataset, {TRADE_OFF_WARM_UP} for the curve and {STREAM_WARM_UP} at an order, are not bet"
        " on"
    )


def _count(pairs: float | None) -> str:
    if pairs is None or not math.isfinite(pairs):
        return "never"
    return f"{math.ceil(pairs):,}"
