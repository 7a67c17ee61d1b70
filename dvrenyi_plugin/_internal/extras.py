"""Which packages are installed, and the one sentence about one that is not."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterable


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of those of the named distributions that are installed."""
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def missing_extra(what: str, needs: str, extra: str, reason: object) -> ImportError:
    """Returns the error for something that needs an optional package; its message is one line.

    Args:
      what: what was asked for, such as "dataset digits".
      needs: what is missing, in words.
      extra: the extra of this package that installs it.
      reason: what the import said.
    """
    said = " ".join(str(reason).split())
    return ImportError(
        f'{what} needs {needs}: pip install ".[{extra}]" in a checkout of dvrenyi_plugin ({said})'
    )
