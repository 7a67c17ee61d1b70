"""Randomised response: every record answers for itself, truthfully with a known probability."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Int, NotNegative, Order, Positive, Seed
from dvrenyi_plugin._internal.validation import (
    check_int,
    check_samples,
)
from dvrenyi_plugin.interfaces import (
    PrivacyProperty,
    PureDp,
    RenyiDp,
    as_privacy_property,
    check_num_samples,
)
from dvrenyi_plugin.mechanisms.simple.additive_noise import CallStreams
from dvrenyi_plugin.privacy.divergences import renyi_from_log_masses


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedResponseMechanismConfig(CheckedSettings):
    """Settings of randomised response.

    Attributes:
      epsilon: claimed pure-DP epsilon, > 0.
      num_categories: possible answers 0, 1, ..., >= 2.
      actual_epsilon: the epsilon at which answers are really randomised, >= 0; the claim is left
        alone, and anything above `epsilon` breaks it on purpose. None keeps the claim.
      alpha: order of the Rényi DP property that is claimed beside it, > 1.
      seed: where all randomness comes from, >= 0.
    """

    epsilon: Positive = 1.0
    num_categories: Annotated[int, Int(at_least=2)] = 2
    actual_epsilon: NotNegative | None = None
    alpha: Order = 2.0
    seed: Seed = 0


class RandomizedResponseMechanism:
    """Releases a randomised answer for every record: the true one e^epsilon times as likely as each
    other one.

    Formal guarantee, for neighbours that differ in one record's value: pure epsilon-DP (Warner
    1965; Kairouz, Oh and Viswanath 2016 for more than two answers), and Rényi DP with exactly the
    divergence of the two laws of that record's answer. With two categories no epsilon-DP mechanism
    has a larger one.
    """

    def __init__(self, config: RandomizedResponseMechanismConfig) -> None:
        self.config = config
        self._streams = CallStreams(config.seed)

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Pure DP, and the exact Rényi DP at the config's order."""
        config = self.config
        laws = [_answer_law(value, config.epsilon, config.num_categories) for value in (0, 1)]
        epsilon = renyi_from_log_masses(config.alpha, *laws)
        return [
            as_privacy_property(PureDp(config.epsilon)),
            as_privacy_property(RenyiDp(config.alpha, epsilon)),
        ]

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns independent collections of answers, shape (num_samples, n), whole numbers.

        Args:
          dataset: records of shape (n,), whole numbers in [0, num_categories), n >= 1.
          num_samples: outputs wanted, >= 1. Every call of one object uses fresh randomness.
        """
        num_samples = check_num_samples(num_samples)
        records = self._records(dataset)
        truth = math.exp(_answer_law(0, self._epsilon, self.config.num_categories)[0])
        rng = self._streams.next_generator()
        shape = (num_samples, len(records))
        # A lie is any of the others, each as likely: a shift by 1 to k - 1.
        shifts = rng.integers(1, self.config.num_categories, shape)
        lies = rng.random(shape) >= truth
        answers = (records + np.where(lies, shifts, 0)) % self.config.num_categories
        return answers.astype(np.float64)

    def answer_law(self, value: int) -> NDArray[np.float64]:
        """Returns the log masses of the answer of one record with this value, shape
        (num_categories,), as really drawn.
        """
        k = self.config.num_categories
        value = check_int("value", value, at_least=0, at_most=k - 1)
        return _answer_law(value, self._epsilon, k)

    def exact_renyi_divergence(self, dataset1: Any, dataset2: Any, alpha: float) -> float:
        """Returns D_alpha(law on dataset1 || law on dataset2) of the answers as really drawn."""
        first, second = self._records(dataset1), self._records(dataset2)
        if first.shape != second.shape:
            raise ValueError(
                f"dataset1 and dataset2 must have equally many records, got {len(first)} and"
                f" {len(second)}"
            )
        of_one = renyi_from_log_masses(alpha, self.answer_law(0), self.answer_law(1))
        return int(np.count_nonzero(first != second)) * of_one

    @property
    def _epsilon(self) -> float:
        config = self.config
        return config.epsilon if config.actual_epsilon is None else config.actual_epsilon

    def _records(self, dataset: Any) -> NDArray[np.int64]:
        values = check_samples("dataset", dataset, min_samples=1)
        if values.shape[1] != 1:
            raise ValueError(f"dataset must have shape (n,), got shape {np.shape(dataset)}")
        highest = self.config.num_categories - 1
        bad = np.flatnonzero(
            (values[:, 0] != np.rint(values[:, 0])) | (values[:, 0] < 0) | (values[:, 0] > highest)
        )
        if bad.size:
            raise ValueError(
                f"dataset must hold whole numbers from 0 to {highest}, got {values[bad[0], 0]:g} at"
                f" index {bad[0]}"
            )
        return values[:, 0].astype(np.int64)


def _answer_law(value: int, epsilon: float, num_categories: int) -> NDArray[np.float64]:
    # log(e^epsilon + k - 1), without overflow.
    log_total = epsilon + math.log1p((num_categories - 1) * math.exp(-epsilon))
    law = np.full(num_categories, -log_total)
    law[value] = epsilon - log_total
    return law


__all__ = ["RandomizedResponseMechanism", "RandomizedResponseMechanismConfig"]
