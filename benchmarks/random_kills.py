"""Kills audits and comparisons at random times and compares the last run with one that was never
killed.

    python benchmarks/random_kills.py --program=audit_shk --kills=20
    python benchmarks/random_kills.py --program=compare_testers --kills=20

Every kill is SIGKILL to the main process alone, as the system's out-of-memory killer does it.
Prints what survived, and ends
with status 1 if the results differ or if anything is left behind: a process, a folder, a file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FLAGS = {
    "audit_shk": ("--num_samples=4000", "--alphas=2,4"),
    "audit_dpsgd": (
        "--dataset=digits",
        "--model=logistic",
        "--num_records=20",
        "--num_models=200",
        "--steps=100",
    ),
    "compare_testers": (
        "--nodp_auditorium",
        "--quick",
        "--mechanisms=gaussian,laplace,noisy_max",
        "--testers=sequential,threshold",
        "--repeats=3",
    ),
}
RESULT = {"compare_testers": "comparison.json"}
# Differ from run to run.
TIMES = ("seconds", "wall_seconds", "training_seconds", "output_dir")


def main() -> int:
    """Runs the program and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=tuple(FLAGS), default="audit_shk")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        start = time.monotonic()
        run(arguments.program, whole)
        seconds = time.monotonic() - start
        kills = starts = 0
        # A comparison has less and less to do: later kills meet its start and its end.
        while kills < arguments.kills and starts < 5 * arguments.kills:
            kills += kill(arguments.program, killed, float(rng.uniform(0.05, seconds)))
            starts += 1
        left_alive = wait_for_workers(killed)
        run(arguments.program, killed)
        same = result(arguments.program, whole) == result(arguments.program, killed)
        left = [str(path) for path in Path(folder).rglob(".dvrenyi-*")]
        print(
            f"{arguments.program}: {seconds:.1f} s uninterrupted; {kills} of {starts} runs were"
            f" killed;"
            f" same result: {same}; processes left: {left_alive}; left behind: {left}"
        )
        return 0 if same and not left and not left_alive else 1


def command(program: str, folder: Path) -> list[str]:
    """Returns the command line that writes into a folder."""
    module = f"dvrenyi_plugin.binaries.{program}"
    return [sys.executable, "-m", module, f"--output_dir={folder}", *FLAGS[program]]


def run(program: str, folder: Path) -> None:
    """Runs a program to its end."""
    subprocess.run(command(program, folder), check=True, capture_output=True)


def kill(program: str, folder: Path, after: float) -> bool:
    """Kills a program after some time; returns False if it had ended."""
    with subprocess.Popen(
        command(program, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def wait_for_workers(folder: Path) -> int:
    """Returns how many processes have a file of the folder open ten seconds after the last kill."""
    count = 0
    for _ in range(10):
        count = sum(str(folder) in " ".join(open_files(pid)) for pid in os.listdir("/proc"))
        if not count:
            break
        time.sleep(1.0)
    return count


def open_files(pid: str) -> list[str]:
    """Returns the paths that a process has open."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def result(program: str, folder: Path) -> Any:
    """Returns the numbers of a finished run."""
    content = json.loads((folder / RESULT.get(program, "report.json")).read_text())
    return without_times(content)


def without_times(value: Any) -> Any:
    """Returns JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {name: without_times(v) for name, v in value.items() if name not in TIMES}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
