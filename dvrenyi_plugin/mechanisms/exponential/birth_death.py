"""Exponential-mechanism sampling by birth-death Langevin particles, in any dimension."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import Allowed, CheckedSettings, Int, Seed, Switch
from dvrenyi_plugin._internal.ranges import check_positive, check_size
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid import PERIODIC
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    Start,
    children_of,
    simulate_particles,
    uniform_start,
)
from dvrenyi_plugin.interfaces import PrivacyProperty, check_num_samples
from dvrenyi_plugin.mechanisms.exponential.certified_claims import check_alphas, claims_of
from dvrenyi_plugin.mechanisms.exponential.loss_bounds import check_bounds, check_loss_values
from dvrenyi_plugin.mechanisms.exponential.losses import Loss

Array = NDArray[np.float64]

_PARTICLES_PER_BLOCK = 1 << 22
_LONGEST_STEP = 0.02
_LARGEST_BIAS = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class BirthDeathLangevinMechanismConfig(CheckedSettings):
    """Settings of the particle sampler for pi proportional to exp(-inverse_temperature loss).

    Attributes:
      loss: one of `losses`, with its domain, bounds and sensitivity; or any function that maps
        (points of shape (m, d), dataset) to losses of shape (m,), in any dimension.
      inverse_temperature: beta > 0; the potential is beta times the loss.
      run_time: flow time t, >= 0.
      domain: where the released point lives; for a plain function only.
      gradient: maps (points, dataset) to the gradient of the loss, shape (m, d); None for central
        differences.
      loss_bounds: (low, high) of a plain function, for every dataset; a loss outside is an error.
        None: no claim.
      loss_sensitivity: largest oscillation (supremum minus infimum over the domain) of the
        difference between a plain function's losses on two neighbouring datasets, >= 0. None: no
        claim.
      start: maps (generator, count) to points of shape (count, d), without a look at the data; None
        for the uniform law of a bounded domain.
      start_oscillation: supremum minus infimum of the start's log density on a bounded domain, >=
        0; needed for a claim when `start` is given, 0 for the uniform law.
      num_particles: particles of an ensemble, >= 2.
      step_size: longest step, > 0; None takes `default_step`.
      birth_death_rate: multiplies the birth-death intensity, >= 0; 0 is plain Langevin.
      bandwidth: kernel width, one for all axes or one each; None for a default from domain and
        `num_particles` (a bounded domain only).
      ensemble: True releases many particles of one ensemble, which are dependent; False runs one
        independent ensemble for every released sample.
      alphas: orders at which Rényi DP is claimed, each > 1.
      seed: where all randomness comes from, >= 0.
    """

    loss: Callable[[Array, Any], Any]
    inverse_temperature: Annotated[float, Allowed(check_positive)]
    run_time: float
    domain: ParticleDomain | None = None
    gradient: Callable[[Array, Any], Any] | None = None
    loss_bounds: Annotated[tuple[float, float], Allowed(check_bounds)] | None = None
    loss_sensitivity: Annotated[float, Allowed(check_size)] | None = None
    start: Start | None = None
    start_oscillation: Annotated[float, Allowed(check_size)] | None = None
    num_particles: Annotated[int, Int(at_least=2)] = 200
    step_size: float | None = None
    birth_death_rate: float = 1.0
    bandwidth: float | tuple[float, ...] | None = None
    ensemble: Switch = False
    alphas: tuple[float, ...] = (2.0,)
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("loss", "gradient", "start"):
            value = getattr(self, name)
            if not callable(value) and (value is not None or name == "loss"):
                raise ValueError(f"{name} must be callable, got {value!r}")
        # As a float: a float32 would round the claim.
        check_alphas(self.alphas)
        for name in ("domain", "loss_bounds", "loss_sensitivity"):
            if self._is_described_loss and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} must be None when the loss has its own, got {getattr(self, name)!r}"
                )
        if not self._is_described_loss and self.domain is None:
            raise ValueError("domain must be given for a loss that is a plain function, got None")
        for name in ("oscillation", "sensitivity"):
            known = (
                self.potential_oscillation if name == "oscillation" else self.oscillation_distance
            )
            if known is not None:
                check_size(f"inverse_temperature times the loss's {name}", known)
        if self.start_oscillation is not None and self.start is None:
            raise ValueError(
                "start_oscillation must be None when start is None (the uniform law has 0), got"
                f" {self.start_oscillation!r}"
            )
        dynamics = self.dynamics
        if self.start is None:
            uniform_start(dynamics.domain)

    @property
    def _is_described_loss(self) -> bool:
        return hasattr(self.loss, "axis") and hasattr(self.loss, "sensitivity")

    @property
    def particle_domain(self) -> ParticleDomain:
        """Where the released point lives."""
        if self.domain is not None:
            return self.domain
        loss = cast(Loss, self.loss)
        axis = loss.axis(3)
        kind = "torus" if axis.boundary == PERIODIC else "box"
        return ParticleDomain(kind, (axis.low,) * loss.dimension, (axis.high,) * loss.dimension)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lowest and highest loss that any dataset can give, if known."""
        return cast(Loss, self.loss).bounds if self._is_described_loss else self.loss_bounds

    @property
    def potential_oscillation(self) -> float | None:
        """beta times the loss's oscillation, which bounds osc(V_D) over datasets, if known."""
        if self._is_described_loss:
            return self.inverse_temperature * cast(Loss, self.loss).oscillation
        if self.loss_bounds is None:
            return None
        return self.inverse_temperature * (self.loss_bounds[1] - self.loss_bounds[0])

    @property
    def oscillation_distance(self) -> float | None:
        """beta times the sensitivity, which bounds osc(V_D - V_D') over neighbours, if known."""
        if self._is_described_loss:
            return self.inverse_temperature * cast(Loss, self.loss).sensitivity
        if self.loss_sensitivity is None:
            return None
        return self.inverse_temperature * self.loss_sensitivity

    @property
    def default_step(self) -> float:
        """Step taken when `step_size` is None: 0.02, or less for a loss that knows how steep or
        curved it can be.

        Then the Euler moves are off by at most five per cent, for any dataset. Their bias is h K /
        2, relative to the variance, in a well of curvature K, and h G^2 / 2, relative to the mean
        distance, at a kink with slopes G to both sides (`flows.langevin_moves.langevin_step`); K
        and G are beta times the loss's. A loss with both bounds has the milder bias of the two.
        """
        stiffness = []
        if self._is_described_loss:
            beta, loss = self.inverse_temperature, cast(Loss, self.loss)
            if loss.slope is not None:
                stiffness.append((beta * loss.slope) * (beta * loss.slope))
            if loss.curvature is not None:
                stiffness.append(beta * loss.curvature)
        # Below this stiffness the longest step will do.
        mildest = 2.0 * _LARGEST_BIAS / _LONGEST_STEP
        return 2.0 * _LARGEST_BIAS / max(mildest, min(stiffness, default=mildest))

    @property
    def dynamics(self) -> ParticleDynamics:
        """How the particles move."""
        return ParticleDynamics(
            domain=self.particle_domain,
            run_time=self.run_time,
            step_size=self.default_step if self.step_size is None else self.step_size,
            birth_death_rate=self.birth_death_rate,
            bandwidth=self.bandwidth,
        )


class BirthDeathLangevinMechanism:
    """Releases particles of birth-death Langevin ensembles that sample exp(-inverse_temperature
    loss).

    By default one independent ensemble runs for every released sample and one of its particles,
    chosen uniformly, is
    released: rows are independent. With `ensemble=True` the rows are distinct particles of one
    ensemble. They are dependent (copies are common), `independent_samples` is False, and no
    tester's failure probability holds for them.

    What is claimed, and what it is worth: `claimed_privacy` is a certificate of the mean-field
    flow, the limit of infinitely many particles, zero step and zero bandwidth. No theorem carries
    it over to a finite ensemble, so it is a claim to be audited (`claim_is_theorem` is False). It
    speaks of one released particle per ensemble, never of several particles of one ensemble
    together.

    Mean-field certificate: with s = log(rho/pi), Langevin transport does not increase osc(s)
    (maximum principle, also with reflecting walls), and birth-death at rate r multiplies it by
    e^{-r h} in time h. So osc(s_t) <= e^{-r t} osc(s_0), and log rho_t/rho'_t = s_t - s'_t + log
    pi/pi' lies in an interval of width
        w(t) = osc(V - V') + e^{-r t} (R0 + R0'),
        osc(V - V') <= inverse_temperature sensitivity,
        R0, R0' <= inverse_temperature oscillation + start_oscillation.
    Hence w(t)-DP and, by bounded range, w(t)^2/8-zCDP. Rate 1 without a boundary is theorem 1 of
    Mustafi and Mukherjee, "On the Stability of Spherical Hellinger-Kantorovich Flows and Their
    Implications for Differential Privacy".
    """

    claim_is_theorem = False
    claim_basis = (
        "mean-field limit (infinitely many particles, zero step size, zero bandwidth), one released"
        " particle per ensemble; not proved for finite ensembles: audit it"
    )

    def __init__(self, config: BirthDeathLangevinMechanismConfig) -> None:
        self.config = config
        self._calls = 0

    @property
    def independent_samples(self) -> bool:
        """True when the rows of one call are independent; False in ensemble mode."""
        return not self.config.ensemble

    @property
    def mean_field_certificate(self) -> Certificate | None:
        """Certificate of the mean-field flow for all neighbours, or None when a bound it needs is
        not known.

        Its time is the reaction's, birth_death_rate run_time. None on R^d too: a bounded loss has
        no Gibbs law there, and no density there has a log of finite oscillation.
        """
        config = self.config
        if not config.particle_domain.is_bounded:
            return None
        start = 0.0 if config.start is None else config.start_oscillation
        potential, distance = config.potential_oscillation, config.oscillation_distance
        if start is None or potential is None or distance is None:
            return None
        return Certificate(
            time=config.birth_death_rate * config.run_time,
            oscillation_distance=distance,
            initial_oscillation1=potential + start,
            initial_oscillation2=potential + start,
            has_reaction=config.birth_death_rate > 0.0,
        )

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Pure DP, zCDP and Rényi DP at every order of `alphas`, of the mean-field law: claims to
        be audited, see `claim_basis`.

        Empty, which is to say that nothing is claimed, when there is no `mean_field_certificate`,
        and with `ensemble`: the certificate is about one particle, and a call would release many
        that depend on each other.
        """
        certificate = self.mean_field_certificate
        if certificate is None or self.config.ensemble:
            return []
        return claims_of(certificate, self.config.alphas)

    def __call__(self, dataset: Any, num_samples: int) -> Array:
        """Returns released points, shape (num_samples, d); rows are independent unless `ensemble`
        is set.

        Args:
          dataset: whatever `loss` takes.
          num_samples: >= 1; in ensemble mode at most `num_particles`. Every call of one object uses
            fresh randomness, and a new object with the same config repeats the calls.

        Raises:
          ValueError: a loss that is not finite or outside its bounds, or a step too long for the
            gradient.
        """
        config = self.config
        num_samples = check_num_samples(num_samples)
        if config.ensemble and num_samples > config.num_particles:
            raise ValueError(
                f"num_samples must be at most num_particles ({config.num_particles}) in ensemble"
                f" mode, got {num_samples}"
            )
        call_seed = np.random.SeedSequence(config.seed, spawn_key=(self._calls,))
        self._calls += 1
        if config.ensemble:
            choice_seed, particle_seed = children_of(call_seed, 2)
            particles = self._simulate(dataset, 1, particle_seed)[0]
            generator = np.random.default_rng(choice_seed)
            return np.asarray(particles[generator.permutation(config.num_particles)[:num_samples]])
        per_block = max(1, _PARTICLES_PER_BLOCK // config.num_particles)
        firsts = range(0, num_samples, per_block)
        released = []
        for first, block_seed in zip(firsts, children_of(call_seed, len(firsts)), strict=True):
            choice_seed, particle_seed = children_of(block_seed, 2)
            size = min(per_block, num_samples - first)
            particles = self._simulate(dataset, size, particle_seed)
            generator = np.random.default_rng(choice_seed)
            chosen = generator.integers(0, config.num_particles, size=size)
            released.append(particles[np.arange(size), chosen])
        return np.concatenate(released)

    def _simulate(self, dataset: Any, num_ensembles: int, seed: np.random.SeedSequence) -> Array:
        config = self.config
        beta = config.inverse_temperature
        gradient, bounds = config.gradient, config.bounds

        def potential(points: Array) -> Array:
            values = call_user_code("loss", config.loss, points, dataset)
            losses = user_numbers("loss", values, (len(points),), finite=bounds is None)
            if bounds is not None:
                losses = check_loss_values(losses, bounds)
            with np.errstate(over="ignore"):
                return np.asarray(beta * losses)

        def potential_gradient(points: Array) -> Array:
            assert gradient is not None
            slopes = user_numbers(
                "gradient", call_user_code("gradient", gradient, points, dataset), points.shape
            )
            with np.errstate(over="ignore"):
                return np.asarray(beta * slopes)

        run = simulate_particles(
            potential,
            config.start or uniform_start(config.particle_domain),
            config.dynamics,
            num_ensembles=num_ensembles,
            num_particles=config.num_particles,
            seed=seed,
            gradient=None if gradient is None else potential_gradient,
        )
        return run.particles


__all__ = ["BirthDeathLangevinMechanism", "BirthDeathLangevinMechanismConfig"]
