"""What an audit found, with everything that decided it, as a dataclass, JSON, markdown and a short summary."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.audits.dp_sgd.outcome import SequentialOutcome
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
from dvrenyi_plugin.interfaces import GaussianDp, read_claim
from dvrenyi_plugin.mechanisms.finite_observations import is_mapped


@dataclasses.dataclass(frozen=True)
class ObservationSummary:
    """Moments of one world's canary losses, without those that were infinite or NaN.

    Attributes:
      count: number of models with a finite loss. With fewer than two the moments are NaN.
      mean: in nats.
      standard_deviation: with n - 1 in the denominator, in nats.
      minimum: in nats.
      maximum: in nats.
    """

    count: int
    mean: float
    standard_deviation: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, losses: NDArray[np.float64]) -> ObservationSummary:
        """Returns the moments of losses of shape (n,)."""
        losses = losses[~is_mapped(losses)]
        if losses.size < 2:
            return cls(int(losses.size), math.nan, math.nan, math.nan, math.nan)
        return cls(
            count=int(losses.size),
            mean=float(losses.mean()),
            standard_deviation=float(losses.std(ddof=1)),
            minimum=float(losses.min()),
            maximum=float(losses.max()),
        )


@dataclasses.dataclass(frozen=True)
class Separation:
    """How far apart the two worlds' canary losses lie. An estimate: no confidence statement.

    Attributes:
      d_prime: |difference of means| / pooled standard deviation. Under mu-GDP it cannot exceed mu
        (but for sampling error) when the losses are Gaussian with one variance.
      standard_error: of d_prime, from the normal approximation.
      standard_deviation: pooled over the worlds, in nats.
    """

    d_prime: float
    standard_error: float
    standard_deviation: float

    @classmethod
    def of(cls, without: NDArray[np.float64], with_canary: NDArray[np.float64]) -> Separation:
        """Returns the separation of two samples of shape (n,) and (m,); NaN if neither varies."""
        without, with_canary = without[~is_mapped(without)], with_canary[~is_mapped(with_canary)]
        if min(without.size, with_canary.size) < 2:
            return cls(math.nan, math.nan, math.nan)
        first, second = without.size, with_canary.size
        pooled = math.sqrt(
            ((first - 1) * without.var(ddof=1) + (second - 1) * with_canary.var(ddof=1))
            / (first + second - 2)
        )
        if pooled == 0.0:
            return cls(math.nan, math.nan, 0.0)
        d_prime = abs(float(without.mean() - with_canary.mean())) / pooled
        variance = (first + second) / (first * second) + d_prime**2 / (2 * (first + second))
        return cls(d_prime, math.sqrt(variance), pooled)


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """An audit's result.

    `point_estimate` and `lower_bound` are different kinds of number. The first is what a critic read off
    finite samples and may lie on either side of the true divergence. The second exceeds the larger of the
    two directions' true divergences with probability at most `failure_probability`.

    Attributes:
      claim: what was tested.
      directions: both orderings of the worlds.
      failure_probability: total spent, over both directions.
      num_models: trained models a world.
      seed: root of every random stream.
      losses_without: canary losses of models trained on D.
      losses_with_canary: canary losses of models trained on D + canary.
      separation: distance of the two samples of losses.
      noise_free_shift: by how much the canary lowers its own loss in models trained without noise, in nats;
        None if unknown.
      settings: everything else that decided the result, names to plain values.
      notes: what the reader should know about the audit's strength, in sentences.
      sequential: when and why training stopped; None when the number of models was fixed beforehand.
      versions: of the package, Python and the libraries used.
      training_seconds: wall time of training all models.
      wall_seconds: wall time of training and testing; preparation and writing the report are not in it.
    """

    claim: TestedLevel
    directions: tuple[DirectionReport, ...]
    failure_probability: float
    num_models: int
    seed: int
    losses_without: ObservationSummary
    losses_with_canary: ObservationSummary
    separation: Separation
    training_seconds: float
    wall_seconds: float
    noise_free_shift: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    sequential: SequentialOutcome | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=lambda: library_versions())

    @classmethod
    def of_losses(
        cls,
        losses_without: NDArray[np.float64],
        losses_with_canary: NDArray[np.float64],
        *,
        directions: tuple[DirectionReport, DirectionReport],
        privacy_property: Any,
        claimed_mu: float | None,
        notes: Sequence[str] = (),
        **fields: Any,
    ) -> AuditReport:
        """Returns the report on canary losses of shape (num_models,) and what was certified from them.

        Args:
          losses_without: of models trained on D, in nats.
          losses_with_canary: of models trained on D + canary, in nats.
          directions: both orderings of the worlds.
          privacy_property: what the tester tested.
          claimed_mu: Gaussian DP parameter that the property was derived from, if it does not hold one.
          notes: sentences for the reader; one is added when so few models could not have refuted the claim.
          fields: further attributes.
        """
        claim = read_claim(privacy_property)
        return cls(
            claim=TestedLevel(
                alpha=directions[0].bound.alpha,
                epsilon=directions[0].bound.claimed_limit,
                mu=claim.mu if isinstance(claim, GaussianDp) else claimed_mu,
            ),
            directions=directions,
            num_models=int(losses_without.size),
            losses_without=ObservationSummary.of(losses_without),
            losses_with_canary=ObservationSummary.of(losses_with_canary),
            separation=Separation.of(losses_without, losses_with_canary),
            notes=(*notes, *too_few_notes(directions, losses_without.size, "models a world")),
            **fields,
        )

    @property
    def refuted(self) -> bool:
        """True when a direction's lower bound exceeds the claim."""
        return any(entry.bound.refuted for entry in self.directions)

    @property
    def lower_bound(self) -> float:
        """Certified lower bound on the larger of the two directions' divergences."""
        return max(entry.bound.lower_bound for entry in self.directions)

    @property
    def point_estimate(self) -> float:
        """Larger of the two directions' point estimates; NaN when the tester makes none."""
        estimates = [entry.bound.point_estimate for entry in self.directions]
        finite = [estimate for estimate in estimates if not math.isnan(estimate)]
        return max(finite) if finite else math.nan

    @property
    def noise_free_d_prime(self) -> float:
        """The noise-free shift over the pooled standard deviation; NaN if unknown.

        Unlike d-prime it has no sampling error in the means: it tells bad luck from a protocol that sees
        less than the claim allows.
        """
        spread = self.separation.standard_deviation
        if self.noise_free_shift is None or not spread > 0.0:
            return math.nan
        return self.noise_free_shift / spread

    def to_json(self) -> str:
        """Returns the report as strict JSON: NaN and infinity become null."""
        content = {
            "claim": self.claim,
            "point_estimate": self.point_estimate,
            "lower_bound": self.lower_bound,
            "failure_probability": self.failure_probability,
            "refuted": self.refuted,
            "num_models": self.num_models,
            "sequential": None if self.sequential is None else self.sequential.to_dict(),
            "seed": self.seed,
            "d_prime": self.separation.d_prime,
            "d_prime_standard_error": self.separation.standard_error,
            "noise_free_d_prime": self.noise_free_d_prime,
            "noise_free_shift": self.noise_free_shift,
            "directions": [
                {"direction": entry.direction, **plain_fields(entry.bound)}
                for entry in self.directions
            ],
            "losses": {
                "without_canary": self.losses_without,
                "with_canary": self.losses_with_canary,
            },
            "notes": self.notes,
            "settings": self.settings,
            "versions": self.versions,
            "training_seconds": self.training_seconds,
            "wall_seconds": self.wall_seconds,
        }
        return json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"

    def summary(self) -> str:
        """Returns a few lines for the terminal."""
        confidence = f"failure probability {self.failure_probability:g}"
        lines = [
            ("claim", describe_claim(self.claim)),
            ("point estimate", f"{number(self.point_estimate)}  (no confidence statement)"),
            ("certified lower bound", f"{number(self.lower_bound)}  ({confidence})"),
            ("verdict", self.verdict()),
            (
                "separation",
                f"d-prime {number(self.separation.d_prime)}"
                f" +- {number(self.separation.standard_error)} over {self.num_models} models a world",
            ),
        ]
        if self.sequential is not None:
            lines.append(("stopped", self.sequential.summary()))
        lines += [("note", note) for note in self.notes]
        return aligned(lines)

    def verdict(self) -> str:
        """Returns the outcome in words; an audit never confirms a claim."""
        return verdict(self.refuted)

    def to_markdown(self, gallery: Gallery = NO_PICTURES) -> str:
        """Returns the report as Markdown.

        Args:
          gallery: pictures beside the report.
        """
        sections = [
            "# Privacy audit of DP-SGD",
            f"**{self.verdict()}.**",
            table(
                ("quantity", "value"),
                [
                    ("claim", describe_claim(self.claim)),
                    ("point estimate (no confidence statement)", number(self.point_estimate)),
                    (
                        f"certified lower bound (failure probability {self.failure_probability:g})",
                        number(self.lower_bound),
                    ),
                    ("models trained a world", str(self.num_models)),
                ],
            ),
            "The point estimate is what a critic read off the samples; the truth may lie on either side of"
            " it. Only the lower bound carries a confidence statement, and only it decides the verdict.",
            *([] if self.sequential is None else [self.sequential.describe()]),
            *(f"Note: {escape(note, 'markdown')}" for note in self.notes),
            *gallery.to_markdown(),
            "## Directions",
            "The failure probability is divided over the directions.",
            table(
                (
                    "numerator over denominator",
                    "lower bound",
                    "failure probability",
                    "point estimate",
                    "method",
                ),
                [
                    (
                        entry.direction,
                        number(entry.bound.lower_bound),
                        f"{entry.bound.failure_probability:g}",
                        number(entry.bound.point_estimate),
                        entry.bound.method,
                    )
                    for entry in self.directions
                ],
            ),
            "## Canary losses",
            table(
                ("world", "models", "mean / nat", "standard deviation / nat", "range / nat"),
                [
                    _loss_row("without the canary", self.losses_without),
                    _loss_row("with the canary", self.losses_with_canary),
                ],
            ),
            self._describe_separation(),
            "## What decided the result",
            table(("setting", "value"), [("seed", self.seed), *setting_rows(self.settings)]),
            "## Versions and time",
            table(
                ("what", "value"),
                [
                    *self.versions.items(),
                    ("training / s", f"{self.training_seconds:.1f}"),
                    ("training and testing / s", f"{self.wall_seconds:.1f}"),
                ],
            ),
        ]
        return "\n\n".join(sections) + "\n"

    def _describe_separation(self) -> str:
        sentences = [
            f"d-prime = {number(self.separation.d_prime)}"
            f" (standard error {number(self.separation.standard_error)}), an estimate."
        ]
        if self.noise_free_shift is not None:
            sentences.append(
                "With the means replaced by those of training without noise, which have no sampling error, it"
                f" is {number(self.noise_free_d_prime)}."
            )
        if self.claim.mu is not None:
            sentences.append(f"A Gaussian pair at the claim has {self.claim.mu:g}.")
        return " ".join(sentences)


def _loss_row(world: str, losses: ObservationSummary) -> tuple[str, ...]:
    return (
        world,
        str(losses.count),
        f"{losses.mean:.5g}",
        f"{losses.standard_deviation:.4g}",
        f"{losses.minimum:.5g} to {losses.maximum:.5g}",
    )
