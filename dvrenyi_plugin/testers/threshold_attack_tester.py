"""Refutes privacy claims with a 0/1 attack whose threshold is chosen on held-out samples."""

from __future__ import annotations

import dataclasses
import functools
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dvrenyi_plugin._internal.limits import CheckedSettings, Fraction, Orders, Seed
from dvrenyi_plugin._internal.streams import streams_of
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_orders,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.event_probabilities import (
    EventBounds,
    epsilon_from_rates,
    gaussian_dp_mu_from_rates,
    renyi_from_rates,
)
from dvrenyi_plugin.critics.sample_split import part_size, split_samples
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    BoundedRangeDp,
    GaussianDp,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    claim_level,
    read_claim,
)
from dvrenyi_plugin.testers.base import BoundResult, BoundTester, fewest_samples
from dvrenyi_plugin.testers.threshold_rules import (
    LinearScore,
    count_at_every_threshold,
    fit_linear_score,
)

ATTACK_ORDERS = (1.01, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0)


@dataclasses.dataclass(frozen=True)
class ThresholdAttackTesterConfig(CheckedSettings):
    """Settings of `ThresholdAttackTester`.

    Attributes:
      privacy_property: the claim, ours or DP-Auditorium's: Rényi, pure, (epsilon, delta), Gaussian
        or zero-concentrated DP.
      seed: of the split into fitting and certifying samples, an integer >= 0.
      fit_fraction: part of each sample used to choose score, sign and threshold, in (0, 1).
      orders: Rényi orders reported beside the tested quantity and tried for a zero-concentrated
        claim, each > 1.
      delta: at which an epsilon is reported when the claim itself has no delta, in (0, 1).
    """

    privacy_property: Any
    seed: Seed = 0
    fit_fraction: Fraction = 0.2
    orders: Orders = ATTACK_ORDERS
    delta: Fraction = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        if isinstance(claim, SubsampledGaussianDp | BoundedRangeDp):
            raise ValueError(
                "privacy_property must be a claim that this attack bounds (any but"
                f" subsampled_gaussian_dp and bounded_range_dp), got {claim}"
            )
        if not self.orders:
            raise ValueError("orders must hold at least one order > 1, got none")


@dataclasses.dataclass(frozen=True)
class _Rule:
    """ "sign * score >= score_threshold" says law 1."""

    sign: int
    score_threshold: float
    score: LinearScore | None


class ThresholdAttackTester(BoundTester):
    """A tester with DP-Auditorium's interface, built on one 0/1 rule and two binomial bounds.

    A seeded random part of the samples chooses the rule "score >= threshold": the score is the
    observation or its negative when observations are scalar, and a fitted linear log ratio
    otherwise; the threshold is whichever distinct score promises the largest bound. The rest of the
    samples counts how often the rule fires under each law. Joint Clopper-Pearson bounds on the two
    rates then bound the claim's own quantity from below, with no assumption on the laws. samples1
    is the law that the rule should flag, the numerator.

    The tested quantity, which `estimate_lower_bound` returns and `reject_property` compares with
    the claim:

    - Rényi DP (alpha, epsilon): D_alpha(law 1 || law 2), against epsilon.
    - zero-concentrated DP: the largest D_alpha / alpha over `orders`, against rho. One confidence
      rectangle covers all orders jointly: nothing is divided, and the best order is reported.
    - Gaussian DP: Phi^-1(tpr) - Phi^-1(fpr), against mu.
    - (epsilon, delta)-DP: the refuted epsilon at the claim's delta, against epsilon. Pure DP: the
      same at delta 0. These two bound the claim in both directions, since an event's complement
      speaks of law 2 over law 1. DP-Auditorium's hockey-stick tester compares deltas instead; that
      delta is in the details.
    """

    def __init__(self, config: ThresholdAttackTesterConfig) -> None:
        self._config = config
        self._claim = read_claim(config.privacy_property)
        self._orders = check_orders(config.orders)
        super().__init__(config.privacy_property, claim_level(self._claim))

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on the tested quantity with the rule, its counts and rates, and
        every other bound they imply.

        `details` holds "true_positives", "false_positives", the realised and the bounded rates,
        "score_threshold", "sign", "candidate_thresholds", and, all holding jointly with the bound
        itself: "renyi_lower_bounds" by order, "gaussian_dp_mu_lower_bound",
        "pure_dp_epsilon_lower_bound", "epsilon_lower_bound" at "delta", and, for an (epsilon,
        delta) claim, "hockey_stick_lower_bound".
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        streams = streams_of("tester", self._config.seed, 2)
        fit1, certify1 = split_samples(first, self._config.fit_fraction, streams[0])
        fit2, certify2 = split_samples(second, self._config.fit_fraction, streams[1])
        rule, num_candidates = self._choose_rule(fit1, fit2, beta)
        bounds = EventBounds(
            true_positives=_times_flagged(rule, certify1),
            num_samples1=len(certify1),
            false_positives=_times_flagged(rule, certify2),
            num_samples2=len(certify2),
            failure_probability=beta,
        )
        corner = (bounds.true_positive_rate_lower, bounds.false_positive_rate_upper)
        lower_bound = float(self._quantity(*corner))
        both = isinstance(self._claim, (PureDp, ApproximateDp))
        return BoundResult(
            lower_bound=lower_bound,
            point_estimate=float(
                self._quantity(bounds.true_positive_rate, bounds.false_positive_rate)
            ),
            claimed_limit=self._claimed_limit,
            refuted=lower_bound > self._claimed_limit,
            failure_probability=beta,
            method="0/1 attack, held-out threshold, joint Clopper-Pearson",
            alpha=self._order(*corner),
            num_fit=(len(fit1), len(fit2)),
            num_certify=(len(certify1), len(certify2)),
            seed=self._config.seed,
            fewest_samples=fewest_samples(
                functools.partial(self._can_refute, beta), max(len(first), len(second))
            ),
            direction="both" if both else "samples1 over samples2",
            details=self._details(bounds, rule, num_candidates),
        )

    def _can_refute(self, beta: float, count: int) -> bool:
        """Whether a rule that never errs on `count` samples of each law refutes the claim."""
        certify = count - part_size(count, self._config.fit_fraction)
        best = EventBounds(certify, certify, 0, certify, beta)
        bound = self._quantity(best.true_positive_rate_lower, best.false_positive_rate_upper)
        return bool(bound > self._claimed_limit)

    def _details(
        self, bounds: EventBounds, rule: _Rule, num_candidates: int
    ) -> MappingProxyType[str, Any]:
        claim = self._claim
        delta = claim.delta if isinstance(claim, ApproximateDp) else self._config.delta
        orders = self._orders
        if isinstance(claim, RenyiDp):
            orders = (claim.alpha, *orders)
        details: dict[str, Any] = {
            "true_positives": bounds.true_positives,
            "false_positives": bounds.false_positives,
            "true_positive_rate": bounds.true_positive_rate,
            "false_positive_rate": bounds.false_positive_rate,
            "true_positive_rate_lower": bounds.true_positive_rate_lower,
            "false_positive_rate_upper": bounds.false_positive_rate_upper,
            "score": "observation" if rule.score is None else "linear log ratio",
            "sign": rule.sign,
            "score_threshold": rule.score_threshold,
            "candidate_thresholds": num_candidates,
            "orders": "covered jointly by one confidence rectangle, nothing divided",
            "renyi_lower_bounds": {
                order: bounds.renyi_lower_bound(order) for order in sorted(set(orders))
            },
            "gaussian_dp_mu_lower_bound": bounds.gaussian_dp_mu_lower_bound(),
            "pure_dp_epsilon_lower_bound": bounds.epsilon_lower_bound(0.0),
            "delta": delta,
            "epsilon_lower_bound": bounds.epsilon_lower_bound(delta),
        }
        if isinstance(claim, ApproximateDp):
            details["hockey_stick_lower_bound"] = bounds.hockey_stick_lower_bound(claim.epsilon)
        return MappingProxyType(details)

    def _choose_rule(
        self, fit1: NDArray[np.float64], fit2: NDArray[np.float64], beta: float
    ) -> tuple[_Rule, int]:
        if fit1.shape[1] == 1:
            score: LinearScore | None = None
            signs: tuple[int, ...] = (1, -1)
            scores1, scores2 = fit1[:, 0], fit2[:, 0]
        else:
            score = fit_linear_score(fit1, fit2)
            signs = (1,)
            scores1, scores2 = score(fit1), score(fit2)
        z = float(-ndtri(beta / 2.0))
        best, best_rule, num_candidates = (-1.0, -2.0), _Rule(1, 0.0, score), 0
        for sign in signs:
            counts = count_at_every_threshold(sign * scores1, sign * scores2)
            rate1 = counts.true_positives / scores1.size
            rate2 = counts.false_positives / scores2.size
            promised = self._quantity(
                _wilson_bound(rate1, scores1.size, -z), _wilson_bound(rate2, scores2.size, z)
            )
            # Where no rule promises anything, the one that separates best is still the best guess.
            index = int(np.lexsort((rate1 - rate2, promised))[-1])
            value = (float(promised[index]), float(rate1[index] - rate2[index]))
            num_candidates += counts.thresholds.size
            if value > best:
                best, best_rule = value, _Rule(sign, float(counts.thresholds[index]), score)
        return best_rule, num_candidates

    def _quantity(
        self, true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
    ) -> NDArray[np.float64]:
        match self._claim:
            case RenyiDp(alpha=alpha):
                return renyi_from_rates(alpha, true_positive_rate, false_positive_rate)
            case ZeroConcentratedDp():
                curve = self._scaled_renyi_curve(true_positive_rate, false_positive_rate)
                return np.asarray(curve.max(axis=0))
            case GaussianDp():
                return gaussian_dp_mu_from_rates(true_positive_rate, false_positive_rate)
            case PureDp():
                return epsilon_from_rates(true_positive_rate, false_positive_rate, 0.0)
            case ApproximateDp(delta=delta):
                return epsilon_from_rates(true_positive_rate, false_positive_rate, delta)
        raise AssertionError(f"the config must refuse {self._claim}")

    def _scaled_renyi_curve(
        self, true_positive_rate: ArrayLike, false_positive_rate: ArrayLike
    ) -> NDArray[np.float64]:
        return np.stack(
            [
                renyi_from_rates(order, true_positive_rate, false_positive_rate) / order
                for order in self._orders
            ]
        )

    def _order(self, true_positive_rate: float, false_positive_rate: float) -> float | None:
        match self._claim:
            case RenyiDp(alpha=alpha):
                return alpha
            case ZeroConcentratedDp():
                curve = self._scaled_renyi_curve(true_positive_rate, false_positive_rate)
                return float(self._orders[int(curve.argmax())])
            case _:
                return None


def _times_flagged(rule: _Rule, samples: NDArray[np.float64]) -> int:
    scores = samples[:, 0] if rule.score is None else rule.score(samples)
    return int(np.count_nonzero(rule.sign * scores >= rule.score_threshold))


def _wilson_bound(rates: NDArray[np.float64], count: int, z: float) -> NDArray[np.float64]:
    """Approximate bounds, for choosing among thresholds only: the certificate is exact."""
    centre = rates + z * z / (2.0 * count)
    spread = np.sqrt(rates * (1.0 - rates) / count + z * z / (4.0 * count * count))
    return np.clip((centre + z * spread) / (1.0 + z * z / count), 0.0, 1.0)
