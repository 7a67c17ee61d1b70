"""Mechanisms to audit. Each is built as `XMechanism(XMechanismConfig(...))` and called as
`mechanism(dataset, num_samples)`."""

from dvrenyi_plugin._internal.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
