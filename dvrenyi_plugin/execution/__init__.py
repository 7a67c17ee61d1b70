"""Where work runs and where its results are kept: backends, isolated workers, stores,
fingerprints.
"""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
