"""What an audit found, with everything that decided it: as data, JSON, Markdown and HTML.

The same model serves every audit. What only one kind of audit knows (losses of a canary, the
certificate of a sampler) comes as sections.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dvrenyi_plugin.reports import plain_json
from dvrenyi_plugin.reports.claims import ClaimReport, DirectionReport, TestedLevel
from dvrenyi_plugin.reports.pictures import NO_PICTURES, Gallery
from dvrenyi_plugin.reports.render import Format, render
from dvrenyi_plugin.reports.sequential_outcome import SequentialOutcome
from dvrenyi_plugin.reports.text import Table, aligned, number, setting_rows
from dvrenyi_plugin.reports.versions import library_versions

# For each kind of observation: its number's name in JSON, and how it is made.
_UNITS = {"models": ("num_models", "training"), "releases": ("num_samples", "drawing")}


@dataclasses.dataclass(frozen=True)
class Section:
    """What one kind of audit adds to the report.

    Attributes:
      title: its heading; a section without one is seen in the JSON document and the summary alone.
      content: entries of the JSON document, beside those of every report.
      paragraphs: before the table; names between backticks are shown as code.
      table: shown if given.
      summary: names and values of lines for the terminal.
    """

    title: str = ""
    content: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    summary: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """An audit's result.

    `point_estimate` and `lower_bound` are different kinds of number. The first is what a critic
    read off finite samples and may lie on either side of the true divergence. All lower bounds
    together hold with probability at least 1 - `failure_probability`.

    Attributes:
      title: heading of the report.
      claims: what was tested, one entry per order.
      failure_probability: total spent, over all claims and directions.
      num_samples: observations per dataset; of the dataset that has fewer.
      unit: what an observation is, "models" or "releases".
      seed: root of every random stream.
      seconds: wall times by name: "training" of all models, "wall" of making the observations and
        testing them; preparation and writing the report are not in it.
      sections: what this kind of audit adds.
      settings: everything else that decided the result, names to plain values.
      notes: what the reader should know about the audit's strength, in sentences.
      sequential: when and why the audit stopped; None when its size was fixed beforehand.
      versions: of the package, Python and the libraries used.
    """

    title: str
    claims: tuple[ClaimReport, ...]
    failure_probability: float
    num_samples: int
    unit: str
    seed: int
    seconds: Mapping[str, float]
    sections: tuple[Section, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    sequential: SequentialOutcome | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=lambda: library_versions())

    def __post_init__(self) -> None:
        # Not twice, when a report is made of another one.
        new = [note for note in self._too_few_notes() if note not in self.notes]
        object.__setattr__(self, "notes", (*self.notes, *new))

    def __repr__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        claim, bound = number(self.claim.epsilon), number(self.lower_bound)
        return (
            f"AuditReport({verdict}: {self.claim.parameter} {claim} claimed, {bound} certified,"
            f" {self.num_samples} {self.unit} per dataset)"
        )

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the report without pictures, in the notebook's style."""
        return self._render("notebook", NO_PICTURES)

    @property
    def deciding(self) -> ClaimReport:
        """A refuted claim if there is one, and one that the audit is about rather than one beside;
        among these the one of which the largest part is certified.
        """
        return max(
            self.claims, key=lambda entry: (entry.refuted, not entry.is_beside, entry.fraction)
        )

    @property
    def directions(self) -> tuple[DirectionReport, ...]:
        """Every bound, of all claims and directions."""
        return tuple(entry for claim in self.claims for entry in claim.directions)

    @property
    def claim(self) -> TestedLevel:
        """The level of the deciding claim."""
        return self.deciding.claim

    @property
    def refuted(self) -> bool:
        """True when some lower bound exceeds its claim."""
        return any(claim.refuted for claim in self.claims)

    @property
    def lower_bound(self) -> float:
        """Certified lower bound on the larger direction's divergence, of the deciding claim."""
        return self.deciding.lower_bound

    @property
    def point_estimate(self) -> float:
        """Larger of the deciding claim's point estimates; NaN when the tester makes none."""
        estimates = [entry.bound.point_estimate for entry in self.deciding.directions]
        return max((e for e in estimates if not math.isnan(e)), default=math.nan)

    @property
    def exact_divergence(self) -> float | None:
        """Larger of the deciding claim's exact divergences; None if they are unknown."""
        exact = self.deciding.exact_divergences
        return None if exact is None else max(exact)

    def verdict(self) -> str:
        """Returns the outcome in words; an audit never confirms a claim."""
        if self.refuted and self.deciding.is_alone:
            return "REFUTED: the outputs break the claimed trade-off curve"
        if self.refuted:
            return f"REFUTED: the certified lower bound exceeds the claimed {self.claim.parameter}"
        return "not refuted: no violation was certified, which is not a proof of the claim"

    def document(self) -> dict[str, Any]:
        """Returns everything that is reported, by the names that it has in JSON."""
        exact = {} if self.exact_divergence is None else {"exact_divergence": self.exact_divergence}
        by_claim = len(self.claims) > 1 or bool(exact)
        content: dict[str, Any] = {
            "claim": self.claim.content(),
            "point_estimate": self.point_estimate,
            "lower_bound": self.lower_bound,
            **exact,
            "failure_probability": self.failure_probability,
            "refuted": self.refuted,
            _UNITS[self.unit][0]: self.num_samples,
            "sequential": None if self.sequential is None else self.sequential.to_dict(),
            "seed": self.seed,
            "directions": [
                {**plain_json.plain_fields(entry.bound), "direction": entry.direction}
                for entry in self.directions
            ],
            **({"claims": [claim.content() for claim in self.claims]} if by_claim else {}),
        }
        if self.deciding.empirical_epsilon is not None:
            content["empirical_epsilon"] = self.deciding.empirical_epsilon
        for section in self.sections:
            content |= section.content
        return content | {
            "notes": self.notes,
            "settings": self.settings,
            "versions": self.versions,
            **{f"{name}_seconds": value for name, value in self.seconds.items()},
        }

    def to_json(self) -> str:
        """Returns the report as strict JSON: NaN and infinity become null."""
        return plain_json.to_json(self.document())

    def to_markdown(self, gallery: Gallery = NO_PICTURES) -> str:
        """Returns the report as Markdown, with links to the pictures beside it."""
        return self._render("markdown", gallery)

    def to_html(self, gallery: Gallery = NO_PICTURES) -> str:
        """Returns the report as one HTML page, which holds its pictures and loads nothing."""
        return self._render("html", gallery)

    def summary(self) -> str:
        """Returns a few lines for the terminal."""
        lines = [
            *self._headline(),
            ("verdict", self.verdict()),
            *(line for section in self.sections for line in section.summary),
            *(() if self.sequential is None else (("stopped", self.sequential.summary()),)),
            *(("note", note) for note in self.notes),
        ]
        return aligned(lines)

    def _render(self, target: Format, gallery: Gallery) -> str:
        return render(
            "audit.jinja",
            target,
            report=self,
            gallery=gallery,
            overview=Table(
                ("quantity", "value"),
                [*self._headline(), (f"{self.unit} per dataset", self.num_samples)],
            ),
            sections=[
                self._bounds_section(),
                *(section for section in self.sections if section.title),
                *self._closing_sections(),
            ],
        )

    def _headline(self) -> list[tuple[str, str]]:
        """Returns claim, exact divergence if it is known, estimate and bound, each by its name."""
        source = self.deciding.claim_source
        rows = [("claim", self.claim.describe() + (f" ({source})" if source else ""))]
        if self.exact_divergence is not None:
            exact = number(self.exact_divergence)
            rows.append(("exact divergence", f"{exact} (of the program as run)"))
        confidence = f"failure probability {self.failure_probability:g}"
        estimate = f"{number(self.point_estimate)} (no confidence statement)"
        rows += (
            [(self.claim.quantity, self.deciding.certified)]
            if self.deciding.is_alone
            else [
                ("point estimate", estimate),
                ("certified lower bound", f"{number(self.lower_bound)} ({confidence})"),
            ]
        )
        if self.deciding.empirical_epsilon is not None:
            rows.append(("empirical epsilon", self.deciding.empirical_epsilon.describe()))
        if len({claim.is_beside for claim in self.claims}) > 1:
            rows += [
                (f"certified {claim.claim.quantity}", claim.certified)
                for claim in self.claims
                if claim is not self.deciding
            ]
        return rows

    def _bounds_section(self) -> Section:
        header = (
            *("numerator over denominator", "bound on", "claim", "exact", "lower bound"),
            *("failure probability", "point estimate", "method"),
        )
        rows = [
            (
                entry.direction,
                claim.claim.quantity,
                number(claim.claim.epsilon),
                number(exact),
                number(entry.bound.lower_bound),
                f"{entry.bound.failure_probability:g}",
                number(entry.bound.point_estimate),
                entry.bound.method,
            )
            for claim in self.claims
            for entry, exact in zip(
                claim.directions,
                claim.exact_divergences or itertools.repeat(math.nan),
                strict=False,
            )
        ]
        table = Table(header, rows)
        if all(claim.exact_divergences is None for claim in self.claims):
            table = table.without("exact")
        divided = "The failure probability is divided over all claims and directions."
        return Section("Claims and directions", paragraphs=(divided,), table=table)

    def _closing_sections(self) -> tuple[Section, Section]:
        work = _UNITS[self.unit][1]
        times = {name: f"{name} / s" for name in self.seconds} | {"wall": f"{work} and testing / s"}
        seconds = [(times[name], f"{value:.1f}") for name, value in self.seconds.items()]
        return (
            Section(
                "What decided the result",
                table=Table(
                    ("setting", "value"), [("seed", self.seed), *setting_rows(self.settings)]
                ),
            ),
            Section(
                "Versions and time",
                table=Table(("what", "value"), [*self.versions.items(), *seconds]),
            ),
        )

    def _too_few_notes(self) -> tuple[str, ...]:
        """Returns a sentence if no bound could have refuted its claim, whatever the mechanism."""
        if not self.directions:
            return ()
        bound = min(
            (entry.bound for entry in self.directions),
            key=lambda bound: bound.fewest_samples or 0.0,
        )
        fewest = bound.fewest_samples or 0.0
        if fewest <= self.num_samples:
            return ()
        needed = "not even 10^9 do" if math.isinf(fewest) else f"it takes at least {fewest:,.0f}"
        return (
            f"{self.num_samples} {self.unit} per dataset are too few: whatever the mechanism does,"
            " they cannot refute this claim. At the failure probability"
            f" {bound.failure_probability:g} of this bound {needed}.",
        )
