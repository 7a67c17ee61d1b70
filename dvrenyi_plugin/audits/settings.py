"""The plain settings of plans and of sequential audits. They import no slow library, so that a
command's flags can be made of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    FailureProbability,
    Fraction,
    Int,
    OneOf,
    Orders,
    Real,
    Switch,
)

# Of the failure probability, where a whole trade-off curve is tested and D_alpha is bounded beside
# it: the curve decides with fewer models.
CURVE_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class SequentialAuditConfig(CheckedSettings):
    """How often a sequential audit looks, and when it gives up.

    Attributes:
      batch_models: models per dataset that are trained between two looks at most, >= 2; fewer where
        the evidence so far lets expect that a claim falls sooner. A multiple of the models per task
        wastes no worker's time.
      futility_mu: smallest violation the auditor cares about, as the mu of Gaussian DP, above the
        claim: the audit stops when even losses with this mu would hardly refute the claim with the
        models that are left. Unset: it never gives up, which keeps the bound on a kept claim as
        tight as the models allow.
      futility_probability: what "hardly" means, in (0, 1).
    """

    batch_models: Annotated[int, Int(at_least=2)] = 20
    futility_mu: Annotated[float, Real(above=0.0, at_most=1e100)] | None = None
    futility_probability: Fraction = 0.05


@dataclasses.dataclass(frozen=True)
class AuditPlanConfig(CheckedSettings):
    """What is claimed, what is assumed to be true, and what the audit should achieve.

    Attributes:
      mu: claimed Gaussian DP, > 0 and at most 1e60.
      true_mu: mu of the assumed truth, > 0 and at most 1e60; above `mu` the claim is false.
      alphas: Rényi orders to compare, each > 1.
      failure_probability: of the whole audit, in (0, 1).
      num_statements: bounds at a Rényi order that share it evenly, >= 1; 2 for an audit of both
        directions.
      fraction: part of a kept claim's epsilon to certify, in (0, 1).
      powers: wanted probabilities of success, each in (0, 1).
      num_models: models per dataset at which the probability to refute is shown, each >= 1.
      tester: of the audit: "auto" tests the whole trade-off curve with nine tenths of the failure
        probability and bounds D_alpha with the rest; "sequential" bounds D_alpha alone.
      sequential: whether the audit trains in batches and stops once it refutes, as with
        --sequential; if not, it trains a number of models that is fixed beforehand.
      batch_models: models per dataset between two looks of a sequential audit, >= 2.
    """

    mu: Annotated[float, Real(above=0.0, at_most=1e60)]
    true_mu: Annotated[float, Real(above=0.0, at_most=1e60)]
    alphas: Orders = (1.25, 2.0, 4.0)
    failure_probability: FailureProbability = 0.05
    num_statements: Count = 2
    fraction: Fraction = 0.5
    powers: tuple[Fraction, ...] = (0.5, 0.9)
    num_models: tuple[Count, ...] = (100, 250, 500, 1000)
    tester: Annotated[str, OneOf(("auto", "sequential"))] = "auto"
    sequential: Switch = False
    batch_models: Annotated[int, Int(at_least=2)] = 20

    @property
    def curve_share(self) -> float:
        """The failure probability of the curve; 0 where it is not tested."""
        return CURVE_SHARE * self.failure_probability if self.tester == "auto" else 0.0

    @property
    def order_share(self) -> float:
        """The failure probability of each bound at a Rényi order."""
        return (self.failure_probability - self.curve_share) / self.num_statements

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alphas", "powers"):
            if not getattr(self, name):
                raise ValueError(f"{name} must hold at least one number, got none")
