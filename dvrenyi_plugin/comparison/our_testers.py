"""This package's testers in the comparison."""

from __future__ import annotations

import functools
from typing import Any

from dvrenyi_plugin.comparison.registry import OWN_FAMILY, TesterTask, register_tester
from dvrenyi_plugin.testers.registry import kind_of_tester, make


def _build(name: str, task: TesterTask) -> Any:
    return make(name, task.renyi, task.seed)


for _name, _family, _slow in (
    ("sequential", OWN_FAMILY, False),
    ("dv", OWN_FAMILY, True),
    ("threshold", OWN_FAMILY, False),
    # What a Rényi claim implies for events: its curves are polygons that take long to make.
    ("trade_off", OWN_FAMILY, True),
    ("gdp_baseline", "published baseline", False),
):
    register_tester(
        _name,
        family=_family,
        valid_at_stated_level=kind_of_tester(_name).valid_at_stated_level,
        slow=_slow,
        quick=not _slow,
    )(functools.partial(_build, _name))
