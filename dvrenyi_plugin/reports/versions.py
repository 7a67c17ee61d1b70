"""The versions of everything that an audit may use."""

from __future__ import annotations

import platform
import sys

from dvrenyi_plugin import __version__
from dvrenyi_plugin._internal.extras import installed_versions

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


def library_versions(*also: str) -> dict[str, str]:
    """Returns the versions of this package, of Python and of the installed libraries.

    The libraries are all that every audit may use, and of the optional ones those that this
    process has loaded.

    Args:
      also: names of further distributions, which other processes may have loaded.
    """
    loaded = [name for name, module in _OPTIONAL_PACKAGES.items() if module in sys.modules]
    return {
        "dvrenyi_plugin": __version__,
        "python": platform.python_version(),
        **installed_versions((*_PACKAGES, *loaded, *also)),
    }
