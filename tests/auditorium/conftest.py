"""Tests inside the real DP-Auditorium; all of them are skipped, before they import anything, where
it is absent.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(variable, "1")

ABSENT = (
    'DP-Auditorium is not installed: pip install "dp-auditorium @'
    ' git+https://github.com/google/differential-privacy.git#subdirectory=python/dp_auditorium"'
    " (docs/dp_auditorium.md)"
)
NO_SEARCH = "Vizier's search algorithms need jax: see docs/dp_auditorium.md"


class _SkippedModule(pytest.Module):
    def collect(self) -> Iterable[Any]:
        pytest.skip(ABSENT, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """A module is not even imported without the framework."""
    if importlib.util.find_spec("dp_auditorium") is None:
        return _SkippedModule.from_parent(parent, path=module_path)
    return None


@pytest.fixture(scope="session")
def new_study() -> Callable[[], str]:
    """Returns a maker of study names; studies are kept in memory, so that no run continues an
    earlier one.
    """
    pytest.importorskip("jax", reason=NO_SEARCH)
    from vizier.service import clients

    clients.environment_variables.servicer_use_sql_ram()
    numbers = itertools.count()
    return lambda: f"study{next(numbers)}"
