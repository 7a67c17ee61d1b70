"""Random streams by role: one seed given to a mechanism and to a tester makes them share no random
number.
"""

from __future__ import annotations

import zlib

import numpy as np

from dvrenyi_plugin._internal.validation import check_seed


def streams_of(role: str, seed: int, count: int) -> list[np.random.SeedSequence]:
    """Returns independent streams that depend on the role and the seed alone.

    Mechanisms spawn from their seed by small numbers (calls, datasets, models). A role's streams
    lie below a key that no such number reaches, so they differ from every mechanism's with the same
    seed and from those of every other role.

    Args:
      role: who draws, such as "tester".
      seed: as the user gave it, an integer >= 0.
      count: how many streams, >= 0.
    """
    key = zlib.crc32(role.encode())
    return np.random.SeedSequence(check_seed(seed), spawn_key=(key,)).spawn(count)


def seed_of(stream: np.random.SeedSequence) -> int:
    """Returns an integer seed below 2^32 for what takes no SeedSequence."""
    return int(stream.generate_state(1)[0])
