"""Ends a worker process when the process that started it is gone, however that ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_SECONDS_BETWEEN_LOOKS = 1.0
_lock = threading.Lock()
_watched: set[int] = set()


def end_with_parent(parent: int, end: Callable[[], None] | None = None) -> None:
    """Watches the parent process from a thread of its own; when it is gone, this process ends at
    once.

    A killed parent cannot tell its workers to stop, and they would go on with what they were given.
    Called again, it does nothing.

    Args:
      parent: number of the process that started this one, as that process says: it may be gone
        already.
      end: how to end; None kills this process.
    """
    with _lock:
        # Of this process: a fork has a copy of the set, but none of the thread.
        if os.getpid() in _watched:
            return
        _watched.add(os.getpid())

    def watch() -> None:
        # The orphan is handed to another process, so a number that is in use again does not matter.
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        (end or _kill_this_process)()

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def kill_own_group() -> None:
    """Kills this process and all that it started, where it leads a group of its own."""
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    _kill_this_process()


def _kill_this_process() -> None:
    # Neither cleans up nor waits: a library's exit handler may wait for the parent that is gone.
    os._exit(1)
