"""What the tests of the comparison share: testers and mechanisms of a user, settings, rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dvrenyi_plugin.comparison.cells import (
    OK,
    CellKey,
    CellResult,
)
from dvrenyi_plugin.comparison.run import Comparison
from dvrenyi_plugin.comparison.settings import HONEST, ComparisonConfig

EXTRA = '''
import os, time
import numpy as np
from dvrenyi_plugin.comparison.registry import (
    AuditSubject, DELTA, NotApplicableError, register_mechanism, register_tester)
from dvrenyi_plugin.interfaces import RenyiDp

class Reads:
    """Returns a number read off the first sample."""
    privacy_property = None
    def __init__(self, read): self.read = read
    def estimate_lower_bound(self, samples1, samples2, failure_probability):
        return self.read(samples1, samples2)
    def reject_property(self, lower_bound): return lower_bound > 1e6

def hang(first, second): time.sleep(600)
def die(first, second): os._exit(7)
def fail(first, second): raise RuntimeError("no\\nluck <b>")
def spoil(first, second):
    total = float(first.sum())
    first[:] = 0.0
    return total

@register_tester("reads")
def reads(task): return Reads(lambda first, second: float(first.sum()))
@register_tester("spoils")
def spoils(task): return Reads(spoil)
@register_tester("hangs")
def hangs(task): return Reads(hang)
@register_tester("dies")
def dies(task): return Reads(die)
@register_tester("fails")
def fails(task): return Reads(fail)
@register_tester("nan_second")
def nan_second(task): return Reads(lambda a, b: 1.0 if a.sum() > b.sum() else float("nan"))
@register_tester("wants_delta", scale=DELTA)
def wants_delta(task): return task.approximate_dp

class Counts:
    def __init__(self): self.next = 0
    def __call__(self, dataset, num_samples):
        self.next += num_samples
        return np.arange(self.next - num_samples, self.next, dtype=float) + dataset

@register_mechanism("counts", pool_size=100)
def counts(broken, seed):
    return AuditSubject(mechanism=Counts(), datasets=(0.0, 1000.0), renyi=RenyiDp(2.0, 1.0))

@register_mechanism("cannot_be_sampled", pool_size=50)
def cannot_be_sampled(broken, seed):
    mechanism = lambda dataset, n: np.full(n, np.nan)
    return AuditSubject(mechanism=mechanism, datasets=(0, 1), renyi=RenyiDp(2.0, 1.0))
'''


def config(tmp_path: Path, **changes: Any) -> ComparisonConfig:
    settings: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "mechanisms": ("gaussian",),
        "testers": ("threshold",),
        "variants": (HONEST,),
        "sample_sizes": (30,),
        "repeats": 2,
        "num_workers": 1,
        "timeout_s": 60.0,
    }
    return ComparisonConfig(**(settings | changes))


def row(
    tester: str,
    variant: str,
    bounds: list[float],
    refuted: int,
    *,
    size: int = 100,
    mechanism: str = "gaussian",
    truth: float | None = 2.0,
) -> CellResult:
    return CellResult(
        key=CellKey(mechanism, variant, size, tester, len(bounds)),
        status=OK,
        claim=1.0,
        truth=truth,
        bounds=tuple((bound, 0.0) for bound in bounds),
        refuted=tuple(i < refuted for i in range(len(bounds))),
        seconds=tuple(0.5 for _ in bounds),
    )


def comparison_of(rows: list[CellResult], testers: tuple[str, ...]) -> Comparison:
    settings = ComparisonConfig(output_dir="x", sample_sizes=(100, 200))
    return Comparison(settings, ("gaussian", "shk"), testers, tuple(rows), 0, {"numpy": "0"})
