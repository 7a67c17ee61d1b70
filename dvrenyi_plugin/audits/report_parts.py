"""What the reports of all audits share: the claim, the result of one direction, versions, plain JSON."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dvrenyi_plugin import __version__
from dvrenyi_plugin.testers.base import BoundResult

_PACKAGES = ("numpy", "scipy", "torch", "opacus", "dp-accounting", "joblib")
# Distributions that only some audits use, and the module that is loaded when they do.
_OPTIONAL_PACKAGES = {
    "tensorflow": "tensorflow",
    "tensorflow-privacy": "tensorflow_privacy",
    "torchvision": "torchvision",
    "scikit-learn": "sklearn",
    "mlxtend": "mlxtend",
    "distributed": "distributed",
    "ray": "ray",
}


@dataclasses.dataclass(frozen=True)
class TestedLevel:
    """The claim under test.

    Attributes:
      alpha: Rényi order at which it is tested; None for testers of another divergence.
      epsilon: most that the claim allows, on the scale of the bound.
      mu: Gaussian DP parameter that the claim was given as; None if it was not.
    """

    alpha: float | None
    epsilon: float
    mu: float | None = None


@dataclasses.dataclass(frozen=True)
class DirectionReport:
    """One ordering of the two worlds, tested at its share of the failure probability.

    Attributes:
      direction: which world's law is the numerator.
      bound: what the tester returned.
    """

    direction: str
    bound: BoundResult


def too_few_notes(directions: Sequence[DirectionReport], given: int, what: str) -> tuple[str, ...]:
    """Returns a sentence that says how many samples it takes when no bound could have refuted its claim, else nothing.

    Args:
      directions: all bounds of an audit.
      given: samples of each law.
      what: one law's samples in words, such as "models a world".
    """
    fewest = min(
        (entry.bound.fewest_samples or 0.0 for entry in directions),
        default=0.0,
    )
    if fewest <= given:
        return ()
    needed = "not even 10^9 do" if math.isinf(fewest) else f"it takes at least {fewest:,.0f}"
    share = directions[0].bound.failure_probability
    return (
        f"{given} {what} are too few: whatever the mechanism does, they cannot refute this claim. At the failure"
        f" probability {share:g} of each bound {needed}.",
    )


def library_versions() -> dict[str, str]:
    """Returns the versions of this package, of Python and of the libraries: all that every audit may use, and of the
    optional ones those that this process has loaded.
    """
    versions = {"dvrenyi_plugin": __version__, "python": platform.python_version()}
    loaded = [name for name, module in _OPTIONAL_PACKAGES.items() if module in sys.modules]
    for name in (*_PACKAGES, *loaded):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def plain_fields(instance: Any) -> dict[str, Any]:
    """Returns a dataclass's fields by name, not descending into them."""
    return {
        field.name: getattr(instance, field.name)
        for field in dataclasses.fields(instance)
        if field.name != "direction"
    }


def jsonable(value: Any) -> Any:
    """Returns plain dicts, lists, strings and numbers; numbers that are not finite become None."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return jsonable(fields)
    if isinstance(value, Mapping):
        return {str(name): jsonable(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    return str(value)
