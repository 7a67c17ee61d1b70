"""What an audit of a sampler found: the same report as for DP-SGD, with certificate, exact divergence and utility."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dvrenyi_plugin.audits.pictures import NO_PICTURES, Gallery
from dvrenyi_plugin.audits.report_parts import (
    DirectionReport,
    TestedLevel,
    jsonable,
    library_versions,
    plain_fields,
    too_few_notes,
)
from dvrenyi_plugin.audits.report_text import (
    aligned,
    describe_claim,
    number,
    setting_rows,
    table,
    verdict,
)
from dvrenyi_plugin.flows.certificate import Certificate

_APPROXIMATE_DP_FRACTIONS = (0.25, 0.5, 0.75)


@dataclasses.dataclass(frozen=True)
class OrderReport:
    """One order of the Rényi DP claim.

    Attributes:
      claim: what the certificate promises at this order.
      claim_source: the result that the promise comes from.
      exact_divergences: D_alpha of the program as run, both directions as in `directions`.
      directions: what the tester returned.
    """

    claim: TestedLevel
    claim_source: str
    exact_divergences: tuple[float, float]
    directions: tuple[DirectionReport, DirectionReport]


@dataclasses.dataclass(frozen=True)
class UtilityReport:
    """Excess loss E[L(release)] - min L on the first dataset, the loss read at cell midpoints.

    Attributes:
      expected_excess_loss: exact, of the program as run.
      target_excess_loss: exact, of the exponential mechanism.
      certified_excess_loss: the certificate's upper bound.
    """

    expected_excess_loss: float
    target_excess_loss: float
    certified_excess_loss: float


@dataclasses.dataclass(frozen=True)
class ShkAuditReport:
    """An audit's result. Fields of the same names mean the same as in `AuditReport`.

    Attributes:
      orders: one entry an order.
      certificate: what the mechanism claims, for all neighbours.
      utility: of the first dataset.
      failure_probability: total spent, over all orders and both directions.
      num_samples: releases a dataset.
      seed: root of every random stream.
      wall_seconds: of drawing and testing.
      settings: everything else that decided the result, names to plain values.
      versions: of the package, Python and the libraries used.
    """

    orders: tuple[OrderReport, ...]
    certificate: Certificate
    utility: UtilityReport
    failure_probability: float
    num_samples: int
    seed: int
    wall_seconds: float
    settings: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = dataclasses.field(default_factory=library_versions)

    @property
    def deciding(self) -> OrderReport:
        """The order whose largest lower bound is the largest fraction of its claim."""

        def fraction(order: OrderReport) -> float:
            bound = max(entry.bound.lower_bound for entry in order.directions)
            return bound / order.claim.epsilon if order.claim.epsilon > 0.0 else math.inf

        return max(self.orders, key=fraction)

    @property
    def directions(self) -> tuple[DirectionReport, ...]:
        """Every bound, all orders and both directions."""
        return tuple(entry for order in self.orders for entry in order.directions)

    @property
    def claim(self) -> TestedLevel:
        """The claim at the deciding order."""
        return self.deciding.claim

    @property
    def refuted(self) -> bool:
        """True when some lower bound exceeds its claim."""
        return any(entry.bound.refuted for entry in self.directions)

    @property
    def lower_bound(self) -> float:
        """Certified lower bound on the larger direction's divergence, at the deciding order."""
        return max(entry.bound.lower_bound for entry in self.deciding.directions)

    @property
    def point_estimate(self) -> float:
        """Larger of both directions' point estimates at the deciding order; NaN when there is none."""
        estimates = [entry.bound.point_estimate for entry in self.deciding.directions]
        return max((e for e in estimates if not math.isnan(e)), default=math.nan)

    @property
    def exact_divergence(self) -> float:
        """Larger of both directions' exact divergences of the program as run, at the deciding order."""
        return max(self.deciding.exact_divergences)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know about the audit's strength, in sentences."""
        return too_few_notes(self.directions, self.num_samples, "releases a dataset")

    def verdict(self) -> str:
        """Returns the outcome in words; an audit never confirms a claim."""
        return verdict(self.refuted)

    def to_json(self) -> str:
        """Returns the report as strict JSON: NaN and infinity become null."""
        content = {
            "claim": self.claim,
            "point_estimate": self.point_estimate,
            "lower_bound": self.lower_bound,
            "exact_divergence": self.exact_divergence,
            "failure_probability": self.failure_probability,
            "refuted": self.refuted,
            "num_samples": self.num_samples,
            "seed": self.seed,
            "directions": [
                {"direction": entry.direction, **plain_fields(entry.bound)}
                for entry in self.directions
            ],
            "orders": [
                {
                    "alpha": order.claim.alpha,
                    "claimed_epsilon": order.claim.epsilon,
                    "claim_source": order.claim_source,
                    "exact_divergences": order.exact_divergences,
                }
                for order in self.orders
            ],
            "certificate": self._certificate_content(),
            "utility": self.utility,
            "notes": self.notes,
            "settings": self.settings,
            "versions": self.versions,
            "wall_seconds": self.wall_seconds,
        }
        return json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"

    def summary(self) -> str:
        """Returns a few lines for the terminal."""
        pure = self.certificate.pure_dp()
        lines = [
            ("certificate", f"{number(pure.value)}-DP ({pure.source})"),
            ("claim", f"{describe_claim(self.claim)} ({self.deciding.claim_source})"),
            ("exact divergence", f"{number(self.exact_divergence)}  (of the program as run)"),
            ("point estimate", f"{number(self.point_estimate)}  (no confidence statement)"),
            (
                "certified lower bound",
                f"{number(self.lower_bound)}  (failure probability {self.failure_probability:g})",
            ),
            ("verdict", self.verdict()),
            (
                "excess loss",
                f"{number(self.utility.expected_excess_loss)}, of the exponential mechanism"
                f" {number(self.utility.target_excess_loss)}",
            ),
            *(("note", note) for note in self.notes),
        ]
        return aligned(lines)

    def to_markdown(self, gallery: Gallery = NO_PICTURES) -> str:
        """Returns the report as Markdown.

        Args:
          gallery: pictures beside the report.
        """
        certificate = self._certificate_content()
        sections = [
            "# Privacy audit of a sampler",
            f"**{self.verdict()}.**",
            table(
                ("quantity", "value"),
                [
                    ("claim", describe_claim(self.claim)),
                    ("exact divergence of the program as run", number(self.exact_divergence)),
                    ("point estimate (no confidence statement)", number(self.point_estimate)),
                    (
                        f"certified lower bound (failure probability {self.failure_probability:g})",
                        number(self.lower_bound),
                    ),
                    ("releases a dataset", str(self.num_samples)),
                ],
            ),
            "The claim is an upper bound from a theorem, for all neighbouring datasets. The exact divergence is of this"
            " pair, computed from the laws on the grid. The point estimate is what a critic read off the samples. Only"
            " the lower bound carries a confidence statement, and only it decides the verdict.",
            *(f"Note: {note}" for note in self.notes),
            *gallery.to_markdown(),
            "## Orders and directions",
            "The failure probability is divided over orders and directions.",
            table(
                (
                    "alpha",
                    "numerator over denominator",
                    "claim",
                    "exact",
                    "lower bound",
                    "failure probability",
                    "point estimate",
                    "method",
                ),
                [
                    (
                        f"{order.claim.alpha:g}",
                        entry.direction,
                        number(order.claim.epsilon),
                        number(exact),
                        number(entry.bound.lower_bound),
                        f"{entry.bound.failure_probability:g}",
                        number(entry.bound.point_estimate),
                        entry.bound.method,
                    )
                    for order in self.orders
                    for entry, exact in zip(order.directions, order.exact_divergences, strict=True)
                ],
            ),
            "## Certificate",
            table(
                ("statement", "value", "result"),
                [
                    (str(entry["statement"]), number(float(entry["value"])), str(entry["source"]))
                    for entry in certificate
                ],
            ),
            "## Utility",
            table(
                ("excess loss on dataset1", "value"),
                [
                    ("of the program as run", number(self.utility.expected_excess_loss)),
                    ("of the exponential mechanism", number(self.utility.target_excess_loss)),
                    ("certified upper bound", number(self.utility.certified_excess_loss)),
                ],
            ),
            "## What decided the result",
            table(
                ("setting", "value"),
                [
                    ("seed", self.seed),
                    *setting_rows(self.settings),
                ],
            ),
            "## Versions and time",
            table(
                ("what", "value"),
                [*self.versions.items(), ("drawing and testing / s", f"{self.wall_seconds:.1f}")],
            ),
        ]
        return "\n\n".join(sections) + "\n"

    def _certificate_content(self) -> list[dict[str, Any]]:
        pure, zcdp = self.certificate.pure_dp(), self.certificate.zcdp()
        epsilons = [fraction * pure.value for fraction in _APPROXIMATE_DP_FRACTIONS]
        statements = [("pure DP, epsilon", pure), ("zCDP, rho", zcdp)]
        statements += [
            (
                f"Rényi DP at order {order.claim.alpha:g}, epsilon",
                self.certificate.renyi_dp(float(order.claim.alpha or 2.0)),
            )
            for order in self.orders
        ]
        statements += [
            (f"approximate DP at epsilon {e:.4g}, delta", self.certificate.approximate_dp(e))
            for e in epsilons
        ]
        return [
            {"statement": name, "value": entry.value, "source": entry.source}
            for name, entry in statements
        ]
