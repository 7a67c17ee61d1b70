"""The one way in which results become JSON."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(content: Any) -> str:
    """Returns any content as a strict JSON document that ends with a new line.

    NaN and infinity, which JSON does not have, become null.
    """
    return json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"


def jsonable(value: Any, *, as_text: bool = False) -> Any:
    """Returns plain dicts, lists, strings and numbers.

    Args:
      value: anything.
      as_text: NaN and infinity become text that `float` reads back; otherwise they become None.
    """
    clean = functools.partial(jsonable, as_text=as_text)
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return float(value) if math.isfinite(value) else str(float(value)) if as_text else None
        case np.generic():
            return clean(value.item())
        case np.ndarray():
            return clean(value.tolist())
        case Mapping():
            return {str(name): clean(entry) for name, entry in value.items()}
        case list() | tuple():
            return [clean(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return clean(plain_fields(value))
    return str(value)


def plain_fields(instance: Any) -> dict[str, Any]:
    """Returns a dataclass's fields by name, without descending into them."""
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
