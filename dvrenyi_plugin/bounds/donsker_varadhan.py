"""The Donsker-Varadhan value of a critic on samples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp


def donsker_varadhan_value(
    critic_q: NDArray[np.float64], critic_p: NDArray[np.float64], alpha: float
) -> float:
    """Returns V(T) of two samples, a point estimate on the D_alpha scale.

    V(T) = alpha / (alpha - 1) log E_Q[e^{(alpha - 1) T}] - log E_P[e^{alpha T}]. Without noise it is at most
    D_alpha; on samples it can exceed it, and on samples the critic was fitted to it usually does. It can be negative.

    Args:
      critic_q: critic values on the sample of the numerator law, shape (n,).
      critic_p: critic values on the sample of the denominator law, shape (m,).
      alpha: Rényi order, > 1.

    Source: Birrell et al. (2021), "Variational representations and neural network estimation of Rényi
    divergences", theorem 3.1.
    """
    numerator = float(logsumexp((alpha - 1.0) * critic_q)) - math.log(critic_q.size)
    denominator = float(logsumexp(alpha * critic_p)) - math.log(critic_p.size)
    return alpha / (alpha - 1.0) * numerator - denominator
