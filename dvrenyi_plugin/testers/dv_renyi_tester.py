"""Neural Donsker-Varadhan tester: fit a critic on one part of the samples, certify on the rest.

For a critic T that was chosen without looking at the certifying samples, V(T) <= D_alpha(law 1 ||
law 2) whatever the mechanism is, so a lower confidence bound on V(T) is one on the divergence.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    Fraction,
    OneOf,
    Order,
    Real,
    Seed,
    Widths,
)
from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin._internal.streams import seed_of, streams_of
from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_sample_pair,
)
from dvrenyi_plugin.bounds.bounded_means import betting_lower_bound, betting_upper_bound
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.information_limit import largest_rate
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.critics.critic_training import MIN_SAMPLES, DvRenyiEstimatorConfig
from dvrenyi_plugin.critics.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.critics.neural_estimator import DvRenyiEstimator
from dvrenyi_plugin.critics.sample_split import part_size, split_samples
from dvrenyi_plugin.interfaces import (
    TrainingConfig,
    default_order,
    read_claim,
    read_training_config,
    renyi_threshold,
)
from dvrenyi_plugin.testers.base import NOTHING_CERTIFIED, BoundResult, BoundTester, fewest_samples

if TYPE_CHECKING:
    from torch import nn

_Array = NDArray[np.float64]
_Critic = Callable[[_Array], _Array]

_MIN_SAMPLES = 2 * MIN_SAMPLES
_RANGE_QUANTILES = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1)
_NUM_SCALES = 7
# Enough to choose a range by, and the search stays under a quarter of a second.
_MAX_VALUES_FOR_RANGE = 4000


@dataclasses.dataclass(frozen=True)
class DvRenyiPropertyTesterConfig(CheckedSettings):
    """Configuration of `DvRenyiPropertyTester`.

    Attributes:
      privacy_property: what is tested: Rényi DP, pure DP, Gaussian DP or zCDP; a PrivacyProperty of
        this package or of DP-Auditorium.
      training_config: how the critic is trained; a TrainingConfig of this package or of
        DP-Auditorium. Its `model_output_coordinate_bound`, when set, is the largest absolute critic
        value.
      alpha: Rényi order of the bound, > 1. None means the order of a Rényi DP claim, and 2 for any
        other. For a Rényi DP claim nothing but the claim's own order is accepted.
      seed: of the split and of the critic, >= 0.
      fit_fraction: part of each sample that fits the critic, in (0, 1); the rest certifies.
      bound_method: how the critic's fresh values become a bound. "eprocess": the growth-optimal
        e-process on them, the stronger. "betting": two one-sided betting bounds, each at half of
        the failure probability.
      hidden_sizes: widths of the hidden layers of the default critic, each >= 1.
      ema_rate: of the moving average that corrects the gradient's minibatch bias, in [0, 1).
      num_critics: critics that are trained on the same samples, each with a seed of its own, >= 1.
        The first one certifies; the point estimate is the mean of all, and the result's details
        hold each.
    """

    privacy_property: Any
    training_config: Any = dataclasses.field(default_factory=TrainingConfig)
    alpha: Order | None = None
    seed: Seed = 0
    fit_fraction: Fraction = 0.4
    bound_method: Annotated[str, OneOf(tuple(_BOUND_METHODS))] = "eprocess"
    hidden_sizes: Widths = (100, 100)
    ema_rate: Annotated[float, Real(at_least=0.0, below=1.0)] = 0.99
    num_critics: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        claim = read_claim(self.privacy_property)
        renyi_threshold(claim, default_order(claim) if self.alpha is None else self.alpha)
        read_training_config(self.training_config)


class DvRenyiPropertyTester(BoundTester):
    """Property tester with a neural critic; see `PropertyTester` of `dvrenyi_plugin.interfaces`.

    One object may be used for any number of audits: nothing is carried from one to the next, so the
    same samples give the same bound.

    Args:
      config: what to test and how.
      base_model: torch module from shape (n, d) to (n, 1) or (n,), used in place of the default
        network. It is copied, never changed: testers that are given one model do not interact. In
        evaluation mode it must treat its rows one by one: the bound holds for a fixed function of
        one sample. Dropout and batch normalisation with running statistics do; statistics of the
        batch, attention over rows and x.mean() do not, and every audit checks its samples' values
        for it, before training and after.

    Raises:
      ValueError: the property bounds no Rényi divergence ((epsilon, delta)-DP), or `base_model` is
        not a torch module.
    """

    def __init__(
        self, config: DvRenyiPropertyTesterConfig, base_model: nn.Module | None = None
    ) -> None:
        claim = read_claim(config.privacy_property)
        training = read_training_config(config.training_config)
        self._config = config
        self._alpha = default_order(claim) if config.alpha is None else float(config.alpha)
        super().__init__(config.privacy_property, renyi_threshold(claim, self._alpha))
        self._split_stream, *critic_streams = streams_of(
            "tester", config.seed, 1 + config.num_critics
        )
        settings = DvRenyiEstimatorConfig(
            alpha=self._alpha,
            epochs=training.training_epochs,
            batch_size=training.batch_size,
            learning_rate=training.optimizer_learning_rate,
            critic_bound=training.model_output_coordinate_bound,
            hidden_sizes=config.hidden_sizes,
            ema_rate=config.ema_rate,
        )
        self._estimator, *self._further_estimators = (
            DvRenyiEstimator(dataclasses.replace(settings, seed=seed_of(stream)), base_model)
            for stream in critic_streams
        )

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on D_alpha(law 1 || law 2), with what decided it.

        The bound exceeds the divergence with probability at most `failure_probability`, for any
        mechanism, critic and sample size. The samples must be independent draws. The point estimate
        is the critic's Donsker-Varadhan value on the certifying samples (the mean of all critics',
        if there are several), 0.0 if that is negative.

        Args:
          samples1: independent outputs on the first dataset, shape (n,) or (n, d).
          samples2: independent outputs on the second dataset, shape (m,) or (m, d); m may differ
            from n.
          failure_probability: one-sided, in (0, 1), for this one statement.

        Raises:
          ValueError: malformed samples, fewer than 8 a side, a failure probability outside (0, 1),
            or a base model that does not treat rows one by one.

        Source: Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi
        Differentially Private Machine Learning", definition 2.2, with one fixed critic on fresh
        samples in place of its uniform band over all critics (theorem 3.2); Waudby-Smith and Ramdas
        (2024) for the bounds on the two means.
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2, min_samples=_MIN_SAMPLES)
        rng = np.random.default_rng(self._split_stream)
        fit1, certify1 = split_samples(first, self._config.fit_fraction, rng, MIN_SAMPLES)
        fit2, certify2 = split_samples(second, self._config.fit_fraction, rng, MIN_SAMPLES)
        critic = self._fit_critic(fit1, fit2, np.concatenate([first, second]))
        critic_values = _CriticValues(
            critic(fit1), critic(fit2), critic(certify1), critic(certify2)
        )
        certificate = _BOUND_METHODS[self._config.bound_method](
            critic_values, self._alpha, beta, self._claimed_limit
        )
        values = [(critic_values.certify1, critic_values.certify2)]
        for estimator in self._further_estimators:
            other = estimator.estimate(fit1, fit2).critic
            values.append((other(certify1), other(certify2)))
        point_estimates = [donsker_varadhan_value(*pair, self._alpha) for pair in values]
        each = {"point_estimates": tuple(point_estimates)} if len(point_estimates) > 1 else {}
        return BoundResult(
            lower_bound=certificate.lower_bound,
            point_estimate=max(0.0, float(np.mean(point_estimates))),
            claimed_limit=self._claimed_limit,
            refuted=self.reject_property(certificate.lower_bound),
            failure_probability=beta,
            method=f"Donsker-Varadhan critic, {self._config.bound_method} certificate",
            alpha=self._alpha,
            num_fit=(len(fit1), len(fit2)),
            num_certify=(len(certify1), len(certify2)),
            critic_range=certificate.critic_range,
            fewest_samples=self._fewest_samples(beta, min(len(first), len(second))),
            seed=self._config.seed,
            details=MappingProxyType({**certificate.details, **each}),
        )

    def _fit_critic(self, fit1: _Array, fit2: _Array, everything: _Array) -> _Critic:
        critic = self._estimator.estimate(fit1, fit2).critic
        if self._estimator.has_base_model:
            # Again on the samples that certify: what holds on others need not hold on them.
            return RowByRow("base_model", critic, everything)
        return critic

    def _fewest_samples(self, beta: float, given: int) -> float | None:
        if self._config.bound_method != "eprocess":
            return None
        rate = largest_rate(self._alpha, self._claimed_limit)
        bets_needed = -math.log(beta) / rate if rate > 0.0 else math.inf

        def can_refute(count: int) -> bool:
            seen = max(STREAM_WARM_UP, part_size(count, self._config.fit_fraction, MIN_SAMPLES))
            return count - seen >= bets_needed

        return fewest_samples(can_refute, given)


@dataclasses.dataclass(frozen=True)
class _CriticValues:
    """Critic values, each of shape (count,): two samples that were seen before and two fresh
    ones."""

    fit1: NDArray[np.float64]
    fit2: NDArray[np.float64]
    certify1: NDArray[np.float64]
    certify2: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class _Certificate:
    lower_bound: float
    critic_range: tuple[float, float]
    details: dict[str, Any]


def _eprocess_certificate(
    values: _CriticValues, alpha: float, beta: float, threshold: float
) -> _Certificate:
    """The e-process on the critic's values: D_alpha of the values' laws is at most that of the
    samples' laws (data processing), whatever the critic is. The fitting values are its past, and
    are not bet on."""
    process = GrowthOptimalEProcess(alpha, beta, claims=(threshold,))
    process.add_history(values.fit1[:, np.newaxis], values.fit2[:, np.newaxis])
    process.update(values.certify1[:, np.newaxis], values.certify2[:, np.newaxis])
    everything = np.concatenate([values.fit1, values.fit2, values.certify1, values.certify2])
    return _Certificate(
        lower_bound=process.lower_bound,
        critic_range=(float(everything.min()), float(everything.max())),
        details={
            "log_ratio_family": process.log_ratio_family,
            "log_e_value_of_claim": process.log_e_value(threshold),
        },
    )


def _betting_certificate(
    values: _CriticValues, alpha: float, beta: float, _threshold: float
) -> _Certificate:
    """D >= alpha / (alpha - 1) log L_A - log U_B, L_A and U_B betting bounds on E_1[A] and E_2[B],
    each at beta / 2.

    A = e^{(alpha - 1)(T - high)} and B = e^{alpha (T - high)} for T in [low, high]: both in (0, 1],
    and `high` cancels, so nothing overflows at any order.
    """
    transform = _choose_transform(
        values.fit1, values.fit2, alpha, beta, len(values.certify1), len(values.certify2)
    )
    numerator_mean = betting_lower_bound(
        np.exp((alpha - 1.0) * transform.below_high(values.certify1)), beta / 2.0
    )
    denominator_mean = betting_upper_bound(
        np.exp(alpha * transform.below_high(values.certify2)), beta / 2.0
    )
    bound = NOTHING_CERTIFIED
    if numerator_mean > 0.0 and denominator_mean > 0.0:
        bound = alpha / (alpha - 1.0) * math.log(numerator_mean) - math.log(denominator_mean)
    return _Certificate(
        lower_bound=max(NOTHING_CERTIFIED, bound),
        critic_range=(transform.low, transform.high),
        details={
            "critic_scale": transform.scale,
            "numerator_mean_lower_bound": numerator_mean,
            "denominator_mean_upper_bound": denominator_mean,
            "failure_probability_of_each_mean": beta / 2.0,
        },
    )


_BOUND_METHODS: dict[str, Callable[[_CriticValues, float, float, float], _Certificate]] = {
    "betting": _betting_certificate,
    "eprocess": _eprocess_certificate,
}


@dataclasses.dataclass(frozen=True)
class _Transform:
    """T -> clip(scale T, low, high): still one fixed critic."""

    scale: float
    low: float
    high: float

    @classmethod
    def scaled(cls, scale: float, low: float, high: float) -> _Transform:
        """Returns the transform that clips T itself to [low, high] and then scales it."""
        return cls(scale, scale * low, scale * high)

    def below_high(self, critic_values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the transformed values minus `high`, all <= 0."""
        return np.clip(self.scale * critic_values, self.low, self.high) - self.high


def _choose_transform(
    fit1: NDArray[np.float64],
    fit2: NDArray[np.float64],
    alpha: float,
    beta: float,
    num_certify1: int,
    num_certify2: int,
) -> _Transform:
    """Returns the scale and the range with the best predicted bound, from the fitting samples
    alone.

    The critic that estimates best is not the one that certifies best: e^{alpha T} of an unclipped
    critic has a variance that no few hundred samples can bound.
    """
    fit1, fit2 = fit1[:_MAX_VALUES_FOR_RANGE], fit2[:_MAX_VALUES_FOR_RANGE]  # in random order
    ends = np.unique(np.quantile(np.concatenate((fit1, fit2)), _RANGE_QUANTILES)).tolist()
    scales = np.geomspace(1.0, 1.0 / alpha, _NUM_SCALES).tolist()
    log_term = math.log(2.0 / beta)

    def predicted_bound(choice: tuple[float, float, float]) -> float:
        transform = _Transform.scaled(*choice)
        numerator = np.exp((alpha - 1.0) * transform.below_high(fit1))
        denominator = np.exp(alpha * transform.below_high(fit2))
        lower = numerator.mean() - _bernstein_radius(numerator, num_certify1, log_term)
        upper = denominator.mean() + _bernstein_radius(denominator, num_certify2, log_term)
        if lower <= 0.0:
            return -math.inf
        return alpha / (alpha - 1.0) * math.log(lower) - math.log(min(1.0, upper))

    # Coordinate by coordinate, because all combinations together take four times as long for the
    # same bound.
    scale, low, high = 1.0, ends[0], ends[-1]
    ranges = list(itertools.combinations(ends, 2)) or [(low, high)]
    for _ in range(2):
        low, high = max(ranges, key=lambda pair: predicted_bound((scale, *pair)))
        scale = max(scales, key=lambda value: predicted_bound((value, low, high)))
    return _Transform.scaled(scale, low, high)


def _bernstein_radius(values: NDArray[np.float64], count: int, log_term: float) -> float:
    return math.sqrt(2.0 * float(values.var()) * log_term / count) + log_term / count
