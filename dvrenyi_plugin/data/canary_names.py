"""The names of canaries, apart from what makes them, which takes torch to load."""

from __future__ import annotations

from dvrenyi_plugin._internal.validation import check_choice

CANARY_NAMES = ("blank", "clipbkd", "mislabelled", "random")
_FILE_SUFFIX = ".npy"


def check_canary_name(argument: str, name: str) -> str:
    """Returns a name of `CANARY_NAMES` or the path of an `.npy` file; raises ValueError for
    anything else.
    """
    if isinstance(name, str) and is_canary_file(name):
        return name
    return check_choice(argument, name, (*CANARY_NAMES, f"PATH{_FILE_SUFFIX}"))


def is_canary_file(name: str) -> bool:
    """Returns whether the name is that of a file that holds the canary's features."""
    return name.lower().endswith(_FILE_SUFFIX)
