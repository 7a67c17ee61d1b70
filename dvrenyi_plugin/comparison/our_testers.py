"""This package's testers in the comparison."""

from __future__ import annotations

from typing import Any

from dvrenyi_plugin.comparison.registry import OWN_FAMILY, TesterTask, register_tester


@register_tester("sequential", family=OWN_FAMILY)
def sequential(task: TesterTask) -> Any:
    """Returns the growth-optimal e-process."""
    from dvrenyi_plugin.testers import (
        SequentialRenyiPropertyTester,
        SequentialRenyiPropertyTesterConfig,
    )

    return SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(privacy_property=task.renyi, seed=task.seed)
    )


@register_tester("dv", family=OWN_FAMILY, slow=True, quick=False)
def donsker_varadhan(task: TesterTask) -> Any:
    """Returns the neural Donsker-Varadhan tester."""
    from dvrenyi_plugin.testers import DvRenyiPropertyTester, DvRenyiPropertyTesterConfig

    return DvRenyiPropertyTester(
        DvRenyiPropertyTesterConfig(privacy_property=task.renyi, seed=task.seed)
    )


@register_tester("threshold", family=OWN_FAMILY)
def threshold(task: TesterTask) -> Any:
    """Returns the 0/1 attack with a held-out threshold."""
    from dvrenyi_plugin.testers import ThresholdAttackTester, ThresholdAttackTesterConfig

    return ThresholdAttackTester(
        ThresholdAttackTesterConfig(privacy_property=task.renyi, seed=task.seed)
    )


@register_tester("gdp_baseline", family="published baseline", holds=False)
def gdp_baseline(task: TesterTask) -> Any:
    """Returns the published baseline as its authors run it: a Gaussian trade-off is assumed, the threshold not held out."""
    from dvrenyi_plugin.testers import GdpBaselineTester, GdpBaselineTesterConfig

    return GdpBaselineTester(GdpBaselineTesterConfig(privacy_property=task.renyi, seed=task.seed))
