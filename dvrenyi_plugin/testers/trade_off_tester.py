"""Tester on the trade-off e-process: the whole claim at once, in the claim's own unit."""

from __future__ import annotations

import dataclasses
import functools
import math
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Seed
from dvrenyi_plugin._internal.streams import streams_of
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.eprocess import sample_size_warm_up
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP, TradeOffEProcess
from dvrenyi_plugin.critics.named_fitters import FITTER_NAMES, named_fitter
from dvrenyi_plugin.interfaces import claim_level, read_claim
from dvrenyi_plugin.privacy.claim_families import family_of
from dvrenyi_plugin.testers.bound_result import BoundResult
from dvrenyi_plugin.testers.bound_tester import BoundTester, fewest_samples


@dataclasses.dataclass(frozen=True)
class TradeOffPropertyTesterConfig(CheckedSettings):
    """Configuration of `TradeOffPropertyTester`.

    Attributes:
      privacy_property: what is tested, of any kind; a PrivacyProperty of this package or of
        DP-Auditorium.
      critic: estimator of the log density ratio: "auto" for polynomials, splines, monotone and step
        functions (one dimension) or linear and quadratic functions (more), whichever the past
        prefers; "network" for a small neural network.
      warm_up: pairs before the first bet, >= 2; None for about 2.2 sqrt(pairs), and 16 in `start`.
      seed: of the order in which samples are taken, and of the network, >= 0.
    """

    privacy_property: Any
    critic: Annotated[str, OneOf(FITTER_NAMES)] = "auto"
    warm_up: Annotated[int, Int(at_least=2)] | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        family_of(claim).curve(claim_level(claim))  # says what is beyond the range of floats


class TradeOffPropertyTester(BoundTester):
    """Property tester; see `PropertyTester` of `dvrenyi_plugin.interfaces`.

    The bound is a number of the claim's own kind: mu for Gaussian DP, epsilon for pure DP and for
    (epsilon, delta)-DP at the claimed delta, epsilon at the claimed order for Rényi DP, rho for
    zCDP. It is the least of such claims that the samples do not refute, judged by events alone. So
    for Rényi DP and zCDP it may stay below what `SequentialRenyiPropertyTester` certifies, since
    events see only a part of a divergence; for zCDP it is either 0 or a hair above the claim, for
    want of a family that is fast enough.

    Every one of these claims speaks of both orders of two neighbouring datasets, and its curve is
    symmetric: one order of the samples tests it, with the whole failure probability.

    Nothing is carried from one audit to the next: the same samples give the same bound. For samples
    that are still arriving, `start` returns a process to update.

    Args:
      config: what to test and how.
    """

    def __init__(self, config: TradeOffPropertyTesterConfig) -> None:
        self._config = config
        claim = read_claim(config.privacy_property)
        self._family = family_of(claim)
        super().__init__(config.privacy_property, claim_level(claim))
        self._order_stream, self._critic_stream = streams_of("tester", config.seed, 2)

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on the family's parameter, with what decided it.

        With probability at least 1 - `failure_probability` no smaller parameter is kept by the two
        laws, for any mechanism and any sample size. The samples must be independent draws; they are
        taken in a random order of the configured seed. The point estimate is the least parameter
        that the fitted log ratio's own laws keep.

        Args:
          samples1: independent outputs on the first dataset, shape (n,) or (n, d).
          samples2: independent outputs on the second dataset, shape (m,) or (m, d); m may differ
            from n.
          failure_probability: one-sided, in (0, 1), for this one statement.

        Raises:
          ValueError: malformed samples, fewer than 2 a side, or a failure probability outside (0,
            1).

        Source: `dvrenyi_plugin.bounds.trade_off_factor` (factor and proof), Ville's inequality.
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        rng = np.random.default_rng(self._order_stream)
        first, second = rng.permutation(first), rng.permutation(second)
        pairs = min(len(first), len(second))
        warm_up = self._warm_up(pairs)
        process = self._new_process(beta, warm_up)
        process.update(first, second)
        bound = process.lower_bound
        certify1, certify2 = process.num_certifying
        return BoundResult(
            lower_bound=bound,
            # A family of one claim has no other member to estimate.
            point_estimate=process.point_estimate() if self._family.grid.size > 1 else math.nan,
            threshold=self._limit,
            refuted=bound > self._limit,
            failure_probability=beta,
            method="trade-off e-process",
            alpha=None,
            num_fit=(len(first) - certify1, len(second) - certify2),
            num_certify=(certify1, certify2),
            seed=self._config.seed,
            fewest_samples=fewest_samples(functools.partial(self._can_refute, beta), pairs),
            details=MappingProxyType(
                {
                    "family": self._family.name,
                    "parameter": self._family.parameter,
                    "one_order_tests_both": True,
                    "warm_up_pairs": warm_up,
                    "log_ratio_family": process.log_ratio_family,
                    "log_e_value_of_claim": process.log_e_value(self._limit),
                }
            ),
        )

    def start(self, failure_probability: float) -> TradeOffEProcess:
        """Returns a process for samples that arrive in batches; stop whenever its lower bound says
        enough.

        The claim is refuted, at any time, when `lower_bound` exceeds it. Samples are taken as they
        come.

        Args:
          failure_probability: one-sided, in (0, 1), over all times at once.
        """
        return self._new_process(
            check_failure_probability(failure_probability),
            self._config.warm_up or TRADE_OFF_WARM_UP,
        )

    def _warm_up(self, pairs: int) -> int:
        return self._config.warm_up or sample_size_warm_up(pairs)

    def _new_process(self, beta: float, warm_up: int) -> TradeOffEProcess:
        return TradeOffEProcess(
            self._family,
            beta,
            claims=(self._limit,),
            fit=named_fitter(self._config.critic, self._critic_stream),
            warm_up=warm_up,
        )

    def _can_refute(self, beta: float, pairs: int) -> bool:
        return self._new_process(beta, self._warm_up(pairs)).can_reject(self._limit, pairs)
