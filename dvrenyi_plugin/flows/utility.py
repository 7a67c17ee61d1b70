"""Utility of the exponential mechanism and of a flow stopped at time t: Proposition 1, Theorem 5,
and sharper.

For a loss f on a domain of volume m, pi proportional to exp(-beta f) and f_* = inf f.

Source: Mustafi and Mukherjee, section 5.1; Theorem 5 rests on Lu, Lu and Nolen (2019),
"Accelerating Langevin Sampling with Birth-death".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dvrenyi_plugin._internal.ranges import LARGEST, check_moderate, check_positive, check_size
from dvrenyi_plugin._internal.validation import check_numbers, check_real
from dvrenyi_plugin.privacy.bounded_range import total_variation_of_range


def target_excess_bound(slack: float, volume_ratio: float, inverse_temperature: float) -> float:
    """Returns Proposition 1's bound on E_pi[f] - f_*: slack + (log(m / m_slack) + 1) / beta.

    Args:
      slack: alpha > 0.
      volume_ratio: m / m_alpha >= 1, where m_alpha is the volume of {f <= f_* + alpha}.
      inverse_temperature: beta > 0.
    """
    slack = check_real("slack", slack, above=0.0, at_most=LARGEST)
    ratio = check_real("volume_ratio", volume_ratio, at_least=1.0)
    beta = check_positive("inverse_temperature", inverse_temperature)
    return slack + (math.log(ratio) + 1.0) / beta


def best_target_excess_bound(loss_values: ArrayLike, inverse_temperature: float) -> float:
    """Returns Proposition 1 with the best slack, for a loss known on equal cells.

    Args:
      loss_values: one value per cell, any shape, at least one, at most 1e100 in absolute value.
      inverse_temperature: beta > 0.

    Raises:
      ValueError: no values, or NaN or values out of range.
    """
    losses = np.sort(check_moderate("loss_values", check_numbers("loss_values", loss_values)), None)
    if losses.size == 0:
        raise ValueError("loss_values must hold at least one value, got none")
    beta = check_positive("inverse_temperature", inverse_temperature)
    excess = losses - losses[0]
    # The k-th smallest loss is a slack whose sublevel set has at least k cells; slack 0 is a limit.
    ratios = losses.size / np.arange(1, losses.size + 1)
    return float(np.min(excess + (np.log(ratios) + 1.0) / beta))


def excess_bound(target_excess: float, loss_range: float, ratio_width: float) -> float:
    """Returns a bound on E_rho[f] - f_*: target excess + range(f) tanh(width / 4). Beyond the
    paper.

    The log ratio of rho_t and pi has width at most e^{-t} R_0, so their total variation distance is
    at most tanh(e^{-t} R_0 / 4) (`bounded_range`), and expectations of f differ by at most its
    range times that. No t_*, M or delta as in Theorem 5, valid from t = 0 on, and for the program
    as run.

    Args:
      target_excess: bound on (or value of) E_pi[f] - f_*, >= 0.
      loss_range: max f - min f >= 0.
      ratio_width: bound on osc(log rho / pi), such as e^{-t} R_0, >= 0.
    """
    excess, loss_range = (
        check_size("target_excess", target_excess),
        check_size("loss_range", loss_range),
    )
    return excess + loss_range * total_variation_of_range(
        check_real("ratio_width", ratio_width, at_least=0.0)
    )


def excess_bound_theorem5(
    target_excess: float,
    loss_sup_norm: float,
    kl_at_start: float,
    *,
    lower_ratio_log: float,
    rate_loss: float,
    start_time: float,
    time: float,
) -> float:
    """Returns Theorem 5's bound on E_rho_t[f] - f_*, for comparison with `excess_bound`.

    target excess + ||f||_inf sqrt(2 KL_t), KL_t = e^{-(2 - 3 delta)(t - t_*)} KL(rho_{t_0} || pi),
    t_* = t_0 + log(M / delta^3).

    Args:
      target_excess: bound on E_pi[f] - f_*, >= 0.
      loss_sup_norm: ||f||_inf >= 0.
      kl_at_start: KL(rho_{t_0} || pi) >= 0.
      lower_ratio_log: M > 0 with rho_{t_0} / pi >= e^{-M}.
      rate_loss: delta in (0, 1/4).
      start_time: t_0 >= 0.
      time: t >= t_*.

    Raises:
      ValueError: time before t_*, where the theorem says nothing.
    """
    excess = check_size("target_excess", target_excess)
    sup_norm = check_size("loss_sup_norm", loss_sup_norm)
    kl = check_size("kl_at_start", kl_at_start)
    lower = check_real("lower_ratio_log", lower_ratio_log, above=0.0)
    delta = check_real("rate_loss", rate_loss, above=0.0, below=0.25)
    valid_from = check_real("start_time", start_time, at_least=0.0) + max(
        0.0, math.log(lower) - 3.0 * math.log(delta)
    )
    time = check_real("time", time, at_least=valid_from)
    kl *= math.exp(-(2.0 - 3.0 * delta) * (time - valid_from))
    return excess + sup_norm * math.sqrt(2.0 * kl)
