"""What every audit reports: one model, its pictures and files, and the templates that show it."""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
