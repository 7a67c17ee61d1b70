"""What a report says of one claim: what is promised, and what its tester found."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon
from dvrenyi_plugin.reports.text import number
from dvrenyi_plugin.testers.base import BoundResult

# At which an empirical epsilon is read: the delta that most papers publish.
_DELTA = 1e-5
# What the bound against an accountant's curve is a value of.
_NOISE = "1 / noise multiplier"


@dataclasses.dataclass(frozen=True)
class TestedLevel:
    """The level under test.

    Attributes:
      alpha: Rényi order at which it is tested; None for testers of another divergence.
      epsilon: most that the claim allows, on the scale of the bound.
      mu: Gaussian DP parameter that the claim was given as; None if it was not.
      parameter: what `epsilon` is a value of: "epsilon", or "mu" for a bound on Gaussian DP itself.
    """

    # Not a test, whatever its name begins with.
    __test__ = False

    alpha: float | None
    epsilon: float
    mu: float | None = None
    parameter: str = "epsilon"

    @property
    def quantity(self) -> str:
        """What the bound is of: "D_2", "mu", ..."""
        if self.alpha is not None:
            return f"D_{self.alpha:g}"
        return self.parameter.replace(_NOISE, "trade-off curve")

    def content(self) -> dict[str, Any]:
        """Returns the level for the JSON document, which names only parameters but epsilon."""
        content = {"alpha": self.alpha, "epsilon": self.epsilon, "mu": self.mu}
        return content if self.parameter == "epsilon" else content | {"parameter": self.parameter}

    def describe(self) -> str:
        """Returns the level in a few words."""
        order = "" if self.alpha is None else f" at order alpha {self.alpha:g}"
        source = "" if self.mu is None else f" (mu {self.mu:g} Gaussian DP)"
        if self.parameter == "mu":
            return f"mu {self.epsilon:.4g} (Gaussian DP, its whole trade-off curve)"
        if self.parameter == "width":
            return f"width {self.epsilon:.4g} (bounded range, its whole trade-off curve)"
        if self.parameter == _NOISE:
            noise = 1.0 / self.epsilon
            return f"noise multiplier {noise:.4g} (the accountant's whole trade-off curve)"
        return f"{self.parameter} {self.epsilon:.4g}{order}{source}"


@dataclasses.dataclass(frozen=True)
class EmpiricalEpsilon:
    """A certified bound in the epsilon that people publish, read from the Gaussian family: "not
    mu-Gaussian DP for any mu below the bound", where mu-Gaussian DP has this epsilon at this delta.

    Attributes:
      delta: at which epsilon is read.
      certified: epsilon of the certified mu.
      claimed: epsilon of the claimed mu.
      family: that it is read from.
    """

    delta: float
    certified: float
    claimed: float
    family: str = "Gaussian DP"

    def describe(self) -> str:
        """Returns it in a few words."""
        return (
            f"{number(self.certified)} at delta {self.delta:g}, of {number(self.claimed)} claimed"
            f" (read from {self.family})"
        )


@dataclasses.dataclass(frozen=True)
class DirectionReport:
    """One ordering of the two datasets, tested at its share of the failure probability.

    Attributes:
      direction: which dataset's law is the numerator.
      bound: what the tester returned.
    """

    direction: str
    bound: BoundResult


@dataclasses.dataclass(frozen=True)
class ClaimReport:
    """One claim, tested in both directions.

    Attributes:
      claim: what is promised.
      directions: what the tester returned.
      claim_source: the result that the promise comes from; empty if it needs none.
      exact_divergences: the divergence of the program as run in each of the directions, None if it
        is unknown.
      is_beside: reported beside the claims that the audit is about: it leads the report only where
        it alone is refuted.
    """

    claim: TestedLevel
    directions: tuple[DirectionReport, ...]
    claim_source: str = ""
    exact_divergences: tuple[float, ...] | None = None
    is_beside: bool = False

    @property
    def lower_bound(self) -> float:
        """Certified lower bound on the larger of the directions' divergences."""
        return max(entry.bound.lower_bound for entry in self.directions)

    @property
    def refuted(self) -> bool:
        """True when some direction's lower bound exceeds the claim."""
        return any(entry.bound.refuted for entry in self.directions)

    @property
    def is_alone(self) -> bool:
        """True for a curve in no family: it is refuted or not, and there is nothing to bound."""
        return bool(self.directions[0].bound.details.get("claim_alone"))

    @property
    def certified(self) -> str:
        """What is certified, in a few words."""
        spent = sum(entry.bound.failure_probability for entry in self.directions)
        found = f"{number(self.lower_bound)} of {number(self.claim.epsilon)} claimed"
        if self.is_alone:
            found = "refuted" if self.refuted else "not refuted"
        return f"{found} (failure probability {spent:g} of the whole)"

    @property
    def fraction(self) -> float:
        """The part of the claim that is certified."""
        return self.lower_bound / self.claim.epsilon if self.claim.epsilon > 0.0 else math.inf

    @property
    def empirical_epsilon(self) -> EmpiricalEpsilon | None:
        """The bound on a Gaussian DP parameter as an epsilon; None for other bounds."""
        if self.claim.parameter != "mu":
            return None
        return EmpiricalEpsilon(
            delta=_DELTA,
            certified=gaussian_dp_epsilon(self.lower_bound, _DELTA),
            claimed=gaussian_dp_epsilon(self.claim.epsilon, _DELTA),
        )

    def content(self) -> dict[str, Any]:
        """Returns the claim for the JSON document of a report with several."""
        return {
            **self.claim.content(),
            "lower_bound": self.lower_bound,
            "refuted": self.refuted,
            "claim_source": self.claim_source,
            "exact_divergences": self.exact_divergences,
        }
