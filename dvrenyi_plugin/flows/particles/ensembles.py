"""Birth-death Langevin dynamics: many independent ensembles of interacting particles at once.

The mean-field limit of the particle system is the spherical Hellinger-Kantorovich flow towards
pi = exp(-V) / Z,

    d rho/dt = transport_rate * div(grad rho + rho grad V) - birth_death_rate * (s - E_rho[s]) rho,
    s = log(rho / pi),

where the particles see rho through a kernel density estimate. One step of length h is

1. Langevin (`langevin_moves`): x <- x - grad V(x) h' + sqrt(2 h') xi with h' = transport_rate * h,
then the domain's
   wrap or reflection;
2. birth-death (`birth_death`): particles of which there are too many are removed, those of which
there are too few are
   copied, at the rates that the density estimate gives. The count is constant.

Source: Lu, Lu and Nolen 2019, "Accelerating Langevin sampling with birth-death", Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import Allowed, CheckedSettings
from dvrenyi_plugin._internal.ranges import check_kind, check_positive, check_size, check_step_count
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_int, check_seed
from dvrenyi_plugin.flows.particles.birth_death import birth_death_rates, birth_death_step
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.kernel_density import KernelDensity, default_bandwidth
from dvrenyi_plugin.flows.particles.langevin_moves import (
    Gradient,
    Potential,
    central_difference_gradient,
    langevin_step,
)

Array = NDArray[np.float64]
Start = Callable[[np.random.Generator, int], Any]

_PARTICLES_PER_BATCH = 1 << 14


@dataclasses.dataclass(frozen=True)
class ParticleDynamics(CheckedSettings):
    """How particles move.

    Attributes:
      domain: where they live.
      run_time: flow time t, >= 0.
      step_size: longest step h, > 0; the steps are of equal length and end exactly at `run_time`.
      birth_death_rate: multiplies the birth-death intensity, >= 0; 0 is plain Langevin, bit for
        bit.
      transport_rate: multiplies the Langevin part, >= 0; 0 is pure birth-death.
      bandwidth: kernel width, one number for every axis or one each; None for `default_bandwidth`.
      density_method: "auto", "binned" or "exact", see `KernelDensity`.
    """

    domain: ParticleDomain
    run_time: Annotated[float, Allowed(check_size)]
    step_size: Annotated[float, Allowed(check_positive)] = 0.01
    birth_death_rate: Annotated[float, Allowed(check_size)] = 1.0
    transport_rate: Annotated[float, Allowed(check_size)] = 1.0
    bandwidth: float | tuple[float, ...] | None = None
    density_method: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.domain, ParticleDomain):
            raise ValueError(f"domain must be a ParticleDomain, got {self.domain!r}")
        check_step_count(self.run_time / self.step_size, "run_time and step_size")
        if self.bandwidth is not None or self.domain.is_bounded:
            self.kernel_density(2)
        elif self.birth_death_rate > 0.0:
            default_bandwidth(self.domain, 2)

    @property
    def num_steps(self) -> int:
        """Number of steps taken."""
        # The slack keeps 3 / 0.01 at 300 steps, whichever way the quotient is rounded.
        return math.ceil(self.run_time / self.step_size * (1.0 - 1e-12))

    @property
    def realised_step_size(self) -> float:
        """Length of every step."""
        return self.run_time / self.num_steps if self.num_steps else 0.0

    def kernel_density(self, num_particles: int) -> KernelDensity:
        """Returns the density estimate that ensembles of `num_particles` use."""
        if self.bandwidth is None:
            bandwidth = default_bandwidth(self.domain, num_particles)
        elif isinstance(self.bandwidth, tuple):
            bandwidth = self.bandwidth
        else:
            bandwidth = (self.bandwidth,) * self.domain.dimension
        return KernelDensity(self.domain, bandwidth, self.density_method)


@dataclasses.dataclass(frozen=True)
class ParticleRun:
    """Where a run ended, and what happened on the way.

    Attributes:
      particles: shape (ensembles, particles, d). Ensembles are independent, particles of one are
        not.
      num_steps: steps taken.
      step_size: length of every step.
      num_births_deaths: removals (equal to copies) over all ensembles and steps.
    """

    particles: Array
    num_steps: int
    step_size: float
    num_births_deaths: int


def simulate_particles(
    potential: Potential,
    start: Start | Array,
    dynamics: ParticleDynamics,
    *,
    num_ensembles: int,
    num_particles: int,
    seed: int | np.random.SeedSequence,
    gradient: Gradient | None = None,
) -> ParticleRun:
    """Returns `num_ensembles` independent ensembles after `dynamics.run_time`.

    Langevin noise and birth-death events have separate random streams, so a run with
    `birth_death_rate` 0 has the trajectories of `langevin_step` alone on the noise stream.
    Ensembles are simulated in batches, each with its own child of `seed`.

    Args:
      potential: maps points of shape (m, d) to V, shape (m,).
      start: maps (generator, count) to `count` independent points of shape (count, d); or the
        points themselves, shape (ensembles, particles, d), which are left unchanged.
      dynamics: how particles move.
      num_ensembles: >= 1.
      num_particles: particles of each ensemble, >= 2.
      seed: integer or SeedSequence; a SeedSequence is left as it was found.
      gradient: maps points of shape (m, d) to grad V, shape (m, d); None for central differences of
        `potential`.

    Raises:
      ValueError: bad shapes, non-finite potential or gradient, points outside the domain, or a
        drift that crosses a quarter of the domain in one step (the step is too long for the
        potential).
    """
    check_kind("dynamics", dynamics, ParticleDynamics)
    num_ensembles = check_int("num_ensembles", num_ensembles, at_least=1)
    num_particles = check_int("num_particles", num_particles, at_least=2)
    d = dynamics.domain.dimension
    shape = (num_ensembles, num_particles, d)
    given = None if callable(start) else user_numbers("start", start, shape, finite=False)
    if gradient is None:
        gradient = central_difference_gradient(potential, dynamics.domain)
    per_batch = max(1, _PARTICLES_PER_BATCH // num_particles)
    firsts = range(0, num_ensembles, per_batch)
    result = np.empty(shape)
    events = 0
    for first, batch_seed in zip(firsts, children_of(seed, len(firsts)), strict=True):
        batch = slice(first, min(first + per_batch, num_ensembles))
        size = batch.stop - batch.start
        start_stream, *streams = map(np.random.default_rng, children_of(batch_seed, 3))
        points = (
            _draw_start(cast(Start, start), start_stream, size * num_particles, d)
            if given is None
            else given[batch]
        )
        if not dynamics.domain.contains(points):
            raise ValueError(f"start must be finite and inside the domain {dynamics.domain}")
        particles = points.reshape(size, num_particles, d)
        result[batch], batch_events = _run_batch(particles, potential, gradient, dynamics, *streams)
        events += batch_events
    return ParticleRun(result, dynamics.num_steps, dynamics.realised_step_size, events)


def _draw_start(start: Start, stream: np.random.Generator, count: int, dimension: int) -> Array:
    drawn = call_user_code("start", start, stream, count)
    return user_numbers("start", drawn, (count, dimension), finite=False)


def children_of(seed: int | np.random.SeedSequence, count: int) -> list[np.random.SeedSequence]:
    """Returns the first `count` children of a seed, the same ones on every call."""
    if isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(
            seed.entropy, spawn_key=seed.spawn_key, pool_size=seed.pool_size
        )
    else:
        seed = np.random.SeedSequence(check_seed(seed))
    return seed.spawn(count)


def uniform_start(domain: ParticleDomain) -> Start:
    """Returns a sampler of the uniform law on a bounded domain, a start that needs no look at the
    data.
    """
    check_kind("domain", domain, ParticleDomain)
    if not domain.is_bounded:
        raise ValueError("start must be given on a euclidean domain: it has no uniform law")

    def start(generator: np.random.Generator, count: int) -> Array:
        return generator.uniform(domain.lower, domain.upper, size=(count, domain.dimension))

    return start


def _run_batch(
    particles: Array,
    potential: Potential,
    gradient: Gradient,
    dynamics: ParticleDynamics,
    noise_stream: np.random.Generator,
    event_stream: np.random.Generator,
) -> tuple[Array, int]:
    step = dynamics.realised_step_size
    reacts = dynamics.birth_death_rate > 0.0
    density = dynamics.kernel_density(particles.shape[1]) if reacts else None
    events = 0
    for _ in range(dynamics.num_steps):
        if dynamics.transport_rate > 0.0:
            particles = langevin_step(
                particles, gradient, dynamics.domain, dynamics.transport_rate * step, noise_stream
            )
        if density is not None:
            rates = birth_death_rates(particles, potential, density)
            particles, count = birth_death_step(
                particles, rates, dynamics.birth_death_rate * step, event_stream
            )
            events += count
    return particles, events


__all__ = ["ParticleDynamics", "ParticleRun", "children_of", "simulate_particles", "uniform_start"]
