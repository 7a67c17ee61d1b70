"""Measurements of the SHK flows on a grid: experiments, invariants, speed, audits. About six
minutes on one core.

    python benchmarks/shk_flows.py [--section=experiments|invariants|speed|audits]

Every section prints a table; figures quoted in docs/shk.md come from here.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from quick import parse_arguments

from dvrenyi_plugin.audits.samplers.audit import audit_grid_mechanism
from dvrenyi_plugin.audits.samplers.experiment import build_shk_experiment
from dvrenyi_plugin.audits.samplers.settings import (
    MECHANISM_NAMES,
    ShkAuditConfig,
    ShkExperimentConfig,
)
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid import Grid
from dvrenyi_plugin.flows.grid_flow import DYNAMICS, LANGEVIN, SHK, FlowConfig, run_flow
from dvrenyi_plugin.flows.paper.central_rk4 import CENTRAL, REVERSIBLE, rk4_step_count, run_rk4
from dvrenyi_plugin.privacy.divergences import (
    kullback_leibler_from_log_masses,
    renyi_from_log_masses,
)
from dvrenyi_plugin.testers import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

_ALLOWED_ERROR = 1e-6
_TIMES = ((5.0, "t = 5"), (1.0, "t = 1"), (0.3, "t = 0.3"))


def experiment_potentials(grid: Grid, name: str) -> np.ndarray:
    """Returns V and V' of the paper's experiments, shape (2, cells)."""
    x = grid.midpoints()[:, 0]
    base, change = {
        "1 left": (1.2 * (1.0 - np.cos(2.0 * x)), 0.6 * np.sin(x) + 1.0),
        "1 right": (4.0 * (1.0 - np.cos(x)), -0.8 * np.cos(x)),
        "2": (1.0 - np.cos(2.0 * x), 0.45 * np.sin(x)),
        "4": (2.5 * (1.0 - np.cos(2.0 * x)), 0.35 * np.sin(x)),
    }[name]
    return np.stack([base, base + change])


def sup_log_ratio(log_masses: np.ndarray) -> float:
    """Returns the largest absolute log ratio of two laws."""
    return float(np.abs(log_masses[0] - log_masses[1]).max())


def measure_experiments(quick: bool) -> None:
    """Prints the paper's figures beside both schemes' and the certificates."""
    fine, medium = (24, 24) if quick else (192, 160)
    print("\n| experiment | quantity | paper | central RK4 | splitting | exact target |")
    print("|---|---|---|---|---|---|")
    for name, cells, paper in (("1 left", fine, 0.644016), ("1 right", fine, 1.505272)):
        grid = Grid.torus(cells)
        potentials = experiment_potentials(grid, name)
        central = sup_log_ratio(run_rk4(grid, potentials, 5.0))
        path = run_flow(grid, potentials, 5.0)
        floor = sup_log_ratio(path.log_target)
        ours = sup_log_ratio(path.final)
        print(f"| {name} | sup log ratio | {paper} | {central:.6f} | {ours:.9f} | {floor:.9f} |")
    grid = Grid.torus(medium)
    potentials = experiment_potentials(grid, "2")
    central, path = run_rk4(grid, potentials, 5.0), run_flow(grid, potentials, 5.0)
    certificate = Certificate.for_pair(grid, *potentials, 5.0)
    paper_values = {2.0: 0.055881, 3.0: 0.083185, 5.0: 0.133828, 10.0: 0.228820}
    for alpha, paper in paper_values.items():
        values = [
            renyi_from_log_masses(alpha, *law) for law in (central, path.final, path.log_target)
        ]
        row = " | ".join(f"{value:.6f}" for value in values)
        print(f"| 2 | D_{alpha:g} | {paper} | {row} |")
    for alpha in paper_values:
        value = certificate.renyi_dp(alpha)
        print(
            f"certificate D_{alpha:g} <= {value.value:.6f} ({value.source}); paper's bound 0.635315"
        )
    grid = Grid.torus(fine)
    potentials = experiment_potentials(grid, "4")
    start = 5.0 * np.cos(grid.midpoints()[:, 0])
    for dynamics in (SHK, LANGEVIN):
        path = run_flow(grid, potentials, 6.0, start, FlowConfig(dynamics=dynamics))
        kl = kullback_leibler_from_log_masses(path.final[0], path.log_target[0])
        print(
            f"experiment 4, {dynamics}: sup log ratio {sup_log_ratio(path.final):.5f}, KL {kl:.3e}"
        )


def measure_invariants(quick: bool) -> None:
    """Prints the worst violation of contraction and of the certificates over random potentials."""
    rng = np.random.default_rng(0)
    worst_contraction = worst_mass = -np.inf
    ratios = []
    count = 3 if quick else 100
    for k in range(count):
        cells = int(2 ** rng.uniform(4.0, 10.0)) if k else 1024
        grid = Grid.torus(cells)
        x = grid.midpoints()[:, 0]
        waves = np.stack([f(m * x) for m in range(1, 4) for f in (np.cos, np.sin)])
        scale = rng.uniform(0.1, min(4.0, cells / 32.0))
        first = scale * rng.normal(size=6) @ waves
        second = first + rng.uniform(0.0, 0.5) * scale * rng.normal(size=6) @ waves
        num_steps = int(5 * 200 ** rng.random()) if k else 1000
        run_time = rng.uniform(0.1, 8.0)
        potentials = np.stack([first, second])
        path = run_flow(grid, potentials, run_time, config=FlowConfig(num_steps=num_steps))
        allowed = np.exp(-path.step_times)[:, np.newaxis] * path.oscillations[0]
        worst_contraction = max(worst_contraction, float(np.max(path.oscillations - allowed)))
        worst_mass = max(worst_mass, float(np.abs(np.exp(path.final).sum(axis=-1) - 1.0).max()))
        certificate = Certificate.for_pair(grid, first, second, run_time)
        for alpha in (1.25, 2.0, 10.0):
            exact = renyi_from_log_masses(alpha, *path.final)
            ratios.append(exact / certificate.renyi_dp(alpha).value)
    print(f"\n{count} random pairs, 16 to 1,024 cells, 5 to 1,000 steps, t from 0.1 to 8:")
    print(f"largest osc(s_t) - e^-t osc(s_0)             {worst_contraction:.2e}")
    print(f"largest |mass - 1|                           {worst_mass:.2e}")
    print(f"largest exact / certified Renyi divergence   {max(ratios):.4f}")
    grid = Grid.torus(192)
    potential = experiment_potentials(grid, "4")[0]
    for dynamics in DYNAMICS:
        path = run_flow(grid, potential, 5.0, -potential, FlowConfig(dynamics=dynamics))
        print(
            f"pi after t = 5 under {dynamics:<12} off by"
            f" {np.abs(path.final - path.log_target).max():.1e}"
        )


def measure_speed(quick: bool) -> None:
    """Prints the time of the splitting and of the paper's RK4 at equal error, and of large runs."""
    print(
        "\n| cells | law at | steps needed | sup-log error | splitting / s | RK4 steps | RK4 / s |"
        " times faster |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for cells in (24,) if quick else (192, 1024):
        grid = Grid.torus(cells)
        potentials = experiment_potentials(grid, "1 left")
        for run_time, label in ((1.0, "t = 1"),) if quick else _TIMES:
            reference = _reference(grid, potentials, run_time)
            num_steps, error = _steps_needed(grid, potentials, run_time, reference)
            config = FlowConfig(num_steps=num_steps)
            ours = _best_seconds(5, run_flow, grid, potentials, run_time, config=config)
            rk4_steps = rk4_step_count(grid, run_time)
            timed = min(rk4_steps, 4000)
            rk4 = _best_seconds(
                1, run_rk4, grid, potentials, run_time, flux=CENTRAL, max_steps=timed
            )
            rk4 *= rk4_steps / timed
            note = "" if timed == rk4_steps else f" (from {timed} steps)"
            print(
                f"| {cells} | {label} | {num_steps} | {error:.1e} | {ours:.4f} | {rk4_steps} |"
                f" {rk4:.2f}{note} |"
                f" {rk4 / ours:.0f} |"
            )
    grid = Grid.torus(16 if quick else 256, 2)
    points = grid.midpoints()
    plane = 3.0 * (1.0 - np.cos(2.0 * points[:, 0])) + 2.0 * (
        1.0 - np.cos(points[:, 1] - points[:, 0])
    )
    plane = plane.reshape(grid.shape)
    seconds = _best_seconds(1, run_flow, grid, plane, 5.0)
    coarse = run_flow(grid, plane, 5.0).final
    fine = run_flow(grid, plane, 5.0, config=FlowConfig(num_steps=150)).final
    print(
        f"{grid.shape[0]} x {grid.shape[1]} to t = 5, 50 steps: {seconds:.1f} s, off 150 steps by"
        f" {np.abs(coarse - fine).max():.1e}"
    )
    law = run_flow(Grid.torus(192), experiment_potentials(Grid.torus(192), "2")[0], 5.0).final
    for name, a_grid, a_law in (
        ("192 cells", Grid.torus(192), law),
        (f"{grid.shape[0]} x {grid.shape[1]} cells", grid, coarse),
    ):
        generator = np.random.default_rng(0)
        seconds = _best_seconds(1 if quick else 3, a_grid.draw, a_law, 10**6, generator)
        print(f"10^6 draws, {name}: {seconds:.2f} s")


def measure_audits(quick: bool) -> None:
    """Prints how often audits refute the honest and the broken samplers, at failure probability
    0.05.
    """
    testers = {
        "sequential": (SequentialRenyiPropertyTester, SequentialRenyiPropertyTesterConfig),
        "threshold": (ThresholdAttackTester, ThresholdAttackTesterConfig),
    }
    config = ShkAuditConfig(num_samples=500) if quick else ShkAuditConfig()
    print(
        f"\n{config.num_samples:,} releases a dataset, alpha = 2, pair `extreme`, failure"
        f" probability 0.05:"
    )
    print("| mechanism | claim | exact D_2 | tester | refuted | median certified lower bound |")
    print("|---|---|---|---|---|---|")
    for mechanism in MECHANISM_NAMES[:1] if quick else MECHANISM_NAMES:
        for name, (tester_class, config_class) in testers.items():
            seeds = range(1 if quick else 20 if mechanism == "shk" else 3)
            reports = []
            for seed in seeds:
                experiment = build_shk_experiment(
                    ShkExperimentConfig(mechanism=mechanism, seed=seed)
                )
                result = audit_grid_mechanism(
                    experiment.mechanism,
                    lambda p, s=experiment.tester_seed, t=tester_class, c=config_class: t(
                        c(privacy_property=p, seed=s)
                    ),
                    experiment.pair,
                    config,
                )
                reports.append(result.report)
            refuted = sum(report.refuted for report in reports)
            bound = float(np.median([report.lower_bound for report in reports]))
            claim, exact = reports[0].claim.epsilon, reports[0].exact_divergence
            print(
                f"| {mechanism} | {claim:.4g} | {exact:.4g} | {name} | {refuted} of {len(seeds)} |"
                f" {bound:.4g} |",
                flush=True,
            )


def _reference(grid: Grid, potentials: np.ndarray, run_time: float) -> np.ndarray:
    if grid.num_cells <= 192:
        return run_rk4(grid, potentials, run_time, flux=REVERSIBLE)
    # RK4 would take minutes here; Richardson on 2,000 and 4,000 steps of a second-order scheme
    # instead.
    laws = [
        run_flow(grid, potentials, run_time, config=FlowConfig(num_steps=n)).final
        for n in (2000, 4000)
    ]
    return (4.0 * laws[1] - laws[0]) / 3.0


def _steps_needed(
    grid: Grid, potentials: np.ndarray, run_time: float, reference: np.ndarray
) -> tuple[int, float]:
    num_steps = 5
    while True:
        law = run_flow(grid, potentials, run_time, config=FlowConfig(num_steps=num_steps)).final
        error = float(np.abs(law - reference).max())
        if error <= _ALLOWED_ERROR:
            return num_steps, error
        num_steps = int(num_steps * 1.3) + 1


def _best_seconds(repeats: int, run: Callable[..., object], *args: Any, **kwargs: Any) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Runs the sections asked for."""
    sections = {
        "experiments": measure_experiments,
        "invariants": measure_invariants,
        "speed": measure_speed,
        "audits": measure_audits,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--section", choices=tuple(sections), default=None)
    arguments = parse_arguments(parser)
    for name, measure in sections.items():
        if arguments.section in (None, name):
            measure(arguments.quick)


if __name__ == "__main__":
    main()
