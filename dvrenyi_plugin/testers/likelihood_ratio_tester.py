"""Bounds from a known log-likelihood ratio: the paper's theorems 3.1, B.2 and B.3 as a tester."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvrenyi_plugin._internal.limits import (
    Allowed,
    CheckedSettings,
    NotNegative,
    OneOf,
    Order,
    Seed,
    Switch,
)
from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin._internal.validation import (
    check_callable,
    check_failure_probability,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.paper_theorems import (
    bounded_loss_lower_bound,
    bounded_loss_upper_bound,
    check_log_ratio_size,
    empirical_renyi_divergence,
    markov_lower_bound,
)
from dvrenyi_plugin.interfaces import default_order, read_claim, renyi_threshold
from dvrenyi_plugin.testers.base import BoundResult, BoundTester

LogRatio = Callable[[NDArray[np.float64]], ArrayLike]


@dataclasses.dataclass(frozen=True)
class LikelihoodRatioTesterConfig(CheckedSettings):
    """Settings of `LikelihoodRatioTester`.

    Attributes:
      privacy_property: the claim, ours or DP-Auditorium's: Rényi, pure, Gaussian or
        zero-concentrated DP. Not (epsilon, delta)-DP, which no Rényi bound refutes.
      log_ratio: log density of law 1 over law 2; takes samples of shape (n, d), float64, and
        returns shape (n,) in nats, -inf where law 1 has no mass and +inf where law 2 has none. It
        must treat rows one by one (checked). The bounds hold only if it is the true one.
      bound_method: "markov" (theorem 3.1, no further assumption) or "bounded" (theorem B.3, needs
        `largest_log_ratio`).
      largest_log_ratio: the log ratio's supremum, or more, in nats, >= 0; from the mechanism, never
        from samples. With `either_order`, the supremum of its absolute value.
      absolutely_continuous: the user's word that law 1 has no mass where law 2 has none (with
        `either_order`, nor the other way round). "upper_bound" is inf without it: no samples of law
        2 can show it. With it, samples of law 1 are checked against `largest_log_ratio`, too.
      either_order: for callers that do not say which law comes first, as DP-Auditorium's runner:
        computes with the log ratio and with its negative, one of which is the true one, and keeps
        the weaker bound. A sample where the ratio is infinite tells the order: law 2 gives none
        where it has no mass.
      alpha: order, > 1; None for a Rényi claim's own order, 2 for the other claims.
      seed: recorded in results; nothing here is random.
    """

    privacy_property: Any
    log_ratio: Annotated[LogRatio, Allowed(check_callable)]
    bound_method: Annotated[str, OneOf(("markov", "bounded"))] = "markov"
    largest_log_ratio: NotNegative | None = None
    absolutely_continuous: Switch = False
    either_order: Switch = False
    alpha: Order | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        if self.largest_log_ratio is None and self.bound_method == "bounded":
            raise ValueError(
                "largest_log_ratio must be given for the bounded certificate, got None"
            )
        renyi_threshold(claim, default_order(claim) if self.alpha is None else self.alpha)


@dataclasses.dataclass(frozen=True)
class _Side:
    """What one sign of the log ratio says."""

    lower_bound: float
    point_estimate: float
    upper_bound: float


class LikelihoodRatioTester(BoundTester):
    """A tester with DP-Auditorium's interface for a mechanism whose log-likelihood ratio is known.

    D_alpha(law 1 || law 2) is the mean of e^{alpha log_ratio} under law 2, so only samples2
    certify; samples1 serve to check the assumption behind an upper bound, if one is wanted, and are
    else left unused. White-box by nature: use it to check a mechanism against its own density, or
    the other testers against an oracle.

    The log ratio belongs to one order of the laws: with the samples swapped it has the wrong sign
    and the bound does not hold. DP-Auditorium's runner calls a tester in both orders: set
    `either_order` there.

    Source: Kim, Varshney and Alabi (2026), theorems 3.1, B.2 and B.3.
    """

    def __init__(self, config: LikelihoodRatioTesterConfig) -> None:
        self._config = config
        claim = read_claim(config.privacy_property)
        self._alpha = default_order(claim) if config.alpha is None else float(config.alpha)
        super().__init__(config.privacy_property, renyi_threshold(claim, self._alpha))

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on D_alpha(law 1 || law 2); `details` holds "upper_bound" (theorem
        B.2) when `largest_log_ratio` is known, finite only with `absolutely_continuous`.

        The upper bound is one-sided at the same failure probability, by itself: lower and upper
        bound hold together with twice of it.

        Args:
          samples1: shape (n1,) or (n1, d), n1 >= 2, the numerator law.
          samples2: shape (n2,) or (n2, d), n2 >= 2, the law that the mean is taken under.
          failure_probability: one-sided, in (0, 1).

        Raises:
          ValueError: malformed samples; a log ratio that is NaN, of another shape, does not treat
            rows one by one, or is infinite where the samples cannot be in any order that is
            allowed.
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        log_ratio = RowByRow(
            "log_ratio", self._config.log_ratio, np.concatenate([first, second]), finite=False
        )
        log_ratios = log_ratio(second)
        self._check_absolute_continuity(log_ratio, first)
        possible = self._possible(log_ratios)
        sides = [self._bound(ratios, beta) for ratios in possible]
        largest = self._config.largest_log_ratio
        details: dict[str, Any] = {
            "bound_method": self._config.bound_method,
            "largest_log_ratio": largest,
            "largest_log_ratio_seen": max(float(ratios.max()) for ratios in possible),
            "either_order": self._config.either_order,
        }
        if largest is not None:
            details["upper_bound"] = max(side.upper_bound for side in sides)
        lower_bound = min(side.lower_bound for side in sides)
        method = (
            "known log ratio, bounded loss (theorem B.3)"
            if self._config.bound_method == "bounded"
            else "known log ratio, Markov (theorem 3.1)"
        )
        return BoundResult(
            lower_bound=lower_bound,
            point_estimate=min(side.point_estimate for side in sides),
            claimed_limit=self._claimed_limit,
            refuted=lower_bound > self._claimed_limit,
            failure_probability=beta,
            method=method,
            alpha=self._alpha,
            num_fit=(0, 0),
            num_certify=(0, len(second)),
            seed=self._config.seed,
            critic_range=None if largest is None else (-math.inf, float(largest)),
            details=MappingProxyType(details),
        )

    def _bound(self, log_ratios: NDArray[np.float64], beta: float) -> _Side:
        alpha, largest = self._alpha, self._config.largest_log_ratio
        upper_bound = math.inf
        if largest is not None:
            upper_bound = bounded_loss_upper_bound(
                alpha,
                log_ratios,
                largest,
                beta,
                absolutely_continuous=self._config.absolutely_continuous,
            )
        if self._config.bound_method == "bounded" and largest is not None:
            lower_bound = bounded_loss_lower_bound(alpha, log_ratios, largest, beta)
        else:
            lower_bound = markov_lower_bound(alpha, log_ratios, beta)
        point_estimate = max(0.0, empirical_renyi_divergence(alpha, log_ratios))
        return _Side(lower_bound, point_estimate, upper_bound)

    def _check_absolute_continuity(self, log_ratio: RowByRow, first: NDArray[np.float64]) -> None:
        config = self._config
        if not config.absolutely_continuous or config.largest_log_ratio is None:
            return
        seen = log_ratio(first)
        seen = np.abs(seen) if config.either_order else seen
        above = ~(seen <= config.largest_log_ratio + 1e-9 * max(1.0, config.largest_log_ratio))
        if above.any():
            raise ValueError(
                "absolutely_continuous must be False, or largest_log_ratio larger: log_ratio is up"
                f" to {float(seen.max()):g} at {int(above.sum())} of {seen.size} samples of law 1,"
                f" largest_log_ratio is {config.largest_log_ratio:g}"
            )

    def _possible(self, log_ratios: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Returns the log ratios of the orders in which law 2 can have given these samples."""
        if np.isnan(log_ratios).any():
            raise ValueError(
                f"log_ratio must not be NaN, got {int(np.isnan(log_ratios).sum())} of"
                f" {len(log_ratios)}"
            )
        check_log_ratio_size("log_ratio", log_ratios)
        orders = [log_ratios, -log_ratios] if self._config.either_order else [log_ratios]
        possible = [ratios for ratios in orders if not (ratios == math.inf).any()]
        if not possible:
            raise ValueError(
                "log_ratio must not be +inf at a sample of law 2, which would have no mass there,"
                f" got {int(np.isinf(log_ratios).sum())} infinite values"
                + (" of both signs" if self._config.either_order else "")
            )
        return possible
