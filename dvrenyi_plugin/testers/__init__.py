"""Property testers. Each is built as `XTester(XTesterConfig(privacy_property=p))`."""

from dvrenyi_plugin._lazy import lazy_exports

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "bound_result": ("BoundResult",),
        "dv_renyi_tester": ("DvRenyiPropertyTester", "DvRenyiPropertyTesterConfig"),
        "gdp_baseline_tester": ("GdpBaselineTester", "GdpBaselineTesterConfig"),
        "likelihood_ratio_tester": ("LikelihoodRatioTester", "LikelihoodRatioTesterConfig"),
        "sequential_renyi_tester": (
            "SequentialRenyiPropertyTester",
            "SequentialRenyiPropertyTesterConfig",
        ),
        "threshold_attack_tester": ("ThresholdAttackTester", "ThresholdAttackTesterConfig"),
    },
)
