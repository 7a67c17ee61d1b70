"""What decides the observations of a trained model, as text, and its digest.

Rows of two runs may be put together only when everything that decides them is the same; this says
what that is.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import os
import pathlib
import platform
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import dvrenyi_plugin
from dvrenyi_plugin._internal.extras import installed_versions

_LIBRARIES = ("numpy", "scipy", "torch", "opacus", "tensorflow", "tensorflow-privacy")


@dataclasses.dataclass(frozen=True)
class ExperimentFingerprint:
    """An experiment's identity.

    Attributes:
      description: JSON of all that decides the result; large arrays are in it as their SHA-256.
    """

    description: str

    @classmethod
    def of(cls, mechanism: Any, pair: Any) -> ExperimentFingerprint:
        """Returns the fingerprint of training with this mechanism on this pair of neighbouring
        datasets.

        It covers the mechanism's class and settings (its `config`, or its own fields if it is a
        dataclass), the source files that define them, all source files of this package, in which
        training may depend on any other, both datasets bit for bit, and the versions of the
        libraries. It does not cover the make of the processor, on which the last bits of sums of
        floats depend, nor files that a user's own functions import.

        Args:
          mechanism: settings whose dataclass field says `decides_outputs: False` in its metadata
            are left out; the others may hold numbers, text, arrays, tensors, mappings, sequences,
            dataclasses, torch modules, and functions and classes that are defined in files.
          pair: (D, D + canary), of the same kinds.

        Raises:
          ValueError: something in them has no known content, for example a function typed in by
            hand.
        """
        is_settings = dataclasses.is_dataclass(mechanism)
        settings = mechanism if is_settings else getattr(mechanism, "config", None)
        if settings is None:
            raise ValueError(
                "mechanism must be a dataclass or have a `config` for its models to be stored, got"
                f" {_name(type(mechanism))}"
            )
        return cls(
            json.dumps(
                {
                    "mechanism": _content(type(mechanism), ()),
                    "settings": _content(settings, ()),
                    "datasets": _content(pair, ()),
                    "versions": _versions(),
                },
                separators=(",", ":"),
            )
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the description, in hexadecimal."""
        return hashlib.sha256(self.description.encode()).hexdigest()

    def differences(self, other: ExperimentFingerprint) -> list[str]:
        """Returns the names of what differs from another experiment, in the order of the
        description.
        """
        own, others = (dict(_leaves(json.loads(one.description))) for one in (self, other))
        return [name for name in {**own, **others} if own.get(name) != others.get(name)]


def _content(value: Any, above: tuple[int, ...]) -> Any:
    """Returns JSON that two values share only if they are the same.

    `above` holds the ids of the values this one is part of: a recursive function is part of itself.
    """
    if id(value) in above:
        return {"part of itself": above.index(id(value))}
    inside = (*above, id(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return [value.dtype.str, value.item()] if value.dtype.kind in "biuf" else _refuse(value)
    if isinstance(value, bytes):
        return {"bytes": _digest(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return _refuse(value)
        return {"array": [value.dtype.str, list(value.shape), _digest(value.tobytes())]}
    if isinstance(value, Mapping):
        # In the order of the mapping: observed weights follow the order of the initial ones.
        return {
            "mapping": [
                [_content(key, inside), _content(item, inside)] for key, item in value.items()
            ]
        }
    if isinstance(value, (list, tuple, range)):
        return [_content(item, inside) for item in value]
    if isinstance(value, type):
        return _class_content(value)
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: _content(getattr(value, field.name), inside)
            for field in dataclasses.fields(value)
            if field.metadata.get("decides_outputs", True)
        }
        return {"class": _class_content(type(value)), **fields}
    return _torch_content(value, inside) or _function_content(value, inside) or _refuse(value)


def _torch_content(value: Any, above: tuple[int, ...]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return {"tensor": _content(value.detach().cpu().numpy(), above)}
    if isinstance(value, torch.nn.Module):
        return {
            "module": repr(value),
            "class": _class_content(type(value)),
            "state": _content(dict(value.state_dict()), above),
        }
    return None


def _function_content(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, functools.partial):
        return {"partial": _content([value.func, value.args, value.keywords], above)}
    if inspect.ismethod(value):
        return {"method": value.__name__, "of": _content(value.__self__, above)}
    if inspect.isbuiltin(value) or isinstance(value, np.ufunc):
        return {"builtin": value.__name__}
    if not inspect.isfunction(value):
        return None
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    return {
        "function": _name(value),
        # Lambdas of one file share their name.
        "code": _code_digest(value.__code__),
        "source": _source_digest(value),
        "closure": _content([cells, value.__defaults__, value.__kwdefaults__], above),
    }


def _code_digest(code: types.CodeType) -> str:
    # Code inside and frozen sets are left out: their text differs from one process to the next.
    constants = [
        constant
        for constant in code.co_consts
        if isinstance(constant, (bool, int, float, complex, str, bytes))
    ]
    content = (code.co_firstlineno, code.co_code, code.co_names, constants)
    return _digest(repr(content).encode())


def _class_content(value: type) -> Any:
    return {
        "name": _name(value),
        "source": {
            _name(base): _source_digest(base)
            for base in value.__mro__
            if base.__module__ not in ("builtins", "abc", "typing", "collections.abc")
        },
    }


def _source_digest(value: Any) -> str:
    """Returns the digest of the file that defines it."""
    package: str = value.__module__.partition(".")[0]
    if package in ("torch", "dvrenyi_plugin"):
        return package  # Known by its version and, if it is this one, by all of its files.
    try:
        path = inspect.getsourcefile(value)
    except TypeError:
        path = None
    if path is None or not os.path.isfile(path):
        raise ValueError(
            f"{_name(value)} must be defined in a file for its models to be stored, got one that is"
            f" not"
        )
    return _file_digest(path)


@functools.cache
def source_tree_digest(folder: str) -> str:
    """Returns the digest of all Python files below a folder: of their paths in it and their
    contents.
    """
    root = pathlib.Path(folder)
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    content = [(name, _file_digest(os.fspath(files[name]))) for name in sorted(files)]
    return _digest(repr(content).encode())


@functools.cache
def _file_digest(path: str) -> str:
    with open(path, "rb") as file:
        return _digest(file.read())


def _versions() -> dict[str, str]:
    return {
        "dvrenyi_plugin": dvrenyi_plugin.__version__,
        "dvrenyi_plugin source": source_tree_digest(os.path.dirname(dvrenyi_plugin.__file__)),
        "python": platform.python_version(),
        **installed_versions(_LIBRARIES),
    }


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields every part of the description that holds no named parts, with its name."""
    if isinstance(value, dict) and not value.keys() & {"array", "mapping", "tensor", "source"}:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else key)
    else:
        yield name, json.dumps(value)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _refuse(value: Any) -> Any:
    raise ValueError(
        "mechanism and datasets must be made of numbers, text, arrays, dataclasses, torch modules"
        " and"
        f" functions for their models to be stored, got {_name(type(value))}"
    )
