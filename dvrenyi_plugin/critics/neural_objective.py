"""The Donsker-Varadhan objective of the Rényi divergence, always in the log domain.

V(T) = alpha / (alpha - 1) log E_Q[e^{(alpha - 1) T}] - log E_P[e^{alpha T}] <= D_alpha(Q || P),
with equality at T = log dQ/dP plus any constant. This is alpha times the variational R_alpha of the
sources: every value is on the D_alpha scale that a Rényi DP claim speaks about.

Source: Birrell et al. (2021), "Variational representations and neural network estimation of Rényi
divergences", theorem 3.1; Kim, Varshney and Alabi (2026), "Optimal Guarantees for Auditing Rényi
Differentially Private Machine Learning", definition 2.2.
"""

from __future__ import annotations

import math

import torch


def log_mean_exp(values: torch.Tensor) -> torch.Tensor:
    """Returns log mean(e^values) of a tensor of shape (n,)."""
    return torch.logsumexp(values, dim=0) - math.log(values.shape[0])


class DonskerVaradhanLoss:
    """-V(T) / alpha of a minibatch, with MINE's correction of the gradient's minibatch bias.

    The gradient of log E[e^f] is E[f' e^f] / E[e^f]; a minibatch estimate of the denominator biases
    it, so the denominator is an exponential moving average over minibatches (Belghazi et al. 2018,
    section 3.2). The average is kept as a logarithm. The current batch enters it with weight 1 -
    rate, hence the ratio that is differentiated never exceeds 1 / (1 - rate) and cannot overflow.

    Args:
      alpha: Rényi order, > 1.
      ema_rate: weight of the past in the average, in [0, 1); 0 leaves the correction out.
      from_zero: whether the averages start at 0, as the source prints it, and not at the first
        batch. They are then too small for the first 1 / (1 - rate) batches, which makes the first
        steps longer by up to that factor.
    """

    def __init__(self, alpha: float, ema_rate: float, *, from_zero: bool = False) -> None:
        self._alpha = alpha
        self._ema_rate = ema_rate
        start = torch.tensor(-math.inf) if from_zero else None
        self._log_averages: list[torch.Tensor | None] = [start, start]

    def __call__(self, critic_q: torch.Tensor, critic_p: torch.Tensor) -> torch.Tensor:
        """Returns a scalar whose gradient is that of -V(T) / alpha."""
        numerator = self._corrected(0, log_mean_exp((self._alpha - 1.0) * critic_q))
        denominator = self._corrected(1, log_mean_exp(self._alpha * critic_p))
        return denominator / self._alpha - numerator / (self._alpha - 1.0)

    def _corrected(self, side: int, log_mean: torch.Tensor) -> torch.Tensor:
        if self._ema_rate == 0.0:
            return log_mean
        average = self._log_averages[side]
        current = log_mean.detach()
        if average is None:
            average = current
        else:
            average = torch.logaddexp(
                average + math.log(self._ema_rate), current + math.log1p(-self._ema_rate)
            )
        self._log_averages[side] = average
        return torch.exp(log_mean - average)


def classification_loss(critic_q: torch.Tensor, critic_p: torch.Tensor) -> torch.Tensor:
    """Returns the logistic loss of telling Q from P with equal weight on both laws.

    Its minimiser is log dQ/dP, the very maximiser of V, but its values are means of functions that
    grow linearly: it has none of the variance of E_P[e^{alpha T}].
    """
    softplus = torch.nn.functional.softplus
    return softplus(-critic_q).mean() + softplus(critic_p).mean()


class RegularisedLoss:
    """The Donsker-Varadhan loss plus `weight` times the logistic loss."""

    def __init__(self, loss: DonskerVaradhanLoss, weight: float) -> None:
        self._loss = loss
        self._weight = weight

    def __call__(self, critic_q: torch.Tensor, critic_p: torch.Tensor) -> torch.Tensor:
        """Returns a scalar."""
        return self._loss(critic_q, critic_p) + self._weight * classification_loss(
            critic_q, critic_p
        )
