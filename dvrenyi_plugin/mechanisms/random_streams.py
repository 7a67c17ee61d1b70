"""Torch random generators seeded with all the bits of a numpy SeedSequence."""

from __future__ import annotations

import numpy as np
import torch


def torch_generator(
    seed: np.random.SeedSequence, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Returns a torch generator whose stream is determined by `seed`.

    On the CPU `Generator.manual_seed` keeps only the low 32 bits of a seed, so among 1,000 models
    two would share all their noise in about one audit of 10,000, and among 10,000 models in one of
    90. Here the Mersenne twister's 624 state words are all filled from the seed sequence (as numpy
    does it). Other devices use counter-based generators that keep 64 bits.
    """
    device = torch.device(device)
    generator = torch.Generator(device=device)
    if device.type != "cpu":
        generator.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
        return generator
    generator.manual_seed(0)
    state = generator.get_state()
    words = state.numpy()[_WORDS].view(np.uint64)
    words[:] = seed.generate_state(_NUM_WORDS, np.uint32)
    words[0] |= np.uint64(
        0x80000000
    )  # its top bit is state too: this keeps the state from being all zero
    generator.set_state(state)
    return generator


_NUM_WORDS = 624
# Torch's CPU state: seed (8 bytes), words left (4), seeded flag (4), next word (8), then the words,
# 8 bytes each; after `manual_seed` no word is consumed yet, so the first draw twists the words that
# are set here.
_WORDS = slice(24, 24 + 8 * _NUM_WORDS)
