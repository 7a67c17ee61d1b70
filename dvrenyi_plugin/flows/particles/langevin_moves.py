"""Langevin moves of particles, the transport half of birth-death Langevin, and gradients for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.ranges import check_kind, check_moderate, check_positive
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin._internal.validation import check_numbers
from dvrenyi_plugin.flows.particles.domain import ParticleDomain

Array = NDArray[np.float64]
Potential = Callable[[Array], Any]
Gradient = Callable[[Array], Any]

# A drift of more than a quarter of the domain in one step has nothing to do with the gradient flow.
_LARGEST_DRIFT = 0.25


def langevin_step(
    particles: Array,
    gradient: Gradient,
    domain: ParticleDomain,
    step_size: float,
    generator: np.random.Generator,
) -> Array:
    """Returns particles after one Euler-Maruyama step of d x = -grad V dt + sqrt(2) dW.

    Where V is linear over a step the move is exact, at the walls of a box too. Elsewhere the law
    that a long run
    settles in is off: for V = K x^2 / 2 its variance is 1 / (1 - h K / 2) times too large, and for
    V = G |x| the mean of |x| is 1 + h G^2 / 2 times too large.

    Args:
      particles: shape (..., d).
      gradient: maps (m, d) to (m, d).
      domain: wraps or reflects what leaves it.
      step_size: h > 0.
      generator: source of the noise.

    Raises:
      ValueError: a gradient of another shape or not finite, or a drift that crosses a quarter of
        the domain.
    """
    check_kind("domain", domain, ParticleDomain)
    step_size = check_positive("step_size", step_size)
    particles = check_numbers("particles", particles)
    if particles.ndim == 0 or particles.shape[-1] != domain.dimension:
        raise ValueError(
            f"particles must have shape (..., {domain.dimension}), got {particles.shape}"
        )
    flat = check_moderate("particles", particles.reshape(-1, domain.dimension))
    drift = user_numbers("gradient", call_user_code("gradient", gradient, flat), flat.shape)
    drift = check_moderate("gradient", drift) * step_size
    if domain.is_bounded:
        fastest = np.max(np.abs(drift), axis=0) / domain.lengths
        if np.max(fastest) > _LARGEST_DRIFT:
            raise ValueError(
                f"step_size {step_size:g} is too long for this potential: its gradient moves a"
                f" particle by"
                f" {np.max(fastest):.3g} of the domain's length in one step, {_LARGEST_DRIFT} is"
                f" allowed"
            )
    moved = generator.standard_normal(flat.shape)
    moved *= math.sqrt(2.0 * step_size)
    moved += flat
    moved -= drift
    if domain.kind == "box":
        moved = _reflected_ends(flat, moved, domain, step_size, generator)
    confined = domain.confine(moved).reshape(particles.shape)
    return check_moderate("the particles' coordinates (is step_size too long?)", confined)


def _reflected_ends(
    starts: Array,
    free_ends: Array,
    domain: ParticleDomain,
    step_size: float,
    generator: np.random.Generator,
) -> Array:
    """Returns where Brownian paths with drift end, reflected at the wall nearer to their start.

    A reflected path is the free one pushed inward by as much as it ever was beyond the wall
    (Skorokhod), and between known ends the lowest point of a Brownian path has a closed form. So
    the law is exact for a constant drift, while folding the free end leaves particles that a drift
    g presses against the wall g h / 2 too far from it on average. A step that meets both walls is
    folded at the other one.

    Source: Lépingle (1995), "Euler scheme for reflected stochastic differential equations".
    """
    lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
    starts_low = starts - lower <= upper - starts
    wall, inward = np.where(starts_low, lower, upper), np.where(starts_low, 1.0, -1.0)
    start, end = inward * (starts - wall), inward * (free_ends - wall)
    exponential = generator.standard_exponential(starts.shape)
    lowest = (start + end - np.sqrt((end - start) ** 2 + 4.0 * step_size * exponential)) / 2.0
    return np.asarray(wall + inward * (end - np.minimum(lowest, 0.0)))


def central_difference_gradient(potential: Potential, domain: ParticleDomain) -> Gradient:
    """Returns a gradient of `potential` by central differences, one-sided at the walls of a box.

    The step is 1e-5 of the axis, or 1e-5 (1 + |x|) on an unbounded one: accurate to about 1e-9
    relative for smooth potentials, and a subgradient at kinks.
    """

    def values_at(points: Array) -> Array:
        values = call_user_code("potential", potential, domain.confine(points))
        return check_moderate("potential", user_numbers("potential", values, (len(points),)))

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
            result[:, axis] = (values_at(ends[0]) - values_at(ends[1])) / distance
        return result

    return gradient


__all__ = ["central_difference_gradient", "langevin_step"]
