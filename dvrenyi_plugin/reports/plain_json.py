"""The one way in which results become JSON."""

from __future__ import annotations

import dataclasses
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


def jsonable(value: Any) -> Any:
    """Returns plain dicts, lists, strings and numbers; numbers that are not finite become None."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case np.generic():
            return jsonable(value.item())
        case np.ndarray():
            return jsonable(value.tolist())
        case Mapping():
            return {str(name): jsonable(entry) for name, entry in value.items()}
        case list() | tuple():
            return [jsonable(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return jsonable(plain_fields(value))
    return str(value)


def plain_fields(instance: Any) -> dict[str, Any]:
    """Returns a dataclass's fields by name, without descending into them."""
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
