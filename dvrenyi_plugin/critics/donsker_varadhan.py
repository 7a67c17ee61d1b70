"""The Donsker-Varadhan value of a critic on samples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dvrenyi_plugin._internal.validation import check_numbers, check_order


def donsker_varadhan_value(critic_q: ArrayLike, critic_p: ArrayLike, alpha: float) -> float:
    """Returns V(T) of two samples, a point estimate on the D_alpha scale.

    V(T) = alpha / (alpha - 1) log E_Q[e^{(alpha - 1) T}] - log E_P[e^{alpha T}]. Without noise it
    is at most D_alpha; on samples it can exceed it, and on samples the critic was fitted to it
    usually does. It can be negative.

    Args:
      critic_q: critic values on the sample of the numerator law, shape (n,), finite, at most 1e290
        in size.
      critic_p: critic values on the sample of the denominator law, shape (m,), likewise.
      alpha: Rényi order, > 1.

    Raises:
      ValueError: an argument out of range.

    Source: Birrell et al. (2021), "Variational representations and neural network estimation of
    Rényi divergences", theorem 3.1.
    """
    alpha = check_order(alpha)
    q, p = _check_critic("critic_q", critic_q), _check_critic("critic_p", critic_p)
    numerator = float(logsumexp((alpha - 1.0) * q)) - math.log(q.size)
    denominator = float(logsumexp(alpha * p)) - math.log(p.size)
    return alpha / (alpha - 1.0) * numerator - denominator


def _check_critic(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = check_numbers(name, values)
    # Times the largest order it must still be a float.
    if array.ndim != 1 or array.size == 0 or not np.all(np.abs(array) <= 1e290):
        raise ValueError(
            f"{name} must hold numbers of size at most 1e290 in shape (n,), n >= 1,"
            f" got shape {array.shape}"
        )
    return array
