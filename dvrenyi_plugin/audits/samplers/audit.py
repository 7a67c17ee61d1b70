"""The audit of a sampler on a grid: many releases on each of two datasets, beside the exact divergence.

The law of a release is known cell by cell, so the report holds four kinds of number and keeps them apart: what is
claimed (an upper bound), the exact divergence of the program as run, a point estimate, a certified lower bound.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, FailureProbability, Int, Orders, Seed
from dvrenyi_plugin.audits.samplers.sections import (
    Utility,
    certificate_section,
    utility_section,
)
from dvrenyi_plugin.interfaces import (
    NeighboringDatasets,
    PrivacyProperty,
    RenyiDp,
    as_privacy_property,
)
from dvrenyi_plugin.mechanisms.exponential.exact import (
    ExponentialMechanism,
    ExponentialMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.grid import GridMechanism
from dvrenyi_plugin.reports.model import (
    AuditReport,
    ClaimReport,
    DirectionReport,
    TestedLevel,
)
from dvrenyi_plugin.testers.both_directions import in_both_directions

_MIN_SAMPLES = 10
_DIRECTIONS = ("dataset1 over dataset2", "dataset2 over dataset1")

TesterFactory = Callable[[PrivacyProperty], Any]


@dataclasses.dataclass(frozen=True)
class ShkAuditConfig(CheckedSettings):
    """How much is drawn, and how sure the statement is to be.

    Attributes:
      num_samples: releases a dataset, >= 10.
      failure_probability: of the whole audit, all orders and both directions together, in (0, 1).
      alphas: orders at which Rényi DP is tested, the claim at each read off the mechanism's certificate.
      seed: reported beside the result.
    """

    num_samples: Annotated[int, Int(at_least=_MIN_SAMPLES)] = 20_000
    failure_probability: FailureProbability = 0.05
    alphas: Orders = (2.0,)
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alphas or len(set(self.alphas)) != len(self.alphas):
            raise ValueError(f"alphas must be different orders, at least one, got {self.alphas!r}")


@dataclasses.dataclass(frozen=True)
class ShkAuditResult:
    """Report and the releases it was made from, shape (num_samples, d) each."""

    report: AuditReport
    samples1: NDArray[np.float64]
    samples2: NDArray[np.float64]


def audit_grid_mechanism(
    mechanism: GridMechanism,
    make_tester: TesterFactory,
    pair: NeighboringDatasets[Any],
    config: ShkAuditConfig,
    *,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> ShkAuditResult:
    """Returns the audit of a sampler's own certificate on one pair of neighbouring datasets.

    The failure probability is divided evenly over orders and directions: all lower bounds of the report hold
    together with probability at least 1 - `config.failure_probability` (union bound).

    Args:
      mechanism: the sampler; `certificate` is what it claims.
      make_tester: from a Rényi DP property to a tester with `audit(samples1, samples2, failure_probability)`.
      pair: two neighbouring datasets.
      config: see `ShkAuditConfig`.
      settings: recorded in the report.
    """
    start = time.perf_counter()
    samples1, samples2 = (mechanism(dataset, config.num_samples) for dataset in pair)
    claims = []
    for alpha in config.alphas:
        claimed = mechanism.certificate.renyi_dp(alpha)
        tester = make_tester(as_privacy_property(RenyiDp(alpha, claimed.value)))
        exact = [
            mechanism.exact_renyi_divergence(*datasets, alpha) for datasets in (pair, pair[::-1])
        ]
        bounds = in_both_directions(
            tester.audit, samples1, samples2, config.failure_probability, len(config.alphas)
        )
        claims.append(
            ClaimReport(
                claim=TestedLevel(alpha=alpha, epsilon=claimed.value),
                claim_source=claimed.source,
                exact_divergences=(exact[0], exact[1]),
                directions=(
                    DirectionReport(_DIRECTIONS[0], bounds[0]),
                    DirectionReport(_DIRECTIONS[1], bounds[1]),
                ),
            )
        )
    report = AuditReport(
        title="Privacy audit of a sampler",
        claims=tuple(claims),
        sections=(
            certificate_section(mechanism.certificate, config.alphas),
            utility_section(_utility(mechanism, pair[0])),
        ),
        failure_probability=config.failure_probability,
        num_samples=config.num_samples,
        unit="releases",
        seed=config.seed,
        settings=dict(settings),
        seconds={"wall": time.perf_counter() - start},
    )
    return ShkAuditResult(report, samples1, samples2)


def _utility(mechanism: GridMechanism, dataset: Any) -> Utility:
    losses = mechanism.loss_values(dataset)
    common = {
        field.name: getattr(mechanism.config, field.name)
        for field in dataclasses.fields(ExponentialMechanismConfig)
    }
    target = ExponentialMechanism(ExponentialMechanismConfig(**common))
    target_excess = target.expected_excess_loss(dataset)
    bound = mechanism.certificate.utility(float(np.ptp(losses)), target_excess)
    return Utility(
        expected_excess_loss=mechanism.expected_excess_loss(dataset),
        target_excess_loss=target_excess,
        certified_excess_loss=bound.value,
    )
