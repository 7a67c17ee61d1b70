"""Rényi differential-privacy auditing for DP-Auditorium.

Property testers live in `dvrenyi_plugin.testers`, mechanisms to audit in `dvrenyi_plugin.mechanisms`,
privacy properties and protocols in `dvrenyi_plugin.interfaces`. Importing this package imports none of
the heavy libraries: torch, opacus, tensorflow and matplotlib are loaded where they are used.
"""

__version__ = "0.1.0"
