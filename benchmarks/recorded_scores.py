"""How long an audit of a million recorded scores takes, and with how much memory.

    python benchmarks/recorded_scores.py

Writes a CSV of models with ids, half of them with the record, runs dvrenyi-audit-scores on it in a
process of its own, report included, and compares that with reading the file by numpy.loadtxt.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from quick import parse_arguments


def write_scores(path: str, rows: int) -> None:
    """Writes models with and without the record by turns, losses one standard deviation apart."""
    losses = np.random.default_rng(0).normal(size=rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,side,loss\n")
        for index, loss in enumerate(losses.tolist()):
            side = index % 2
            file.write(f"model-{index // 2},{('with', 'without')[side]},{loss + 1 - side!r}\n")


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parse_arguments(parser, rows=10_000)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scores.csv")
        write_scores(path, options.rows)
        start = time.perf_counter()
        np.loadtxt(path, delimiter=",", skiprows=1, usecols=2)
        read = time.perf_counter() - start
        start = time.perf_counter()
        program = [sys.executable, "-m", "dvrenyi_plugin.binaries.audit_scores"]
        flags = ["--claim=mu=0.9", f"--output_dir={os.path.join(folder, 'audit')}"]
        subprocess.run([*program, path, *flags], check=True)
        seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(
        f"{options.rows:,} rows: {seconds:.1f} s and {gigabytes:.2f} GiB, {seconds / read:.1f}"
        " times what numpy.loadtxt takes for one column"
    )


if __name__ == "__main__":
    main()
