"""Speed and bias of birth-death Langevin particles.

OMP_NUM_THREADS=1 python benchmarks/particles.py                    # all three
OMP_NUM_THREADS=1 python benchmarks/particles.py --report=speed     # about 1 minute on one core
OMP_NUM_THREADS=1 python benchmarks/particles.py --report=wells     # about 10 seconds
OMP_NUM_THREADS=1 python benchmarks/particles.py --report=bias      # about 2 minutes
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from quick import parse_arguments
from scipy import special, stats

from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    ParticleRun,
    Start,
    simulate_particles,
    uniform_start,
)

Array = NDArray[np.float64]


def double_well(x: Array) -> Array:
    """2.5 (1 - cos 2x): two wells with standard deviation about 0.32."""
    return np.asarray(2.5 * (1.0 - np.cos(2.0 * x[:, 0])))


def double_well_gradient(x: Array) -> Array:
    return np.asarray(5.0 * np.sin(2.0 * x))


def product_well(x: Array) -> Array:
    """The same wide well on every axis: -1.5 cos x."""
    return np.asarray(-1.5 * np.cos(x).sum(axis=1))


def product_well_gradient(x: Array) -> Array:
    return np.asarray(1.5 * np.sin(x))


def one_well_start(generator: np.random.Generator, count: int) -> Array:
    """Von Mises law of concentration 5 around 0: all in one of the double well's two wells."""
    return generator.vonmises(0.0, 5.0, size=(count, 1))


def timed_run(
    potential: Callable[[Array], Array],
    gradient: Callable[[Array], Array],
    start: Start,
    dynamics: ParticleDynamics,
    num_ensembles: int,
    num_particles: int,
    seed: int = 0,
) -> tuple[ParticleRun, float]:
    started = time.process_time()
    run = simulate_particles(
        potential,
        start,
        dynamics,
        num_ensembles=num_ensembles,
        num_particles=num_particles,
        seed=seed,
        gradient=gradient,
    )
    return run, time.process_time() - started


def report_speed(fewer: int) -> None:
    print("domain d ensembles particles steps cpu-seconds particle-steps/cpu-second")
    cases = [
        (ParticleDomain.torus(1), 2000, 200, 3.0, 0.02),
        (ParticleDomain.torus(1), 1, 20_000, 6.0, 0.02),
        (ParticleDomain.torus(2), 200, 200, 1.0, 0.02),
        (ParticleDomain.torus(2), 1, 20_000, 1.0, 0.02),
        (ParticleDomain.box([-math.pi], [math.pi]), 500, 200, 1.0, 0.02),
        (ParticleDomain.torus(3), 200, 200, 0.5, 0.02),
        (ParticleDomain.euclidean(5), 200, 200, 0.5, 0.02),
    ]
    for domain, most_ensembles, most_particles, run_time, step in cases:
        ensembles = max(1, most_ensembles // fewer)
        count = most_particles if most_ensembles > 1 else most_particles // fewer
        is_first = domain.dimension == 1
        dynamics = ParticleDynamics(
            domain, run_time, step, bandwidth=None if domain.is_bounded else 0.5
        )
        start = (
            uniform_start(domain)
            if domain.is_bounded
            else lambda generator, size: generator.standard_normal((size, 5))
        )
        run, seconds = timed_run(
            double_well if is_first else product_well,
            double_well_gradient if is_first else product_well_gradient,
            start,
            dynamics,
            ensembles,
            count,
        )
        work = ensembles * count * run.num_steps
        print(
            f"{domain.kind} {domain.dimension} {ensembles} {count} {run.num_steps}"
            f" {seconds:.2f} {work / seconds:.3g}"
        )


def report_wells(fewer: int) -> None:
    edges = np.linspace(-math.pi, math.pi, 65)
    fine = np.linspace(-math.pi, math.pi, 64 * 64 + 1)
    middle = (fine[1:] + fine[:-1]) / 2.0
    target = np.exp(-double_well(middle[:, np.newaxis])).reshape(64, 64).sum(axis=1)
    target /= target.sum()
    print("rate seed KL(64 cells) share-in-first-well cpu-seconds")
    for rate in (1.0, 0.0):
        for seed in range(3):
            run, seconds = timed_run(
                double_well,
                double_well_gradient,
                one_well_start,
                ParticleDynamics(ParticleDomain.torus(1), 6.0, 0.02, birth_death_rate=rate),
                1,
                20_000 // fewer,
                seed,
            )
            masses = np.histogram(run.particles.ravel(), edges)[0] / run.particles.size
            share = float((np.cos(run.particles) > 0.0).mean())
            print(f"{rate:g} {seed} {stats.entropy(masses, target):.5f} {share:.4f} {seconds:.2f}")


def report_bias(fewer: int) -> None:
    exact = float(special.i1e(1.5) / special.i0e(1.5))
    print(f"E cos x under exp(1.5 cos x) is {exact:.4f}; bias (standard error) of ensembles, t = 4")
    for dimension, sizes in ((1, (20, 50, 200, 1000, 10_000)), (2, (20, 50, 200, 1000))):
        domain = ParticleDomain.torus(dimension)
        for size in sizes if fewer == 1 else sizes[:2]:
            ensembles = max(4, (40_000 if dimension == 1 else 20_000) // size // fewer)
            run, _ = timed_run(
                product_well,
                product_well_gradient,
                uniform_start(domain),
                ParticleDynamics(domain, 4.0, 0.02),
                ensembles,
                size,
            )
            means = np.cos(run.particles).mean(axis=(1, 2))
            print(
                f"d={dimension} particles={size} {means.mean() - exact:+.4f}"
                f" ({means.std(ddof=1) / math.sqrt(ensembles):.4f})"
            )


def main() -> None:
    reports = {"speed": report_speed, "wells": report_wells, "bias": report_bias}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", choices=tuple(reports), help="one of them; unset: all")
    arguments = parse_arguments(parser)
    for name, report in reports.items():
        if arguments.report in (None, name):
            # With --quick a hundredth of the particles.
            report(100 if arguments.quick else 1)


if __name__ == "__main__":
    main()
