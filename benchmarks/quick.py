"""The flag that all benchmarks share: --quick, seconds instead of hours, to see that a benchmark
runs.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
from typing import Any


def parse_arguments(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """Returns the parsed command line; with --quick, `quick` takes the place of what it names.

    Args:
      parser: with all other flags of the benchmark.
      **quick: settings so small that the benchmark takes seconds; its figures then mean nothing.
    """
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a run of seconds, to see that it works: small settings, files in a temporary folder",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(quick)
    return arguments


def scratch_file(name: str) -> pathlib.Path:
    """Returns the path of a file that is not there yet, in a new temporary folder."""
    return pathlib.Path(tempfile.mkdtemp(prefix="quick_")) / name
