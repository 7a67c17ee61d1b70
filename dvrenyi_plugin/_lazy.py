"""Lazy exports: a package names what it offers without importing the libraries behind it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], list[str]]:
    """Returns a module-level `__getattr__` and `__all__` for names that live in submodules.

    Args:
      package: the package's `__name__`.
      modules: submodule name -> the names it offers.
    """
    home = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    return get, sorted(home)
