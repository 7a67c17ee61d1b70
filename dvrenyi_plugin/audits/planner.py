"""How many models an audit needs, before any is trained, and whether going on is still worth it.

Everything here speaks of an assumed truth: *if* the laws of the observations were this pair, the
growth-optimal e-process would refute the claim after so many pairs. A plan proves nothing about a
mechanism.

The log e-value is a random walk with the mean and the variance of the optimal log factor, both
computed exactly on the
grid, and is approximated by a Brownian motion: the time it takes to reach log(1 / failure
probability) is then inverse Gaussian. An e-process that has to learn the log ratio from the same
samples needs more: where n pairs do with a known log ratio, about 1.25 n + 4 sqrt(n) do with a
learned one, and never fewer than the warm-up, in which nothing is bet, and 1.25 n after it
(measured, see docs/certified_fraction.md). The warm-up is the audit's: it grows with the number of
pairs where that is fixed beforehand, and is a constant where pairs arrive in batches.

An audit of both directions is planned as one direction at half of the failure probability. The
other direction can only add to the power.
"""

from __future__ import annotations

import dataclasses
import math

from scipy.special import erfcx, ndtr

from dvrenyi_plugin._internal.validation import (
    check_bool,
    check_failure_probability,
    check_int,
    check_order,
    check_real,
)
from dvrenyi_plugin.bounds.eprocess import sample_size_warm_up
from dvrenyi_plugin.bounds.grid_pairs import GridPair
from dvrenyi_plugin.bounds.information_limit import closest_null
from dvrenyi_plugin.bounds.trade_off_limit import trade_off_growth
from dvrenyi_plugin.privacy.trade_off_families import TradeOffFamily, check_family

# Pairs needed with a learned log ratio, in terms of those needed with a known one: see the module's
# text.
_LEARNING_SHARE, _LEARNING_ROOT = 1.25, 4.0
# More pairs than any audit draws. The rates that would need more are small beside the rounding
# error of their computation.
_MOST_PAIRS = 10**9
# Pairs needed with a learned log ratio in the middle of an audit, when part of the learning is
# over: the rule above at some 250 pairs.
_FUTILITY_SHARE = 1.5
# A discrete walk overshoots the threshold by about this many standard deviations of a step
# (Siegmund 1985).
_OVERSHOOT = 0.583
_ROOT_2 = math.sqrt(2.0)
# Tails of a Gaussian pair for a plan against a curve reach as far as this Rényi order needs.
ORDER_OF_CURVE_GRID = 8.0


@dataclasses.dataclass(frozen=True)
class RefutationPlan:
    """What it takes to refute "D_alpha <= epsilon", or a trade-off curve, when the truth is an
    assumed pair of laws.

    Attributes:
      alpha: order; None for a curve.
      epsilon: the null: an epsilon in nats, or the curve's own parameter.
      true_value: D_alpha of the assumed pair; NaN for a curve, whose parameter nobody computes.
      rate: mean growth of the log e-value in nats a pair; 0 when the null is true of the assumed
        pair.
      variance: of that growth, a pair.
      failure_probability: level at which the null is refuted.
      known_log_ratio: whether the log ratio is known; if not, pairs are allowed for learning it and
        for the warm-up.
      warm_up: pairs before the first bet; None for those of an audit whose number of pairs is fixed
        beforehand (`sample_size_warm_up`).
    """

    alpha: float | None
    epsilon: float
    true_value: float
    rate: float
    variance: float
    failure_probability: float
    known_log_ratio: bool = False
    warm_up: int | None = None

    def __post_init__(self) -> None:
        check_failure_probability(self.failure_probability)
        check_bool("known_log_ratio", self.known_log_ratio)
        if self.warm_up is not None:
            check_int("warm_up", self.warm_up, at_least=2)

    @property
    def log_threshold(self) -> float:
        """log(1 / failure probability): where the log e-value has to get."""
        return -math.log(self.failure_probability)

    @property
    def growth_pairs(self) -> float:
        """Pairs after which the mean log e-value is at the threshold if the log ratio is known; inf
        at rate 0 and where it is more than 10^9.

        No method needs fewer on average in this sense; about half of the runs take longer.
        """
        if self.rate * _MOST_PAIRS < self.log_threshold:
            return math.inf
        return self.log_threshold / self.rate

    def probability_to_refute(self, num_pairs: int, log_e_value: float = 0.0) -> float:
        """Returns the probability that the claim is refuted by an e-process of `num_pairs` pairs.

        Args:
          num_pairs: >= 0, counted from the start.
          log_e_value: where the e-process starts.
        """
        num_pairs = check_int("num_pairs", num_pairs, at_least=0)
        return self._first_passage(log_e_value, self._useful_pairs(num_pairs))

    def pairs_for_power(self, power: float) -> int | None:
        """Returns the fewest pairs with which the claim is refuted with probability `power`, None
        when 10^9 are not enough (as when the claim is true of the assumed pair).
        """
        power = check_real("power", power, above=0.0, below=1.0)
        if self.probability_to_refute(_MOST_PAIRS) < power:
            return None
        enough = 1
        while self.probability_to_refute(enough) < power:
            enough *= 2
        too_few = enough // 2
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            if self.probability_to_refute(middle) < power:
                too_few = middle
            else:
                enough = middle
        return enough

    def is_futile(
        self, log_e_value: float, pairs_left: int, smallest_probability: float = 0.05
    ) -> bool:
        """Returns True when the claim would hardly be refuted any more, even if the assumption were
        true.

        Stopping for futility can only lose refutations: the bound reported then is as valid as at
        any time.

        Args:
          log_e_value: where the e-process stands now.
          pairs_left: pairs that could still be drawn, >= 0.
          smallest_probability: go on while refuting is at least this likely, in (0, 1).
        """
        least = check_real("smallest_probability", smallest_probability, above=0.0, below=1.0)
        useful = check_int("pairs_left", pairs_left, at_least=0) / (
            1.0 if self.known_log_ratio else _FUTILITY_SHARE
        )
        return self._first_passage(log_e_value, useful) < least

    def _useful_pairs(self, num_pairs: int) -> float:
        """The pairs that do as much as `num_pairs` if the log ratio is known from the start."""
        if self.known_log_ratio:
            return float(num_pairs)
        # The n with _LEARNING_SHARE n + _LEARNING_ROOT sqrt(n) = num_pairs.
        root = math.sqrt(_LEARNING_ROOT**2 + 4.0 * _LEARNING_SHARE * num_pairs)
        learned = ((root - _LEARNING_ROOT) / (2.0 * _LEARNING_SHARE)) ** 2
        warm_up = sample_size_warm_up(num_pairs) if self.warm_up is None else self.warm_up
        return min(learned, max(0, num_pairs - warm_up) / _LEARNING_SHARE)

    def _first_passage(self, log_e_value: float, pairs: float) -> float:
        """P(a Brownian motion with this drift and variance gets from the log e-value to the
        threshold in time).
        """
        distance = self.log_threshold - check_real("log_e_value", log_e_value)
        if distance <= 0.0:
            return 1.0
        if pairs <= 0.0 or self.rate <= 0.0:
            return 0.0
        spread = math.sqrt(self.variance * pairs)
        gain = self.rate * pairs
        if spread == 0.0:
            return float(gain >= distance)
        distance += _OVERSHOOT * math.sqrt(self.variance)
        short, far = (distance - gain) / spread, (distance + gain) / spread
        # e^{2 rate distance / variance} Phi(-far), in a form that neither over- nor underflows.
        reflected = 0.5 * math.exp(-0.5 * min(short * short, 1500.0)) * float(erfcx(far / _ROOT_2))
        return min(1.0, float(ndtr(-short)) + reflected)


def plan_refutation(
    pair: GridPair,
    alpha: float,
    epsilon: float,
    failure_probability: float,
    known_log_ratio: bool = False,
    warm_up: int | None = None,
) -> RefutationPlan:
    """Returns the plan for refuting "D_alpha <= epsilon", or, with epsilon below a claim that is
    kept, for certifying at least epsilon.

    Args:
      pair: the assumed laws, numerator first; `gaussian_pair(mu)` for what mu-Gaussian DP allows.
      alpha: order > 1.
      epsilon: >= 0.
      failure_probability: one-sided, in (0, 1), of this one statement: an audit of both directions
        gives each half.
      known_log_ratio: True leaves out the allowance for learning it.
      warm_up: pairs before the first bet of the audit that will be run, >= 2; None where the number
        of pairs is fixed beforehand and decides it.
    """
    null = closest_null(pair, alpha, epsilon)
    return RefutationPlan(
        check_order(alpha),
        null.epsilon,
        pair.renyi(alpha),
        null.rate,
        null.variance,
        failure_probability,
        known_log_ratio,
        warm_up,
    )


def plan_curve_refutation(
    pair: GridPair,
    family: TradeOffFamily,
    value: float,
    failure_probability: float,
    known_log_ratio: bool = False,
    warm_up: int | None = None,
) -> RefutationPlan:
    """Returns the plan for refuting the curve of a family at a parameter, or, with a parameter
    below a claim that is kept, for certifying at least that.

    Args:
      pair: see `plan_refutation`.
      family: of the curve.
      value: the parameter, > 0.
      failure_probability: one-sided, in (0, 1), of this one statement.
      known_log_ratio: see `plan_refutation`.
      warm_up: see `plan_refutation`.
    """
    value = check_real("value", value, above=0.0)
    rate, variance = trade_off_growth(pair, check_family(family).curve(value))
    return RefutationPlan(
        None, value, math.nan, rate, variance, failure_probability, known_log_ratio, warm_up
    )
