"""The plain settings of a comparison. They import no slow library, so that a command's flags can be
made of them."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    FailureProbability,
    Int,
    OneOf,
    Real,
    Seed,
    Switch,
    Text,
)

HONEST, BROKEN = "honest", "broken"
VARIANTS = (HONEST, BROKEN)
BUILT_IN_MODULES = (
    "dvrenyi_plugin.comparison.subjects",
    "dvrenyi_plugin.comparison.our_testers",
)
# Three weeks: what the system can wait for at once.
_LONGEST_S = 2e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonConfig(CheckedSettings):
    """What is compared, and how often.

    Attributes:
      output_dir: folder of rows, pools and reports; a comparison that was interrupted goes on from
        what is there.
      mechanisms: registered names; empty for all.
      testers: registered names; empty for all.
      variants: any of "honest" and "broken".
      sample_sizes: samples of each law, each >= 20.
      repeats: audits per cell, >= 1.
      slow_repeats: audits per cell of a tester that is registered as slow (neural), >= 1.
      failure_probability: of one audit, in (0, 1): each direction gets half.
      seed: root of every random stream, >= 0.
      num_workers: processes, >= 1. Results do not depend on it.
      timeout_s: seconds after which a cell, or the drawing of a pool, is given up, > 0.
      time_limit_s: seconds after which nothing new is started; unset: no limit.
      retry_failed: run again what ended without a result before.
      modules: dotted names or .py files that register more mechanisms and testers.
    """

    output_dir: Text
    mechanisms: tuple[Text, ...] = ()
    testers: tuple[Text, ...] = ()
    variants: tuple[Annotated[str, OneOf(VARIANTS)], ...] = VARIANTS
    sample_sizes: tuple[Annotated[int, Int(at_least=20)], ...] = (250, 1000, 4000)
    repeats: Count = 20
    slow_repeats: Count = 4
    failure_probability: FailureProbability = 0.05
    seed: Seed = 0
    num_workers: Count = 2
    timeout_s: Annotated[float, Real(above=0.0, at_most=_LONGEST_S)] = 300.0
    time_limit_s: Annotated[float, Real(at_least=0.0, at_most=_LONGEST_S)] | None = None
    retry_failed: Switch = False
    modules: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_dir:
            raise ValueError("output_dir is required: name a folder to write to")
        for name in ("mechanisms", "testers", "variants", "sample_sizes"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                # Its audits would be counted twice.
                raise ValueError(
                    f"{name} must name each one once, got {', '.join(map(str, values))}"
                )
        if not self.variants or not self.sample_sizes:
            raise ValueError("variants and sample_sizes must each hold at least one")

    @property
    def all_modules(self) -> tuple[str, ...]:
        """The modules that register everything named here, files by their absolute paths."""
        files = (os.path.abspath(name) if name.endswith(".py") else name for name in self.modules)
        return (*BUILT_IN_MODULES, *files)
