"""The one sentence about a package that is not installed."""

from __future__ import annotations


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
