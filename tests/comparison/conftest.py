"""Every test of the comparison has the registry as it is when the package is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison_parts import EXTRA

from dvrenyi_plugin.comparison import registry
from dvrenyi_plugin.comparison.registry import (
    load_modules,
)
from dvrenyi_plugin.comparison.settings import BUILT_IN_MODULES


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    load_modules(BUILT_IN_MODULES)
    monkeypatch.setattr(registry, "_MECHANISMS", dict(registry._MECHANISMS))
    monkeypatch.setattr(registry, "_TESTERS", dict(registry._TESTERS))
    monkeypatch.setattr(registry, "_LOADED_FILES", set())


@pytest.fixture
def extra(tmp_path: Path) -> str:
    path = tmp_path / "extra.py"
    path.write_text(EXTRA)
    return str(path)
