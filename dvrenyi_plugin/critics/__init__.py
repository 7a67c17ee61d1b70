"""Critic networks and their training by the Donsker-Varadhan formula of the Rényi divergence. Needs torch."""

from dvrenyi_plugin._lazy import lazy_exports

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "dv_estimator": ("DvRenyiEstimate", "DvRenyiEstimator", "DvRenyiEstimatorConfig"),
        "networks": ("CriticNetwork", "FittedCritic"),
        "objective": ("donsker_varadhan_value",),
    },
)
