"""One-sided confidence bounds for the mean of independent bounded variables.

Every bound is one-sided: it is on the wrong side of the mean with probability at most
`failure_probability`, for every sample size from 1 and every law on [low, high]. From the loosest
to the tightest on data of small variance: Hoeffding, empirical Bernstein, betting. For 0/1 data use
Clopper-Pearson, which is exact, on integer counts (a count recomputed from a rate can be one off).

The betting bound is written out here because `confseq`, its authors' package, has no wheel and
builds only where a C++ toolchain and boost are installed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from dvrenyi_plugin._internal.validation import (
    check_failure_probability,
    check_int,
    check_numbers,
    check_real,
)

# Largest part of the capital one bet may lose. Waudby-Smith and Ramdas advise 1/2 or 3/4.
_LARGEST_STAKE = 0.75
# 2^-50 is below the rounding error of the sums, so more halvings would not sharpen the bound.
_BISECTION_STEPS = 50


def clopper_pearson_lower_bound(successes: int, trials: int, failure_probability: float) -> float:
    """Returns the exact lower bound on a success probability; 0.0 when there is no success.

    The bound p satisfies P[Binomial(trials, p) >= successes] = failure_probability.

    Args:
      successes: number of ones, an integer in [0, trials].
      trials: number of independent trials, >= 1.
      failure_probability: one-sided, in (0, 1).

    Raises:
      ValueError: an argument is out of range, or a count is not an integer.

    Source: Clopper and Pearson (1934).
    """
    successes, trials, beta = _check_counts(successes, trials, failure_probability)
    if successes == 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, beta))


def clopper_pearson_upper_bound(successes: int, trials: int, failure_probability: float) -> float:
    """Returns the exact upper bound on a success probability; 1.0 when every trial succeeds.

    The bound p satisfies P[Binomial(trials, p) <= successes] = failure_probability. Arguments,
    errors and source as for `clopper_pearson_lower_bound`.
    """
    successes, trials, beta = _check_counts(successes, trials, failure_probability)
    return 1.0 - clopper_pearson_lower_bound(trials - successes, trials, beta)


def hoeffding_lower_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns a lower bound on the mean from the range of the variables alone, never below `low`.

    Args:
      values: shape (n,), n >= 1, independent, each in [low, high].
      failure_probability: one-sided, in (0, 1).
      low: least value the variables can take.
      high: greatest value the variables can take, > low.

    Raises:
      ValueError: an argument is out of range, or a value lies outside [low, high].

    Source: Hoeffding (1963), theorem 2.
    """
    units, beta, low, high = _check_values(values, failure_probability, low, high)
    radius = math.sqrt(math.log(1.0 / beta) / (2.0 * units.size))
    return _rescale(float(units.mean()) - radius, low, high)


def hoeffding_upper_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns the upper bound that mirrors `hoeffding_lower_bound`, never above `high`."""
    return -hoeffding_lower_bound(
        _mirrored(values, failure_probability, low, high), failure_probability, low=-high, high=-low
    )


def empirical_bernstein_lower_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns a lower bound on the mean from the sample variance, never below `low`.

    mean - sqrt(2 V log(2/beta) / n) - 7 log(2/beta) / (3 (n - 1)) on the unit scale, V the unbiased
    sample variance; `low` for a single value, which has no variance. Arguments and errors as for
    `hoeffding_lower_bound`.

    Source: Maurer and Pontil (2009), theorem 4.
    """
    units, beta, low, high = _check_values(values, failure_probability, low, high)
    if units.size == 1:
        return low
    log_term = math.log(2.0 / beta)
    radius = math.sqrt(2.0 * float(units.var(ddof=1)) * log_term / units.size)
    radius += 7.0 * log_term / (3.0 * (units.size - 1))
    return _rescale(float(units.mean()) - radius, low, high)


def empirical_bernstein_upper_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns the upper bound that mirrors `empirical_bernstein_lower_bound`, never above
    `high`."""
    return -empirical_bernstein_lower_bound(
        _mirrored(values, failure_probability, low, high), failure_probability, low=-high, high=-low
    )


def betting_lower_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns a lower bound on the mean by betting against every smaller mean, never below `low`.

    The hypothesis "mean <= m" is refuted once the capital prod_t (1 + bet_t (x_t - m)) has reached
    1/beta at any time. The bets are the predictable plug-in sqrt(2 log(1/beta) / (n v_t)), v_t the
    variance of the values before t, cut at 3/4 of 1/m so that the capital stays positive: under the
    hypothesis it is a nonnegative supermartingale and Ville's inequality applies. Each factor is
    nonincreasing in m, for the plug-in bet and for the cut one, where it is 1/4 + (3/4) x_t / m. So
    the refuted m form an interval and bisection finds its end; the returned m is itself refuted,
    which makes rounding conservative.

    Args:
      values: shape (n,), n >= 1, independent, each in [low, high]. The bound depends on their
        order: values that come sorted, or in any order that was chosen by looking at them, must be
        shuffled first.
      failure_probability: one-sided, in (0, 1).
      low: least value the variables can take.
      high: greatest value the variables can take, > low.

    Raises:
      ValueError: an argument is out of range, or a value lies outside [low, high].

    Source: Waudby-Smith and Ramdas (2024), section 4 (one side of the hedged capital process).
    """
    units, beta, low, high = _check_values(values, failure_probability, low, high)
    bets = _plug_in_bets(units, beta)
    log_target = math.log(1.0 / beta)
    refuted, open_end = 0.0, 1.0
    for _ in range(_BISECTION_STEPS):
        middle = 0.5 * (refuted + open_end)
        if _largest_log_capital(units, bets, middle) >= log_target:
            refuted = middle
        else:
            open_end = middle
    return _rescale(refuted, low, high)


def betting_upper_bound(
    values: ArrayLike, failure_probability: float, *, low: float = 0.0, high: float = 1.0
) -> float:
    """Returns the upper bound that mirrors `betting_lower_bound`, never above `high`."""
    return -betting_lower_bound(
        _mirrored(values, failure_probability, low, high), failure_probability, low=-high, high=-low
    )


def _plug_in_bets(units: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    counts = np.arange(1, units.size + 1)
    means = (0.5 + np.cumsum(units)) / (counts + 1)
    variances = (0.25 + np.cumsum((units - means) ** 2)) / (counts + 1)
    past_variances = np.concatenate(([0.25], variances[:-1]))
    bets: NDArray[np.float64] = np.sqrt(2.0 * math.log(1.0 / beta) / (units.size * past_variances))
    return bets


def _largest_log_capital(
    units: NDArray[np.float64], bets: NDArray[np.float64], mean: float
) -> float:
    cut_bets = np.minimum(bets, _LARGEST_STAKE / mean)
    return float(np.cumsum(np.log1p(cut_bets * (units - mean))).max())


def _check_counts(successes: Any, trials: Any, beta: Any) -> tuple[int, int, float]:
    trials = check_int("trials", trials, at_least=1)
    successes = check_int("successes", successes, at_least=0, at_most=trials)
    return successes, trials, check_failure_probability(beta)


def _check_values(
    values: ArrayLike, beta: float, low: float, high: float
) -> tuple[NDArray[np.float64], float, float, float]:
    low, high = check_real("low", low), check_real("high", high)
    if not low < high:
        raise ValueError(f"high must be above low = {low:g}, got {high:g}")
    check_real("high - low", high - low)
    array = check_numbers("values", values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"values must have shape (n,), n >= 1, got shape {array.shape}")
    outside = ~((array >= low) & (array <= high))
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"values must lie in [{low:g}, {high:g}], got {int(outside.sum())} outside, the first"
            f" is {array[first]!r} at index {first}"
        )
    return (array - low) / (high - low), check_failure_probability(beta), low, high


def _mirrored(values: ArrayLike, beta: float, low: float, high: float) -> NDArray[np.float64]:
    units, _, low, high = _check_values(values, beta, low, high)  # errors name the caller's values
    return np.clip(-(low + (high - low) * units), -high, -low)


def _rescale(unit_bound: float, low: float, high: float) -> float:
    return low + (high - low) * min(1.0, max(0.0, unit_bound))
