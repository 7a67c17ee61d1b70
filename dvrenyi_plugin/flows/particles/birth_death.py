"""Births and deaths of particles: the reaction half of birth-death Langevin dynamics.

A particle with rate b_i = log(kernel density at x_i) + V(x_i), minus its mean over the ensemble,
has an event with probability 1 - exp(-birth_death_rate |b_i| h). If b_i > 0 (too many particles
here) it is removed and a random other particle is copied into its place; if b_i < 0 (too few) it is
copied over a random other particle. Every event removes one particle and copies one, so the count
is constant.

Events of one step happen one after another, in random order, each on the population that the
earlier ones left. A particle that was removed before its turn has no event any more (its
replacement has none in this step either: its own would be of order h^2).

Source: Lu, Lu and Nolen 2019, "Accelerating Langevin sampling with birth-death", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.ranges import check_moderate
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_numbers
from dvrenyi_plugin.flows.particles.kernel_density import KernelDensity

Array = NDArray[np.float64]
Potential = Callable[[Array], Any]


def birth_death_rates(particles: Array, potential: Potential, density: KernelDensity) -> Array:
    """Returns b = log(kernel density) + V at every particle, minus its ensemble mean.

    Args:
      particles: shape (ensembles, particles, d).
      potential: maps (m, d) to (m,).
      density: the kernel density estimate.

    Returns:
      Shape (ensembles, particles); positive where an ensemble has too many particles for its
      target.
    """
    particles = check_numbers("particles", particles)
    if particles.ndim != 3 or not callable(potential):
        raise ValueError(
            "particles must have shape (ensembles, particles, d) and potential must be callable,"
            f" got shape {particles.shape} and {potential!r}"
        )
    flat = particles.reshape(-1, particles.shape[2])
    values = user_numbers("potential", call_user_code("potential", potential, flat), flat.shape[:1])
    check_moderate("potential", values)
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

    Same result as going through the events one by one: skip the event if its owner has been
    removed; else a removal puts a copy of what the partner's slot holds into the owner's slot, and
    a copy puts the owner into the partner's slot. Here every round applies, at once, all events
    that come first at both of their slots: they touch different slots, so their order does not
    matter.

    Args:
      owner: slot of each event's particle, shape (events,), in the order of events; no slot owns
        two.
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


__all__ = ["birth_death_rates", "birth_death_step", "resolve_events"]
