"""CPU training on one thread, so that results do not depend on how many workers share the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Runs torch's CPU kernels on one thread inside, and restores the setting.

    The rounding of matrix products depends on the number of threads, which joblib sets from the number of
    workers: without this, an audit resumed with other workers would give other last digits.
    """
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
