"""The plain settings of an audit of a sampler. They import no slow library, so that a command's
flags can be made of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from dvrenyi_plugin._internal.limits import (
    Allowed,
    CheckedSettings,
    Count,
    FailureProbability,
    Int,
    OneOf,
    Orders,
    Seed,
)
from dvrenyi_plugin._internal.ranges import check_positive, check_size
from dvrenyi_plugin._internal.validation import check_choice
from dvrenyi_plugin.mechanisms.exponential.defects import SAMPLER_DEFECTS

LOSS_NAMES = ("circular_mean", "mean", "median", "logistic")
MECHANISM_NAMES = (
    *("shk", "exponential", "langevin"),
    *(f"shk_{defect}" for defect in SAMPLER_DEFECTS),
)
EXTREME, RANDOM = "extreme", "random"


@dataclasses.dataclass(frozen=True)
class ShkExperimentConfig(CheckedSettings):
    """Which sampler is audited, and on which neighbouring datasets.

    Attributes:
      mechanism: "shk", "exponential", "langevin", or a broken sampler: "shk_wrong_temperature",
        "shk_data_dependent_start", "shk_understated_sensitivity".
      loss: "circular_mean" (angles), "mean" or "median" (numbers in [0, 1]), "logistic" (two
        features and a label).
      pair: "extreme" (one record moved from end to end, the others leave the loss flat or
        balanced), "random" (records drawn at random, one of them replaced), or a path ending in
        .npz with arrays dataset1 and dataset2.
      num_records: public number of records, >= 3, unless the pair is read from a file: then its
        larger dataset's.
      inverse_temperature: beta > 0.
      run_time: flow time t >= 0; the exponential mechanism has none.
      num_steps: of the splitting, >= 1; unset: ten per unit of time.
      cells: cells of every axis; unset: the dimension decides.
      alphas: Rényi orders at which the claim is tested, each > 1.
      seed: root of every random stream, >= 0.
    """

    mechanism: Annotated[str, OneOf(MECHANISM_NAMES)] = "shk"
    loss: Annotated[str, OneOf(LOSS_NAMES)] = "circular_mean"
    pair: str = EXTREME
    num_records: Annotated[int, Int(at_least=3)] = 20
    inverse_temperature: Annotated[float, Allowed(check_positive)] = 5.0
    run_time: Annotated[float, Allowed(check_size)] = 6.0
    num_steps: Count | None = None
    cells: Annotated[int, Int(at_least=3)] | None = None
    alphas: Orders = (2.0,)
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.pair, str) and self.pair.endswith(".npz")):
            check_choice("pair", self.pair, (EXTREME, RANDOM, "a path ending in .npz"))


@dataclasses.dataclass(frozen=True)
class ShkAuditConfig(CheckedSettings):
    """How much is drawn, and how sure the statement is to be.

    Attributes:
      num_samples: releases per dataset, >= 10.
      failure_probability: of the whole audit, all orders and both directions together, in (0, 1).
      alphas: orders at which Rényi DP is tested, the claim at each read off the mechanism's
        certificate.
      seed: reported beside the result.
    """

    num_samples: Annotated[int, Int(at_least=10)] = 20_000
    failure_probability: FailureProbability = 0.05
    alphas: Orders = (2.0,)
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alphas or len(set(self.alphas)) != len(self.alphas):
            raise ValueError(f"alphas must be different orders, at least one, got {self.alphas!r}")
