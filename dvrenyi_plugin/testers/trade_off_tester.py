"""Tester on the trade-off e-process: the whole claim at once, in the claim's own unit."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, OneOf, Seed
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP, TradeOffEProcess
from dvrenyi_plugin.critics.fitters import FITTER_NAMES
from dvrenyi_plugin.interfaces import claim_level, read_claim
from dvrenyi_plugin.privacy.claim_families import family_of
from dvrenyi_plugin.privacy.trade_off_claims import CURVE_DIRECTIONS
from dvrenyi_plugin.testers.eprocess_tester import EProcessTester


@dataclasses.dataclass(frozen=True)
class TradeOffPropertyTesterConfig(CheckedSettings):
    """Configuration of `TradeOffPropertyTester`.

    Attributes:
      privacy_property: what is tested, of any kind; a PrivacyProperty of this package or of
        DP-Auditorium.
      log_ratio: estimator of the log density ratio: "auto" for polynomials, splines, monotone and
        step functions (one dimension) or linear and quadratic functions (more), whichever the past
        prefers; "network" for a small neural network.
      warm_up: pairs before the first bet, >= 2; None for about 2.2 sqrt(pairs), and 16 in `start`.
      seed: of the order in which samples are taken, and of the network, >= 0.
      direction: "remove" where it is known that `samples1` are of the dataset with the record,
        "add" where they are of the one without it; "both" tests what holds either way. Only the
        curve of subsampled Gaussian DP depends on it.
    """

    privacy_property: Any
    log_ratio: Annotated[str, OneOf(FITTER_NAMES)] = "auto"
    warm_up: Annotated[int, Int(at_least=2)] | None = None
    seed: Seed = 0
    direction: Annotated[str, OneOf(CURVE_DIRECTIONS)] = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        # Says what is beyond the range of floats.
        family_of(claim, self.direction).curve(claim_level(claim))


class TradeOffPropertyTester(EProcessTester[TradeOffEProcess]):
    """Property tester; see `PropertyTester` of `dvrenyi_plugin.interfaces`.

    The bound is a number of the claim's own kind: mu for Gaussian DP, epsilon for pure DP and for
    (epsilon, delta)-DP at the claimed delta, epsilon at the claimed order for Rényi DP, rho for
    zCDP, 1 / noise multiplier for subsampled Gaussian DP, the width for bounded range. It is the
    least of such claims that the samples do not refute, judged by events alone. So for Rényi DP and
    zCDP it may stay below what `SequentialRenyiPropertyTester` certifies, since events see only a
    part of a divergence; for zCDP and subsampled Gaussian DP it is either 0 or a hair above the
    claim, for want of a family that is fast enough.

    Every one of these claims speaks of both orders of two neighbouring datasets: its curve is
    symmetric, or is the other order's inverse. One order of the samples tests it, with the whole
    failure probability.

    The point estimate is the least parameter that the fitted log ratio's own laws keep, NaN for
    zCDP and subsampled Gaussian DP. Nothing is carried from one audit to the next: the same samples
    give the same bound. For samples that are still arriving, `start` returns a process to update.

    Args:
      config: what to test and how.

    Source: `dvrenyi_plugin.bounds.trade_off_factor` (factor and proof), Ville's inequality.
    """

    _METHOD = "trade-off e-process"
    _STREAM_WARM_UP = TRADE_OFF_WARM_UP
    one_order_tests_both = True

    def __init__(self, config: TradeOffPropertyTesterConfig) -> None:
        claim = read_claim(config.privacy_property)
        self._family = family_of(claim, config.direction)
        super().__init__(config, (claim_level(claim),))

    def _new_process(self, index: int, beta: float, warm_up: int) -> TradeOffEProcess:
        return TradeOffEProcess(
            self._family,
            beta,
            claims=(self._claimed_limits[index],),
            fit=self._fitter(),
            warm_up=warm_up,
        )

    def _point_estimate(self, process: TradeOffEProcess) -> float:
        # A family of one claim has no other member to estimate.
        return process.point_estimate() if self._family.grid.size > 1 else math.nan

    def _details(self) -> dict[str, Any]:
        return {
            "family": self._family.name,
            "parameter": self._family.parameter,
            "claim_alone": self._family.grid.size == 1,
            "one_order_tests_both": self.one_order_tests_both,
        }
