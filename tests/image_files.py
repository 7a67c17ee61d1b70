"""Small images, and their bytes in the format of MNIST, that the tests of datasets share."""

from __future__ import annotations

import struct

import numpy as np


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def made_images(n=12, height=5, width=4, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, height, width), dtype=np.uint8)
    return images, (np.arange(n) % 10).astype(np.uint8)
