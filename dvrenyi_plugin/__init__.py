"""Rényi differential-privacy auditing for DP-Auditorium.

Property testers live in `dvrenyi_plugin.testers`, mechanisms to audit in
`dvrenyi_plugin.mechanisms`, privacy properties and protocols in `dvrenyi_plugin.interfaces`.
Importing this package imports none of the heavy libraries: torch, opacus, tensorflow and matplotlib
are loaded where they are used.
"""

from dvrenyi_plugin._internal.lazy import lazy_exports

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
