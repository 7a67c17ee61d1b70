"""Any training pipeline as a mechanism: a function of a dataset and a seed, and what is seen of its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._validation import check_int, check_seed
from dvrenyi_plugin.interfaces import PrivacyProperty, check_num_samples, read_claim


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingMechanismConfig:
    """What is trained, what is seen of it, and what it claims.

    Attributes:
      train: called as train(dataset, seed) with an int seed in [0, 2^63), which torch.manual_seed,
        np.random.default_rng and tf.random.set_seed take (for np.random.seed: seed % 2**32). It must draw
        all its randomness from that seed, and returns anything.
      observe: called with what `train` returned, gives a number or a vector of k finite numbers, the same k
        every time.
      claimed_privacy: the properties that the pipeline claims, ours or DP-Auditorium's, at least one.
      seed: where all randomness comes from, >= 0.
    """

    train: Callable[[Any, int], Any]
    observe: Callable[[Any], Any]
    claimed_privacy: Sequence[Any]
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "observe"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a function, got {getattr(self, name)!r}")
        claims = tuple(self.claimed_privacy)
        if not claims:
            raise ValueError("claimed_privacy must hold at least one property, got none")
        for claim in claims:
            read_claim(claim)
        object.__setattr__(self, "claimed_privacy", claims)
        check_seed(self.seed)


class TrainingMechanism:
    """Runs the pipeline once for every sample, each time with a seed of its own."""

    def __init__(self, config: TrainingMechanismConfig) -> None:
        self.config = config
        self._calls = 0

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """The claims of the config, as given."""
        return list(self.config.claimed_privacy)

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        """Returns one observation for each of `num_samples` runs, shape (num_samples, k).

        Args:
          dataset: handed to `train` as it is.
          num_samples: >= 1. The c-th call of one object (from 0) makes runs 0, 1, ... of world c: calls
            never share a seed, and a new object with the same config repeats them.
        """
        num_samples = check_num_samples(num_samples)
        observations = self.train_models(dataset, self._calls, range(num_samples))
        self._calls += 1
        return observations

    def train_models(self, dataset: Any, world: int, indices: Sequence[int]) -> NDArray[np.float64]:
        """Returns the observations of the runs with these numbers, shape (len(indices), k), float64.

        Args:
          dataset: handed to `train` as it is.
          world: which of the neighbouring datasets this is, >= 0.
          indices: numbers of the runs, each >= 0 and at least one. Run i of a world gets a seed made from
            (config seed, world, i) alone.

        Raises:
          ValueError: no indices, or an observation that is not a number or vector of finite numbers, or not
            of the same length as the others.
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
        sequence = np.random.SeedSequence(self.config.seed, spawn_key=(world, index))
        seed = int(sequence.generate_state(1, np.uint64)[0]) >> 1
        observed = self.config.observe(self.config.train(dataset, seed))
        try:
            row = np.atleast_1d(np.asarray(observed, dtype=np.float64))
        except (TypeError, ValueError):
            raise ValueError(
                f"observe must give a number or a vector of numbers, got {observed!r}"
            ) from None
        if row.ndim != 1 or row.size == 0 or not np.isfinite(row).all():
            raise ValueError(
                f"observe must give a number or a vector of finite numbers, got {observed!r} for run"
                f" {index} of world {world}"
            )
        return row
