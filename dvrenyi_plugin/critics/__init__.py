"""Critic networks and their training by the Donsker-Varadhan formula of the Rényi divergence. Needs
torch."""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
