"""The audit of a sampler on a grid: many releases on each of two datasets, beside the exact
divergence.

The law of a release is known cell by cell, so the report holds four kinds of number and keeps them
apart: what is claimed (an upper bound), the exact divergence of the program as run, a point
estimate, a certified lower bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dvrenyi_plugin.audits.audit import AuditResult, Subject, TestedClaim, run_audit
from dvrenyi_plugin.audits.directions import DATASETS, Samples
from dvrenyi_plugin.audits.samplers.sections import Utility, certificate_section, utility_section
from dvrenyi_plugin.audits.samplers.settings import ShkAuditConfig
from dvrenyi_plugin.audits.settings import CURVE_SHARE
from dvrenyi_plugin.interfaces import (
    BoundedRangeDp,
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

TesterFactory = Callable[[PrivacyProperty], Any]


def audit_grid_mechanism(
    mechanism: GridMechanism,
    make_tester: TesterFactory,
    pair: NeighboringDatasets[Any],
    config: ShkAuditConfig,
    *,
    make_curve_tester: TesterFactory | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> AuditResult:
    """Returns the audit of a sampler's own certificate on one pair of neighbouring datasets.

    The failure probability is divided over claims and directions: all lower bounds of the report
    hold together with probability at least 1 - `config.failure_probability` (union bound).

    Args:
      mechanism: the sampler; `certificate` is what it claims.
      make_tester: from a Rényi DP property to a tester with `audit(samples1, samples2,
        failure_probability)`.
      pair: two neighbouring datasets.
      config: see `ShkAuditConfig`.
      make_curve_tester: from the certificate's bounded range to a tester of its trade-off curve,
        which then gets nine tenths of the failure probability and stands beside the orders; None
        tests the orders alone.
      settings: recorded in the report.
    """

    def draw(numbers: range) -> Samples:
        return mechanism(pair[0], len(numbers)), mechanism(pair[1], len(numbers))

    claims = [_claim_at(alpha, mechanism, make_tester, pair) for alpha in config.alphas]
    if make_curve_tester is not None:
        weight = CURVE_SHARE / (1.0 - CURVE_SHARE) * len(claims)
        claims.append(_curve_claim(mechanism, make_curve_tester, pair, weight))
    subject = Subject(
        title="Privacy audit of a sampler",
        draw=draw,
        directions=DATASETS,
        claims=tuple(claims),
        unit="releases",
        work="drawing",
        describe=lambda samples: (
            certificate_section(mechanism.certificate, config.alphas),
            utility_section(_utility(mechanism, pair[0])),
        ),
        settings=settings,
        seed=config.seed,
    )
    return run_audit(subject, config.num_samples, config.failure_probability)


def _claim_at(
    alpha: float,
    mechanism: GridMechanism,
    make_tester: TesterFactory,
    pair: NeighboringDatasets[Any],
) -> TestedClaim:
    claimed = mechanism.certificate.renyi_dp(alpha)
    return TestedClaim(
        tester=make_tester(as_privacy_property(RenyiDp(alpha, claimed.value))),
        source=claimed.source,
        exact_divergences=(
            mechanism.exact_renyi_divergence(*pair, alpha),
            mechanism.exact_renyi_divergence(*pair[::-1], alpha),
        ),
    )


def _curve_claim(
    mechanism: GridMechanism,
    make_tester: TesterFactory,
    pair: NeighboringDatasets[Any],
    weight: float,
) -> TestedClaim:
    exact = float(np.ptp(mechanism.grid_law(pair[0]) - mechanism.grid_law(pair[1])))
    return TestedClaim(
        tester=make_tester(as_privacy_property(BoundedRangeDp(mechanism.certificate.width))),
        source="bounded range",
        exact_divergences=(exact, exact),
        weight=weight,
        is_beside=True,
    )


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
