"""Audits from data to verdict: of DP-SGD (many trained models), and of samplers (exact laws beside
the bounds).
"""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
