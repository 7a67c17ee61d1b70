"""Birth-death Langevin dynamics: many independent ensembles of interacting particles at once.

The mean-field limit of the particle system is the spherical Hellinger-Kantorovich flow towards
pi = exp(-V) / Z,

    d rho/dt = transport_rate * div(grad rho + rho grad V) - birth_death_rate * (s - E_rho[s]) rho,
    s = log(rho / pi),

where the particles see rho through a kernel density estimate. One step of length h is

1. Langevin: x <- x - grad V(x) h' + sqrt(2 h') xi with h' = transport_rate * h, then the domain's wrap or
   reflection;
2. birth-death: b_i = log(kernel density at x_i) + V(x_i), minus its mean over the ensemble. Particle i has an event
   with probability 1 - exp(-birth_death_rate |b_i| h). If b_i > 0 (too many particles here) it is removed and a
   random other particle is copied into its place; if b_i < 0 (too few) it is copied over a random other
   particle. Every event removes one particle and copies one, so the count is constant.

Events of one step happen one after another, in random order, each on the population that the earlier
ones left. A particle that was removed before its turn has no event any more (its replacement has none in this step
either: its own would be of order h^2).

Source: Lu, Lu and Nolen 2019, "Accelerating Langevin sampling with birth-death", Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._validation import check_int, check_real
from dvrenyi_plugin.flows.kernel_density import KernelDensity, default_bandwidth
from dvrenyi_plugin.flows.particle_domain import ParticleDomain

Array = NDArray[np.float64]
Potential = Callable[[Array], Any]
Gradient = Callable[[Array], Any]
Start = Callable[[np.random.Generator, int], Any]

_PARTICLES_PER_BATCH = 1 << 14
# A drift of more than a quarter of the domain in one step has nothing to do with the gradient flow.
_LARGEST_DRIFT = 0.25


@dataclasses.dataclass(frozen=True)
class ParticleDynamics:
    """How particles move.

    Attributes:
      domain: where they live.
      run_time: flow time t, >= 0.
      step_size: longest step h, > 0; the steps are of equal length and end exactly at `run_time`.
      birth_death_rate: multiplies the birth-death intensity, >= 0; 0 is plain Langevin, bit for bit.
      transport_rate: multiplies the Langevin part, >= 0; 0 is pure birth-death.
      bandwidth: kernel width, one number for every axis or one each; None for `default_bandwidth`.
      density_method: "auto", "binned" or "exact", see `KernelDensity`.
    """

    domain: ParticleDomain
    run_time: float
    step_size: float = 0.01
    birth_death_rate: float = 1.0
    transport_rate: float = 1.0
    bandwidth: float | tuple[float, ...] | None = None
    density_method: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.domain, ParticleDomain):
            raise ValueError(f"domain must be a ParticleDomain, got {self.domain!r}")
        check_real("run_time", self.run_time, at_least=0.0)
        check_real("step_size", self.step_size, above=0.0)
        check_real("birth_death_rate", self.birth_death_rate, at_least=0.0)
        check_real("transport_rate", self.transport_rate, at_least=0.0)
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
      particles: shape (ensembles, particles, d). Ensembles are independent, particles of one are not.
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

    Langevin noise and birth-death events have separate random streams, so a run with `birth_death_rate` 0 has
    the trajectories of `langevin_step` alone on the noise stream. Ensembles are simulated in batches, each with
    its own child of `seed`.

    Args:
      potential: maps points of shape (m, d) to V, shape (m,).
      start: maps (generator, count) to `count` independent points of shape (count, d); or the points
        themselves, shape (ensembles, particles, d), which are left unchanged.
      dynamics: how particles move.
      num_ensembles: >= 1.
      num_particles: particles of each ensemble, >= 2.
      seed: integer or SeedSequence; a SeedSequence is left as it was found.
      gradient: maps points of shape (m, d) to grad V, shape (m, d); None for central differences of `potential`.

    Raises:
      ValueError: bad shapes, non-finite potential or gradient, points outside the domain, or a drift that
        crosses a quarter of the domain in one step (the step is too long for the potential).
    """
    num_ensembles = check_int("num_ensembles", num_ensembles, at_least=1)
    num_particles = check_int("num_particles", num_particles, at_least=2)
    d = dynamics.domain.dimension
    shape = (num_ensembles, num_particles, d)
    if not callable(start) and np.shape(start) != shape:
        raise ValueError(f"start must have shape {shape}, got {np.shape(start)}")
    if gradient is None:
        gradient = central_difference_gradient(potential, dynamics.domain)
    per_batch = max(1, _PARTICLES_PER_BATCH // num_particles)
    firsts = range(0, num_ensembles, per_batch)
    result = np.empty(shape)
    events = 0
    for first, batch_seed in zip(firsts, children_of(seed, len(firsts)), strict=True):
        batch = slice(first, min(first + per_batch, num_ensembles))
        size = batch.stop - batch.start
        start_stream, noise_stream, event_stream = (
            np.random.default_rng(child) for child in children_of(batch_seed, 3)
        )
        points = start(start_stream, size * num_particles) if callable(start) else start[batch]
        particles = _starting_points(points, (size, num_particles, d), dynamics.domain)
        result[batch], batch_events = _run_batch(
            particles, potential, gradient, dynamics, noise_stream, event_stream
        )
        events += batch_events
    return ParticleRun(result, dynamics.num_steps, dynamics.realised_step_size, events)


def children_of(seed: int | np.random.SeedSequence, count: int) -> list[np.random.SeedSequence]:
    """Returns the first `count` children of a seed, the same ones on every call."""
    if isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(
            seed.entropy, spawn_key=seed.spawn_key, pool_size=seed.pool_size
        )
    else:
        seed = np.random.SeedSequence(check_int("seed", seed, at_least=0))
    return seed.spawn(count)


def langevin_step(
    particles: Array,
    gradient: Gradient,
    domain: ParticleDomain,
    step_size: float,
    generator: np.random.Generator,
) -> Array:
    """Returns particles after one Euler-Maruyama step of d x = -grad V dt + sqrt(2) dW.

    Args:
      particles: shape (..., d).
      gradient: maps (m, d) to (m, d).
      domain: wraps or reflects what leaves it.
      step_size: h > 0.
      generator: source of the noise.
    """
    flat = particles.reshape(-1, domain.dimension)
    drift = np.asarray(gradient(flat), dtype=np.float64)
    if drift.shape != flat.shape:
        raise ValueError(f"gradient must return shape {flat.shape}, got {drift.shape}")
    _check_finite("gradient", drift)
    drift = drift * step_size
    if domain.is_bounded:
        fastest = np.max(np.abs(drift), axis=0) / domain.lengths
        if np.max(fastest) > _LARGEST_DRIFT:
            raise ValueError(
                f"step_size {step_size:g} is too long for this potential: its gradient moves a particle by"
                f" {np.max(fastest):.3g} of the domain's length in one step, {_LARGEST_DRIFT} is allowed"
            )
    moved = generator.standard_normal(flat.shape)
    moved *= math.sqrt(2.0 * step_size)
    moved += flat
    moved -= drift
    return domain.confine(moved).reshape(particles.shape)


def birth_death_rates(particles: Array, potential: Potential, density: KernelDensity) -> Array:
    """Returns b = log(kernel density) + V at every particle, minus its ensemble mean.

    Args:
      particles: shape (ensembles, particles, d).
      potential: maps (m, d) to (m,).
      density: the kernel density estimate.

    Returns:
      Shape (ensembles, particles); positive where an ensemble has too many particles for its target.
    """
    flat = particles.reshape(-1, particles.shape[2])
    values = np.asarray(potential(flat), dtype=np.float64)
    if values.shape != flat.shape[:1]:
        raise ValueError(f"potential must return shape {flat.shape[:1]}, got {values.shape}")
    _check_finite("potential", values)
    rates = density.log_density(particles) + values.reshape(particles.shape[:2])
    return np.asarray(rates - rates.mean(axis=1, keepdims=True))


def birth_death_step(
    particles: Array,
    rates: Array,
    duration: float,
    generator: np.random.Generator,
) -> tuple[Array, int]:
    """Returns particles after the birth-death events of one step, and how many events took place.

    Args:
      particles: shape (ensembles, particles, d); left unchanged.
      rates: centred rates b, shape (ensembles, particles).
      duration: birth_death_rate * h; 0 gives no event and draws nothing.
      generator: source of events, partners and order.
    """
    if duration == 0.0:
        return particles, 0
    num_ensembles, num_particles, d = particles.shape
    # 1 - exp(-x) by expm1: at a step of 1e-9 the difference would lose every digit.
    happens = generator.random(rates.shape) < -np.expm1(-np.abs(rates) * duration)
    ensemble, member = np.nonzero(happens)
    if ensemble.size == 0:
        return particles, 0
    order = generator.permutation(ensemble.size)
    ensemble, member = ensemble[order], member[order]
    partner = generator.integers(0, num_particles - 1, size=ensemble.size)
    partner += partner >= member
    offset = ensemble * num_particles
    source, num_events = resolve_events(
        offset + member,
        offset + partner,
        rates[ensemble, member] > 0.0,
        num_ensembles * num_particles,
    )
    flat = particles.reshape(-1, d)
    return flat[source].reshape(particles.shape), num_events


def resolve_events(
    owner: NDArray[np.int64],
    partner: NDArray[np.int64],
    is_removal: NDArray[np.bool_],
    num_slots: int,
) -> tuple[NDArray[np.int64], int]:
    """Returns which particle every slot holds after a sequence of events, and how many took place.

    Same result as going through the events one by one: skip the event if its owner has been removed;
    else a removal puts a copy of what the partner's slot holds into the owner's slot, and a copy puts the owner
    into the partner's slot. Here every round applies, at once, all events that come first at both of their
    slots: they touch different slots, so their order does not matter.

    Args:
      owner: slot of each event's particle, shape (events,), in the order of events; no slot owns two.
      partner: the other slot, never the owner's, shape (events,).
      is_removal: True removes the owner, False copies it, shape (events,).
      num_slots: number of particles.
    """
    source = np.arange(num_slots)
    is_original = np.ones(num_slots, dtype=bool)
    first_turn = np.full(num_slots, owner.size)
    pending = np.arange(owner.size)
    num_applied = 0
    while pending.size:
        own, other = owner[pending], partner[pending]
        first_turn[own] = owner.size
        first_turn[other] = owner.size
        np.minimum.at(first_turn, own, pending)
        np.minimum.at(first_turn, other, pending)
        is_first = (first_turn[own] == pending) & (first_turn[other] == pending)
        applies = is_first & is_original[own]
        removal = is_removal[pending]
        overwritten = np.where(removal, own, other)[applies]
        source[overwritten] = source[np.where(removal, other, own)[applies]]
        is_original[overwritten] = False
        num_applied += int(overwritten.size)
        pending = pending[~is_first]
    return source, num_applied


def central_difference_gradient(potential: Potential, domain: ParticleDomain) -> Gradient:
    """Returns a gradient of `potential` by central differences, one-sided at the walls of a box.

    The step is 1e-5 of the axis, or 1e-5 (1 + |x|) on an unbounded one: accurate to about 1e-9 relative for smooth
    potentials, and a subgradient at kinks.
    """

    def gradient(points: Array) -> Array:
        result = np.empty_like(points)
        for axis in range(points.shape[1]):
            ends = []
            for sign in (1.0, -1.0):
                end = points.copy()
                if domain.is_bounded:
                    end[:, axis] += sign * 1e-5 * domain.lengths[axis]
                else:
                    end[:, axis] += sign * 1e-5 * (1.0 + np.abs(points[:, axis]))
                if domain.kind == "box":
                    np.clip(end, domain.lower, domain.upper, out=end)
                ends.append(end)
            distance = ends[0][:, axis] - ends[1][:, axis]
            values = [np.asarray(potential(domain.confine(end)), dtype=np.float64) for end in ends]
            result[:, axis] = (values[0] - values[1]) / distance
        return result

    return gradient


def uniform_start(domain: ParticleDomain) -> Start:
    """Returns a sampler of the uniform law on a bounded domain, a start that needs no look at the data."""
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


def _starting_points(points: Any, shape: tuple[int, int, int], domain: ParticleDomain) -> Array:
    array = np.array(points, dtype=np.float64)
    if array.shape not in (shape, (shape[0] * shape[1], shape[2])):
        raise ValueError(
            f"start must return shape {(shape[0] * shape[1], shape[2])}, got {array.shape}"
        )
    array = array.reshape(shape)
    if not domain.contains(array):
        raise ValueError(f"start must be finite and inside the domain {domain}")
    return array


def _check_finite(name: str, values: Array) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{name} must be finite at every particle, got {int(bad.sum())} NaN or infinite values of"
            f" {values.size}"
        )


__all__ = [
    "ParticleDynamics",
    "ParticleRun",
    "birth_death_rates",
    "birth_death_step",
    "central_difference_gradient",
    "langevin_step",
    "resolve_events",
    "simulate_particles",
    "uniform_start",
]
