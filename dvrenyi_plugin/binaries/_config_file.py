"""Flags from a YAML file: what the command line does not say, the file may."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from absl import flags

from dvrenyi_plugin._internal.files import errors_that_name_argument

_NOT_IN_A_FILE = ("config", "help", "version")
_ALIAS = "Alias for --"


def apply_config(path: str, values: flags.FlagValues) -> None:
    """Sets the flags that a YAML file names and the command line does not.

    The file is one mapping, "name: value" with a flag a line; lists stand for flags that take
    several values. Values are read as on the command line, so 1e-5 is a number and 010 is ten.

    Args:
      path: of the file.
      values: parsed flags, which are changed.

    Raises:
      ValueError: no such mapping, a key that is no flag or comes twice, or a value of another kind.
      OSError: the file cannot be read.
    """
    names = [name for name in values if name not in _NOT_IN_A_FILE and len(name) > 1]
    given = {_own_name(name, values) for name in values if values[name].present}
    for key, value in _entries(path):
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"config {path!r} must name flags of this program, got {key!r}{hint}")
        name = _own_name(key, values)
        if name not in given:
            _set(path, values[name], value)


def _own_name(name: str, values: flags.FlagValues) -> str:
    """Returns the name of a flag that may be given by another of its names."""
    flag = values[name]
    if flag.help.startswith(_ALIAS):
        return str(flag.help.removeprefix(_ALIAS).rstrip("."))
    return str(flag.name)


def _set(path: str, flag: Any, value: str | list[str]) -> None:
    kind = flag.flag_type()
    takes_several = "list" in kind or kind.startswith("multi")
    if isinstance(value, list) and not takes_several:
        raise ValueError(f"config {path!r}: {flag.name} must be one value, got a list")
    if isinstance(value, list) and not kind.startswith("multi"):
        value = ",".join(value)
    try:
        flag.parse(value)
    except flags.Error as error:
        raise ValueError(f"config {path!r}: {error}") from None
    flag.using_default_value = False


def _entries(path: str) -> Iterator[tuple[str, str | list[str]]]:
    """Yields key and value of each line, as text."""
    import yaml

    with errors_that_name_argument("config", path), open(path, encoding="utf-8") as file:
        try:
            root = yaml.compose(file, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            raise ValueError(f"config {path!r} must be YAML, got: {error}") from None
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"config {path!r} must be a mapping of flags to values")
    seen = set()
    for key, value in root.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "a key of several parts"
        if name in seen:
            raise ValueError(f"config {path!r} must name each flag once, got {name!r} twice")
        seen.add(name)
        if isinstance(value, yaml.SequenceNode):
            yield name, [_text(path, name, item, yaml) for item in value.value]
        else:
            yield name, _text(path, name, value, yaml)


def _text(path: str, name: str, node: Any, yaml: Any) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
        raise ValueError(
            f"config {path!r}: {name} must be a value or a list of values, got"
            f" {'nothing' if isinstance(node, yaml.ScalarNode) else 'something with parts'}"
        )
    if node.tag.endswith(":bool"):  # yes and on are true, too
        return str(yaml.SafeLoader.bool_values[node.value.lower()]).lower()
    return str(node.value)
