"""What a user names on the command line as module:name, and the line that its errors become."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
import sysconfig
import traceback
from typing import Any

import dvrenyi_plugin
from dvrenyi_plugin._internal.user_code import call_user_code

_RAISED_BY = "raised by "
# What stands between the user's functions and this program, and raises errors of its own.
_OURS = ("mechanism", "tester")
_LIBRARIES = (
    os.path.dirname(dvrenyi_plugin.__file__),
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    "<",
)
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def load_object(flag: str, text: str | None) -> Any:
    """Returns the object of a module that a flag names.

    Args:
      flag: its name, for messages.
      text: "module:name", or with further dots "package.module:name.attribute"; modules of the
        current folder come first.

    Raises:
      ValueError: another text, no such module or name, or a module that cannot be imported.
    """
    module_name, colon, name = (text or "").partition(":")
    if not colon or not module_name or not name:
        raise ValueError(f"{flag} must be written module:name, got {text!r}")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found = _module(flag, module_name, folder)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [one for one in dir(found) if one[0] != "_"])
            hint = f"; there is {', '.join(near)}" if near else ""
            raise ValueError(f"{flag} must name what is there, {module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def load_data(flag: str, text: str | None) -> Any:
    """Returns the object, see `load_object`; of a function, what it returns without arguments."""
    found = load_object(flag, text)
    return call_user_code(flag, found) if callable(found) else found


def in_one_line(error: Exception) -> str | None:
    """Returns what a user's function raised, with the file and line; None for all other errors."""
    names = [note.removeprefix(_RAISED_BY) for note in getattr(error, "__notes__", ())]
    users = [name for name in names if name not in _OURS]
    if not users:
        return None
    # From another process comes the text of the traceback, as the cause.
    places = _PLACE.findall("".join(traceback.format_exception(error)))
    own = [place for place in places if not place[0].startswith(_LIBRARIES)]
    where = f" ({os.path.basename(own[-1][0])}, line {own[-1][1]})" if own else ""
    return f"{users[0]} raised {type(error).__name__}: {error}{where}"


def _module(flag: str, name: str, folder: str) -> Any:
    try:
        return call_user_code(f"importing {name}", importlib.import_module, name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f"{flag} must name a module that can be imported, got {name!r}, which is neither"
                f" in {folder!r} nor installed"
            ) from None
        raise ValueError(in_one_line(error)) from error
    except Exception as error:  # whatever the module does
        raise ValueError(in_one_line(error)) from error
