"""Our sequential tester and DP-Auditorium's Rényi tester on the same samples: seconds and bounds.

Needs an environment with both (docs/dp_auditorium.md). Writes docs/against_dp_auditorium.md.

    OMP_NUM_THREADS=1 python benchmarks/against_dp_auditorium.py --repeats 3
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dvrenyi_plugin.testers import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
)

PAGE = Path(__file__).parents[1] / "docs" / "against_dp_auditorium.md"
SIZES = (500, 5_000, 50_000)
REPEATED_UP_TO = 5_000
ALPHAS = (1.25, 2.0)
MU = 1.0
FAILURE_PROBABILITY = 0.05
EPOCHS, BATCH_SIZE, LEARNING_RATE = 50, 400, 1e-3
CRITIC_BOUNDS = (0.5, 1.0, 2.0)


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one sample size and order gave.

    Attributes:
      num_samples: a side.
      alpha: order.
      our_seconds: of every call.
      their_seconds: of every call, whatever the critic bound.
      our_bounds: one for each repeat.
      their_bounds: critic bound -> one for each repeat, NaN included.
    """

    num_samples: int
    alpha: float
    our_seconds: list[float]
    their_seconds: list[float]
    our_bounds: list[float]
    their_bounds: dict[float, list[float]]

    @property
    def truth(self) -> float:
        return self.alpha * MU**2 / 2.0

    @property
    def seconds_ratio(self) -> float:
        return statistics.median(self.their_seconds) / statistics.median(self.our_seconds)

    @property
    def best_of_theirs(self) -> list[float]:
        """Largest bound of each repeat over the critic bounds, chosen later in their favour."""
        return [
            max((b for b in row if not math.isnan(b)), default=math.nan)
            for row in zip(*self.their_bounds.values(), strict=True)
        ]


def claim_of(alpha: float) -> Any:
    from dp_auditorium.configs import privacy_property

    return privacy_property.PrivacyProperty(
        renyi_dp=privacy_property.RenyiDp(alpha=alpha, epsilon=alpha * MU**2 / 2.0)
    )


def their_tester(alpha: float, critic_bound: float) -> Any:
    from dp_auditorium.configs import property_tester_config
    from dp_auditorium.testers import renyi_tester

    return renyi_tester.RenyiPropertyTester(
        property_tester_config.RenyiPropertyTesterConfig(
            alpha=alpha,
            training_config=property_tester_config.TrainingConfig(
                training_epochs=EPOCHS,
                batch_size=BATCH_SIZE,
                optimizer_learning_rate=LEARNING_RATE,
                model_output_coordinate_bound=critic_bound,
            ),
            privacy_property=claim_of(alpha),
        ),
        renyi_tester.make_default_renyi_base_model(),
    )


def timed_bound(tester: Any, samples: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Returns (seconds, lower bound) of one call."""
    start = time.perf_counter()
    bound = float(tester.estimate_lower_bound(*samples, FAILURE_PROBABILITY))
    return time.perf_counter() - start, bound


def measure(num_samples: int, alpha: float, repeats: int, seed: int) -> Cell:
    """Alternates both testers on the same samples, so that a busy machine slows both down."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    ours = SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(claim_of(alpha)))
    theirs = {bound: their_tester(alpha, bound) for bound in CRITIC_BOUNDS}
    warm_up = np.random.default_rng(seed).standard_normal((2, 2 * BATCH_SIZE, 1))
    for tester in (ours, *theirs.values()):
        timed_bound(tester, (warm_up[0], warm_up[1]))  # compiles their training step
    cell = Cell(num_samples, alpha, [], [], [], {bound: [] for bound in CRITIC_BOUNDS})
    streams = np.random.SeedSequence([seed, num_samples, int(100 * alpha)]).spawn(repeats)
    for stream in streams:
        rng = np.random.default_rng(stream)
        samples = (rng.normal(MU, size=(num_samples, 1)), rng.normal(0.0, size=(num_samples, 1)))
        for critic_bound, tester in theirs.items():
            seconds, bound = timed_bound(tester, samples)
            cell.their_seconds.append(seconds)
            cell.their_bounds[critic_bound].append(bound)
            seconds, bound = timed_bound(ours, samples)
            cell.our_seconds.append(seconds)
        cell.our_bounds.append(bound)
    return cell


def range_of(values: list[float], digits: int = 2) -> str:
    if all(math.isnan(value) for value in values):
        return "NaN"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def row_of(cell: Cell) -> str:
    per_critic = "; ".join(
        f"C = {bound:g}: {range_of(values)}" for bound, values in cell.their_bounds.items()
    )
    return " | ".join(
        [
            f"| {cell.num_samples:,}, {cell.alpha:g}",
            f"{statistics.median(cell.our_seconds):.2f}",
            f"{statistics.median(cell.their_seconds):.2f}",
            f"{cell.seconds_ratio:.1f}",
            f"{cell.truth:.3f}",
            range_of(cell.our_bounds),
            f"{per_critic} |",
        ]
    )


def page_of(cells: list[Cell], repeats: int, seed: int) -> str:
    versions = ", ".join(
        f"{name} {version(name)}"
        for name in ("tensorflow", "numpy", "scipy", "google-vizier", "dp-auditorium")
    )
    header = (
        "| n a side, alpha | ours, s | theirs, s | theirs / ours | true D_alpha | our bound"
        " | their bound |"
    )
    return "\n".join(
        [
            "# Against DP-Auditorium's Rényi tester",
            "",
            "N(1, 1) against N(0, 1), lower bounds on D_alpha with failure probability"
            f" {FAILURE_PROBABILITY:g}, both testers on the same samples. Ours is",
            "`SequentialRenyiPropertyTester` as it comes. Theirs is `RenyiPropertyTester` with its"
            " default network,"
            f" {EPOCHS} epochs, batches of {BATCH_SIZE}, learning rate {LEARNING_RATE:g},",
            "once for each critic bound C (`model_output_coordinate_bound`). Seconds are the median"
            " of one"
            " `estimate_lower_bound`, the compilation of their training",
            "step not counted; the two take turns, on one thread. Bounds are the smallest and the"
            " largest of"
            f" {repeats} repeats, of one above {REPEATED_UP_TO:,} samples. A negative bound or NaN"
            f" certifies nothing.",
            "",
            header,
            "|---|---|---|---|---|---|---|",
            *map(row_of, cells),
            "",
            f"Command: `OMP_NUM_THREADS=1 python benchmarks/against_dp_auditorium.py --repeats"
            f" {repeats} --seed {seed}` on"
            f" {os.cpu_count()} cores, Python {platform.python_version()}, {versions}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    # TensorFlow reads these when it is imported, which the next lines do.
    for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(variable, "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import dp_auditorium  # noqa: F401
    except ModuleNotFoundError:
        print("against_dp_auditorium: DP-Auditorium is not installed, nothing measured")
        sys.exit(0)  # the other benchmarks of `make bench` go on
    cells = []
    for num_samples in args.sizes:
        for alpha in ALPHAS:
            repeats = args.repeats if num_samples <= REPEATED_UP_TO else 1
            cells.append(measure(num_samples, alpha, repeats, args.seed))
            print(row_of(cells[-1]), flush=True)
            args.page.write_text(page_of(cells, args.repeats, args.seed), encoding="utf-8")


if __name__ == "__main__":
    main()
