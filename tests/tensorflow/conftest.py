"""Tests with TensorFlow Privacy; all of them are skipped, before they import anything, where it is
absent.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow's threads are fixed when it starts, which may be before a mechanism asks for one.
for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(variable, "1")

ABSENT = 'TensorFlow Privacy is not installed: pip install ".[tensorflow]"'


class _SkippedModule(pytest.Module):
    def collect(self) -> Iterable[Any]:
        pytest.skip(ABSENT, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """A module is not even imported without the library."""
    if importlib.util.find_spec("tensorflow_privacy") is None:
        return _SkippedModule.from_parent(parent, path=module_path)
    return None
