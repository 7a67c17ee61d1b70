"""Lazy exports: a package names what it offers without importing the libraries behind it.

What a package offers is written once, in the stub `__init__.pyi` beside its `__init__.py`: type
checkers and editors read the stub as it is, and the package reads the same file when it is
imported. So they cannot differ.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(
    package: str, init_file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns a module-level `__getattr__`, `__dir__` and `__all__` for the names in a stub.

    A name is imported when it is first asked for. The stub's lines
    `from .module import Name as Name` offer names of submodules, with two dots those of packages
    beside this one, and `from . import module as module` offers submodules themselves.

    Args:
      package: the package's `__name__`.
      init_file: the package's `__file__`; the stub lies beside it.
    """
    home = _names_in_stub(pathlib.Path(init_file).with_suffix(".pyi"))

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home[name].strip("."):
            return importlib.import_module(home[name] + name, package)
        return getattr(importlib.import_module(home[name], package), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, list_names, sorted(home)


def _names_in_stub(stub: pathlib.Path) -> dict[str, str]:
    """Returns name -> the module it lives in, with leading dots; only dots for a module itself."""
    return {
        alias.name: "." * statement.level + (statement.module or "")
        for statement in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom) and statement.level > 0
        for alias in statement.names
    }
