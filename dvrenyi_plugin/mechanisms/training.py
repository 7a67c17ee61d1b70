"""Any training pipeline as a mechanism: a function of a dataset and a seed, and what is seen of its
result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Seed, Switch
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_int
from dvrenyi_plugin.interfaces import PrivacyProperty, check_num_samples, read_claim
from dvrenyi_plugin.mechanisms.finite_observations import finite_observations
from dvrenyi_plugin.mechanisms.repeated_observations import check_independent

# What a 32-bit seed is divided into: 16.7 million runs on each of 256 datasets.
_WORLD_BITS, _INDEX_BITS = 8, 24
_MASK = 2**32 - 1


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingMechanismConfig(CheckedSettings):
    """What is trained, what is seen of it, and what it claims.

    Attributes:
      train: called as train(dataset, seed) with a copy of the dataset and an int seed in [0, 2^32),
        which every library takes (np.random.seed, torch.manual_seed, tf.random.set_seed). It must
        draw all its randomness from that seed, keep nothing from one call to the next, and may
        change its arguments and return anything.
      observe: called with what `train` returned, gives a number or a vector of k numbers, the same
        k every time; arrays and tensors of any library, with or without a gradient. NaN and
        infinities are observations like others, see `finite_observations`.
      claimed_privacy: the properties that the pipeline claims, ours or DP-Auditorium's: a list of
        at least one, or one by itself.
      discrete_outputs: the models may give the very same observation (an accuracy, a rounded loss,
        training without noise). If not declared, models that repeat each other stop the audit; see
        `check_independent`.
      seed: where all randomness comes from, >= 0.
    """

    train: Callable[[Any, int], Any]
    observe: Callable[[Any], Any]
    # The same models may be held to another claim.
    claimed_privacy: Sequence[Any] = dataclasses.field(metadata={"decides_outputs": False})
    discrete_outputs: Switch = dataclasses.field(default=False, metadata={"decides_outputs": False})
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train", "observe"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a function, got {getattr(self, name)!r}")
        given: Any = self.claimed_privacy
        claims = tuple(given) if np.iterable(given) else (given,)
        if not claims:
            raise ValueError("claimed_privacy must hold at least one property, got none")
        for claim in claims:
            read_claim(claim)
        object.__setattr__(self, "claimed_privacy", claims)


class TrainingMechanism:
    """Runs the pipeline once for every sample, each time with a seed of its own."""

    def __init__(self, config: TrainingMechanismConfig) -> None:
        self.config = config
        self._calls = 0

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """The claims of the config, as given."""
        return list(self.config.claimed_privacy)

    @property
    def discrete_outputs(self) -> bool:
        """See `TrainingMechanismConfig.discrete_outputs`."""
        return self.config.discrete_outputs

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns one observation for each of `num_samples` runs, shape (num_samples, k), finite.

        Args:
          dataset: `train` is given a copy of it, see `own_copy`.
          num_samples: >= 1. The c-th call of one object (from 0) makes runs 0, 1, ... of `world` c
            of `train_models`: calls never share a seed, and a new object with the same config
            repeats them.

        Raises:
          ValueError: see `train_models`; or runs that repeat each other, see `check_independent`.
        """
        num_samples = check_num_samples(num_samples)
        observations = self.train_models(dataset, self._calls, range(num_samples))
        self._calls += 1
        if not self.discrete_outputs:
            check_independent(observations, "runs")
        return finite_observations(observations)

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns the observations of the runs with these numbers, shape (len(indices), k),
        float64.

        NaN and infinities are left as they are.

        Args:
          dataset: `train` is given a copy of it for each run.
          world: number of the dataset, >= 0; audits give 0 without the canary and 1 with it.
          indices: numbers of the runs, each >= 0 and at least one. A run gets a seed made from
            (config seed, world, index) alone.

        Raises:
          ValueError: no indices, or an observation that is not a number or vector of numbers, or
            not of the same length as the others.
          Exception: what `train` or `observe` raised, with a note that says which.
        """
        world = check_int("world", world, at_least=0)
        numbers = [check_int("indices", index, at_least=0) for index in indices]
        if not numbers:
            raise ValueError("indices must name at least one run, got none")
        rows = [self._run(dataset, world, number) for number in numbers]
        lengths = sorted({len(row) for row in rows})
        if len(lengths) > 1:
            raise ValueError(f"observe must always give the same number of values, got {lengths}")
        return np.stack(rows)

    def _run(self, dataset: Any, world: int, index: int) -> NDArray[np.float64]:
        config = self.config
        trained = call_user_code(
            "train", config.train, dataset, run_seed(config.seed, world, index)
        )
        observed = call_user_code("observe", config.observe, trained, copies=False)
        row = np.ravel(user_numbers("observe", observed, finite=False))
        if row.size == 0:
            raise ValueError(f"observe must give at least one number, got {observed!r}")
        return row


def run_seed(seed: int, world: int, index: int) -> int:
    """Returns the seed of one run, in [0, 2^32).

    Runs 0 to 2^24 - 1 on datasets (`world`) 0 to 255 all have different seeds: their place is
    mapped by a permutation of the 32-bit numbers that depends on `seed` alone. Random seeds would
    coincide in one of 10,000 audits of 1,000 models. Beyond, another permutation is used for each
    block of datasets and runs.

    Source: the permutation is MurmurHash3's 32-bit finaliser (Appleby, public domain), twice, each
    time after the addition of a key.
    """
    block = (world >> _WORLD_BITS, index >> _INDEX_BITS)
    keys = np.random.SeedSequence(seed, spawn_key=block).generate_state(2, np.uint32)
    value: int = (world % 2**_WORLD_BITS << _INDEX_BITS) + index % 2**_INDEX_BITS
    for key in keys.tolist():
        value = (value + key) & _MASK
        value ^= value >> 16
        value = value * 0x85EBCA6B & _MASK
        value ^= value >> 13
        value = value * 0xC2B2AE35 & _MASK
        value ^= value >> 16
    return value
