"""One torch thread where more would slow things down or change results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Runs the block on one torch CPU thread, then restores the number of threads.

    Sums of floats depend on the number of threads, so results that must not depend on the machine are
    computed on one. Small matrices also gain nothing: on a busy 2-core machine a critic's fit on two threads took
    15 times as long as on one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
