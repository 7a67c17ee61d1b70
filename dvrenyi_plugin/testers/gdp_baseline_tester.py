"""The published black-box baseline: a Gaussian-DP bound maximised over thresholds."""

from __future__ import annotations

import dataclasses
import functools
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Fraction, OneOf, Seed, Switch
from dvrenyi_plugin._internal.streams import streams_of
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_real,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.bounded_means import (
    clopper_pearson_lower_bound,
    clopper_pearson_upper_bound,
)
from dvrenyi_plugin.bounds.event_probabilities import EventBounds, gaussian_dp_mu_from_rates
from dvrenyi_plugin.critics.sample_split import split_samples
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    BoundedRangeDp,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    claim_level,
    read_claim,
)
from dvrenyi_plugin.privacy.conversions import gaussian_dp_epsilon
from dvrenyi_plugin.privacy.divergences import renyi_gaussian_dp
from dvrenyi_plugin.testers.base import BoundResult, BoundTester
from dvrenyi_plugin.testers.threshold_rules import (
    ScoreFunction,
    count_at_every_threshold,
    fit_linear_score,
)

_SIGNS = {"either": (1, -1), "observation": (1,), "negative_observation": (-1,)}


@dataclasses.dataclass(frozen=True)
class GdpBaselineTesterConfig(CheckedSettings):
    """Settings of `GdpBaselineTester`.

    Attributes:
      privacy_property: the claim, ours or DP-Auditorium's: Rényi, (epsilon, delta), Gaussian or
        zero-concentrated DP. Pure DP is refused: no Gaussian trade-off satisfies any.
      score: "negative_observation", the authors' (samples1 are losses of models trained with the
        canary, which are the lower ones), "observation", or "either", the better of the two on the
        data. Ignored for observations of several columns, whose score is a fitted linear log ratio.
      held_out_threshold: False, the authors' way, reads the bound at its best threshold on the very
        samples that chose it, with Clopper-Pearson at the failure probability for each rate: *not
        valid*. True chooses score and threshold on a seeded part and gives each rate on the rest
        half of the failure probability.
      fit_fraction: that part of each sample, in (0, 1).
      delta: at which an epsilon is reported when the claim itself has no delta, in (0, 1).
      seed: of the split, an integer >= 0.
    """

    privacy_property: Any
    score: Annotated[str, OneOf(tuple(_SIGNS))] = "either"
    held_out_threshold: Switch = False
    fit_fraction: Fraction = 0.2
    delta: Fraction = 1e-5
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        refused = {
            PureDp: "pure_dp",
            SubsampledGaussianDp: "subsampled_gaussian_dp",
            BoundedRangeDp: "bounded_range_dp",
        }
        if type(claim) in refused:
            raise ValueError(
                "privacy_property must be renyi_dp, approximate_dp, gaussian_dp or"
                f" zero_concentrated_dp, got {refused[type(claim)]} ({claim}), whose trade-off is"
                " not Gaussian"
            )
        if isinstance(claim, ApproximateDp):
            check_real("privacy_property.approximate_dp.delta", claim.delta, above=0.0, at_most=1.0)


@dataclasses.dataclass(frozen=True)
class _BestThreshold:
    """The rule "sign * score >= score_threshold" with the largest mu, and the counts that
    its bound is read off."""

    mu: float
    sign: int
    score_threshold: float
    true_positives: int
    false_positives: int
    num_candidates: int


class GdpBaselineTester(BoundTester):
    """The baseline that auditors of DP-SGD compare with, computed as its authors compute it.

    At every threshold, Clopper-Pearson upper bounds on the false-positive and false-negative rate,
    each at the failure probability, give mu_low = Phi^-1(1 - fpr_upper) - Phi^-1(fnr_upper); the
    largest over thresholds, never below 0, is converted to the claim's scale as if the mechanism
    were exactly mu_low-Gaussian DP.

    Two things make it less than a lower bound, and the result says so. The threshold is chosen on
    the samples that certify it, so the stated failure probability is exceeded: with several
    columns, whose score is fitted on these samples as well, nearly always once there are many
    (docs/bounds.md). And the conversion *assumes a Gaussian trade-off*: it holds for full-batch
    DP-SGD and can be arbitrarily wrong elsewhere. `held_out_threshold=True` mends the first; the
    second remains for every claim but Gaussian DP itself, which a mu_low then refutes without
    assumption.

    The tested quantity is alpha mu_low^2 / 2 for a Rényi claim, mu_low^2 / 2 for a
    zero-concentrated one, mu_low for a Gaussian one, and the epsilon of mu_low-Gaussian DP at the
    claim's delta for an (epsilon, delta) claim.

    Source: Annamalai and De Cristofaro (2024), "Nearly tight black-box auditing of differentially
    private machine learning"; Nasr et al. (2023), "Tight auditing of differentially private machine
    learning".
    """

    def __init__(self, config: GdpBaselineTesterConfig) -> None:
        self._config = config
        self._claim = read_claim(config.privacy_property)
        super().__init__(config.privacy_property, claim_level(self._claim))

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns the value with mu_low, the threshold that gave it, its counts and the assumptions
        made.

        A lower confidence bound only under the assumptions in the class docstring.

        Args:
          samples1: shape (n1,) or (n1, d), n1 >= 2, the law that the rule should flag.
          samples2: shape (n2,) or (n2, d), n2 >= 2.
          failure_probability: in (0, 1), one-sided, for each of the two rates; for both together
            with `held_out_threshold`.
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        held_out = self._config.held_out_threshold
        if held_out:
            streams = streams_of("tester", self._config.seed, 2)
            fit1, certify1 = split_samples(first, self._config.fit_fraction, streams[0])
            fit2, certify2 = split_samples(second, self._config.fit_fraction, streams[1])
        else:
            fit1, fit2, certify1, certify2 = first, second, first, second
        score = fit_linear_score(fit1, fit2) if first.shape[1] > 1 else _first_column
        signs = _SIGNS[self._config.score] if first.shape[1] == 1 else (1,)
        rate_bounds = _rate_bounds(len(fit1), len(fit2), beta)
        best = max(
            (
                _best_threshold(sign, sign * score(fit1), sign * score(fit2), rate_bounds)
                for sign in signs
            ),
            key=lambda candidate: candidate.mu,
        )
        if held_out:
            best = _certified(score, best, certify1, certify2, beta)
        return self._result(best, (fit1, fit2), (certify1, certify2), beta)

    def _result(
        self,
        best: _BestThreshold,
        fit: tuple[NDArray[np.float64], NDArray[np.float64]],
        certify: tuple[NDArray[np.float64], NDArray[np.float64]],
        beta: float,
    ) -> BoundResult:
        config, claim = self._config, self._claim
        how = "threshold held out" if config.held_out_threshold else "threshold not held out"
        rates = best.true_positives / len(certify[0]), best.false_positives / len(certify[1])
        delta = claim.delta if isinstance(claim, ApproximateDp) else config.delta
        mu, lower_bound = best.mu, self._on_claim_scale(best.mu)
        details = {
            "assumptions": f"assumes Gaussian trade-off; {how}",
            "gaussian_dp_mu": mu,
            "delta": delta,
            "epsilon_if_gaussian": mu if mu == np.inf else gaussian_dp_epsilon(mu, delta),
            "true_positives": best.true_positives,
            "false_positives": best.false_positives,
            "true_positive_rate": rates[0],
            "false_positive_rate": rates[1],
            "score": config.score if certify[0].shape[1] == 1 else "linear log ratio",
            "sign": best.sign,
            "score_threshold": best.score_threshold,
            "candidate_thresholds": best.num_candidates,
        }
        return BoundResult(
            lower_bound=lower_bound,
            point_estimate=self._on_claim_scale(float(gaussian_dp_mu_from_rates(*rates))),
            claimed_limit=self._claimed_limit,
            refuted=lower_bound > self._claimed_limit,
            failure_probability=beta,
            method=f"GDP baseline (assumes Gaussian trade-off; {how})",
            alpha=claim.alpha if isinstance(claim, RenyiDp) else None,
            num_fit=(len(fit[0]), len(fit[1])),
            num_certify=(len(certify[0]), len(certify[1])),
            seed=config.seed,
            details=MappingProxyType(details),
        )

    def _on_claim_scale(self, mu: float) -> float:
        if mu == np.inf:
            return mu
        match self._claim:
            case RenyiDp(alpha=alpha):
                return renyi_gaussian_dp(alpha, mu)
            case ZeroConcentratedDp():
                return mu * mu / 2.0
            case ApproximateDp(delta=delta):
                return gaussian_dp_epsilon(mu, delta)
            case _:
                return mu


@functools.lru_cache(maxsize=8)  # one audit after another has the same counts and level
def _rate_bounds(
    num_samples1: int, num_samples2: int, beta: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Clopper-Pearson bounds, each at `beta`, for every count a threshold can have: lower ones on
    the true-positive rate, shape (num_samples1 + 1,), upper ones on the false-positive rate."""
    lower = [clopper_pearson_lower_bound(k, num_samples1, beta) for k in range(num_samples1 + 1)]
    upper = [clopper_pearson_upper_bound(k, num_samples2, beta) for k in range(num_samples2 + 1)]
    bounds = np.array(lower), np.array(upper)
    for array in bounds:
        array.setflags(write=False)
    return bounds


def _best_threshold(
    sign: int,
    scores1: NDArray[np.float64],
    scores2: NDArray[np.float64],
    rate_bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> _BestThreshold:
    counts = count_at_every_threshold(scores1, scores2)
    mu = gaussian_dp_mu_from_rates(
        rate_bounds[0][counts.true_positives], rate_bounds[1][counts.false_positives]
    )
    best = int(np.argmax(mu))
    return _BestThreshold(
        mu=float(mu[best]),
        sign=sign,
        score_threshold=float(counts.thresholds[best]),
        true_positives=int(counts.true_positives[best]),
        false_positives=int(counts.false_positives[best]),
        num_candidates=int(counts.thresholds.size),
    )


def _certified(
    score: ScoreFunction,
    best: _BestThreshold,
    samples1: NDArray[np.float64],
    samples2: NDArray[np.float64],
    beta: float,
) -> _BestThreshold:
    """Returns the rule with its counts and its bound on samples that did not choose it."""
    true_positives, false_positives = (
        int(np.count_nonzero(best.sign * score(samples) >= best.score_threshold))
        for samples in (samples1, samples2)
    )
    bounds = EventBounds(true_positives, len(samples1), false_positives, len(samples2), beta)
    return dataclasses.replace(
        best,
        mu=bounds.gaussian_dp_mu_lower_bound(),
        true_positives=true_positives,
        false_positives=false_positives,
    )


def _first_column(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return samples[:, 0]
