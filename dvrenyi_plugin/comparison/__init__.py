"""Testers side by side, on honest and on broken mechanisms."""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
