"""One torch thread where more would slow things down or change results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_blocks = 0
_threads_before = 1


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Runs the block on one torch CPU thread; the last block to end restores the number of threads.

    Sums of floats depend on the number of threads, so results that must not depend on the machine
    are
    computed on one. Small matrices also gain nothing: on a busy 2-core machine a critic's fit on
    two threads took 15 times as long as on one.

    Blocks may run at the same time in several threads of Python. They share torch's setting, so it
    is not given back before all of them have ended.
    """
    import torch

    global _blocks, _threads_before
    with _lock:
        if _blocks == 0:
            _threads_before = torch.get_num_threads()
        _blocks += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0:
                torch.set_num_threads(_threads_before)
