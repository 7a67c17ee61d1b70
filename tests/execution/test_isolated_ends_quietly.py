"""Processes that have nothing left to do end by themselves: what they hold is given back, and
nothing is said of it.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

_PROGRAM = """
import multiprocessing
from dvrenyi_plugin.execution.isolated import run_in_processes

kept = []

def hold(task):
    kept.append(multiprocessing.RLock())
    return task

if __name__ == "__main__":
    print([o.status for o in run_in_processes(hold, [1, 2], num_workers=2, timeout_s=60.0)])
"""


def test_a_lock_that_a_task_made_is_not_reported_as_leaked(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "['finished', 'finished']"
    assert done.stderr == ""
