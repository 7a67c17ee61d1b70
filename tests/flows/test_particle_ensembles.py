"""Ensembles of particles: flows whose law is known, independence and reproducibility."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flow_examples import CIRCLE, double_well, points_in
from scipy import integrate, stats

from dvrenyi_plugin.flows.particles import ensembles as particles
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    children_of,
    simulate_particles,
    uniform_start,
)
from dvrenyi_plugin.flows.particles.langevin_moves import langevin_step


def double_well_gradient(x):
    return 5.0 * np.sin(2.0 * x)


def one_well_start(generator, count):
    return generator.vonmises(0.0, 5.0, size=(count, 1))


def binned_divergence(points, potential, cells=64):
    """KL of the histogram of points in [-pi, pi) to the exact cell masses of exp(-potential)."""
    edges = np.linspace(-math.pi, math.pi, cells + 1)
    fine = np.linspace(-math.pi, math.pi, cells * 64 + 1)
    middle = (fine[1:] + fine[:-1]) / 2.0
    target = np.exp(-potential(middle[:, np.newaxis])).reshape(cells, 64).sum(axis=1)
    masses = np.histogram(points, edges)[0] / np.size(points)
    return float(stats.entropy(masses, target / target.sum()))


@pytest.mark.parametrize("rate", [0.0, 0, np.float64(0.0)])
def test_rate_zero_is_langevin_bit_for_bit(rate):
    dynamics = ParticleDynamics(CIRCLE, 0.5, 0.01, birth_death_rate=rate)
    start = points_in(CIRCLE, 60, seed=11).reshape(3, 20, 1)
    run = simulate_particles(
        double_well,
        start,
        dynamics,
        num_ensembles=3,
        num_particles=20,
        seed=12,
        gradient=double_well_gradient,
    )
    (batch_seed,) = children_of(12, 1)
    noise = np.random.default_rng(children_of(batch_seed, 3)[1])
    expected = start
    for _ in range(50):
        expected = langevin_step(expected, double_well_gradient, CIRCLE, 0.01, noise)
    np.testing.assert_array_equal(run.particles, expected)
    assert (run.num_steps, run.num_births_deaths) == (50, 0)


def test_langevin_alone_has_the_exact_law_of_the_euler_scheme_on_a_quadratic():
    """Mean and variance of an autoregression; 5 standard errors."""
    h, steps, n = 0.1, 8, 40_000
    domain = ParticleDomain.euclidean(1)
    run = simulate_particles(
        lambda x: x[:, 0] ** 2,
        np.full((2, n // 2, 1), 3.0),
        ParticleDynamics(domain, h * steps, h, birth_death_rate=0.0),
        num_ensembles=2,
        num_particles=n // 2,
        seed=13,
        gradient=lambda x: 2.0 * x,
    )
    factor = 1.0 - 2.0 * h
    variance = 2.0 * h * (1.0 - factor ** (2 * steps)) / (1.0 - factor**2)
    assert run.particles.mean() == pytest.approx(
        3.0 * factor**steps, abs=5.0 * math.sqrt(variance / n)
    )
    assert run.particles.var() == pytest.approx(variance, rel=5.0 * math.sqrt(2.0 / n))


@pytest.mark.parametrize(("rate", "run_time"), [(1.0, 1.0), (2.0, 0.5)])
def test_pure_birth_death_is_the_fisher_rao_flow_of_a_gaussian(rate, run_time):
    """The closed form is rho_t ~ rho_0^a pi^(1-a) with a = e^{-rate t}: a Gaussian, swapped
    branches go the other way.
    """
    domain = ParticleDomain.box([-6.0], [6.0])
    target_mean, target_deviation, n = 1.0, 0.6, 20_000
    run = simulate_particles(
        lambda x: (x[:, 0] - target_mean) ** 2 / (2.0 * target_deviation**2),
        lambda generator, count: generator.standard_normal((count, 1)),
        ParticleDynamics(
            domain, run_time, 0.02 / rate, birth_death_rate=rate, transport_rate=0.0, bandwidth=0.06
        ),
        num_ensembles=1,
        num_particles=n,
        seed=14,
    )
    a = math.exp(-1.0)
    precision = a + (1.0 - a) / target_deviation**2
    mean = (1.0 - a) * target_mean / target_deviation**2 / precision
    assert run.particles.mean() == pytest.approx(mean, abs=0.03)
    assert run.particles.std() == pytest.approx(precision**-0.5, rel=0.03)
    assert np.isin(run.particles, points_from_seed(14, n)).all()


def points_from_seed(seed, n):
    (batch_seed,) = children_of(seed, 1)
    return np.random.default_rng(children_of(batch_seed, 3)[0]).standard_normal((n, 1))


def test_pure_birth_death_moves_mass_to_the_lower_well():
    """Two wells of depth 0 and 1, no motion: log odds follow (1 - e^{-t}) times the difference of
    depth.
    """

    def tilted(x):
        return 0.5 * (1.0 - np.cos(x[:, 0]))

    run = simulate_particles(
        tilted,
        uniform_start(CIRCLE),
        ParticleDynamics(CIRCLE, 0.7, 0.02, transport_rate=0.0),
        num_ensembles=200,
        num_particles=200,
        seed=15,
    )
    strength = 0.5 * (1.0 - math.exp(-0.7))
    expected = (
        integrate.quad(lambda x: math.exp(strength * math.cos(x)), -math.pi / 2, math.pi / 2)[0]
        / integrate.quad(lambda x: math.exp(strength * math.cos(x)), -math.pi, math.pi)[0]
    )
    fraction = (np.cos(run.particles) > 0.0).mean(axis=(1, 2))
    error = fraction.std() / math.sqrt(200)
    assert expected > 0.57
    assert fraction.mean() == pytest.approx(expected, abs=5.0 * error + 0.004)


def test_full_flow_follows_the_exact_gaussian_mean_and_covariance():
    """Gaussians stay Gaussian: m' = -(I + C) P m and C' = 2 I - C P - P C + C - C P C for the
    target N(0, P^-1).
    """
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    start_mean, time = np.array([1.5, -1.0]), 0.6

    def flow(_, state):
        mean, covariance = state[:2], state[2:].reshape(2, 2)
        cp = covariance @ precision
        return np.concatenate(
            [
                -precision @ mean - cp @ mean,
                (2.0 * np.eye(2) - cp - cp.T + covariance - cp @ covariance).ravel(),
            ]
        )

    start_state = np.concatenate([start_mean, 0.5 * np.eye(2).ravel()])
    exact = integrate.solve_ivp(flow, (0.0, time), start_state, rtol=1e-9).y[:, -1]
    run = simulate_particles(
        lambda x: 0.5 * np.einsum("ij,jk,ik->i", x, precision, x),
        lambda generator, count: (
            start_mean + math.sqrt(0.5) * generator.standard_normal((count, 2))
        ),
        ParticleDynamics(ParticleDomain.euclidean(2), time, 0.02, bandwidth=0.2),
        num_ensembles=6,
        num_particles=800,
        seed=16,
        gradient=lambda x: x @ precision,
    )
    cloud = run.particles.reshape(-1, 2)
    np.testing.assert_allclose(cloud.mean(axis=0), exact[:2], atol=0.05)
    np.testing.assert_allclose(np.cov(cloud.T), exact[2:].reshape(2, 2), atol=0.06)


@pytest.fixture(scope="module")
def one_well_runs():
    return {
        rate: simulate_particles(
            double_well,
            one_well_start,
            ParticleDynamics(CIRCLE, 6.0, 0.02, birth_death_rate=rate),
            num_ensembles=1,
            num_particles=20_000,
            seed=17,
            gradient=double_well_gradient,
        )
        for rate in (0.0, 1.0)
    }


def test_birth_death_reaches_both_wells_and_langevin_does_not(one_well_runs):
    assert binned_divergence(one_well_runs[1.0].particles.ravel(), double_well) < 0.03
    assert binned_divergence(one_well_runs[0.0].particles.ravel(), double_well) > 0.3
    assert one_well_runs[1.0].num_births_deaths > 1000
    assert one_well_runs[0.0].num_births_deaths == 0


@pytest.mark.parametrize("kind", ["torus", "box"])
def test_two_dimensional_target_is_reached(kind):
    """Means of two test functions under a product law; 5 standard errors of independent ensembles,
    and 0.03 for the bias of ensembles of 500.
    """
    domain = (
        ParticleDomain.torus(2)
        if kind == "torus"
        else ParticleDomain.box([0.0, 0.0], [math.pi, math.pi])
    )

    def potential(x):
        return -1.5 * np.cos(x[:, 0]) + np.cos(x[:, 1])

    run = simulate_particles(
        potential,
        uniform_start(domain),
        ParticleDynamics(domain, 3.0, 0.05),
        num_ensembles=20,
        num_particles=500,
        seed=18,
    )
    # exp(k cos x) on the circle and on [0, pi] have the same mean of cos x: I1(k) / I0(k).
    for axis, expected in enumerate((0.596, -0.4464)):
        means = np.cos(run.particles[:, :, axis]).mean(axis=1)
        assert means.mean() == pytest.approx(expected, abs=5.0 * means.std() / math.sqrt(20) + 0.03)


def test_ensembles_are_independent_of_each_other():
    """Correlation of neighbouring ensembles' means over 1000 pairs: |r| below 4 / sqrt(1000), false
    alarm 6e-5.
    """
    run = simulate_particles(
        double_well,
        one_well_start,
        ParticleDynamics(CIRCLE, 1.0, 0.05),
        num_ensembles=2000,
        num_particles=10,
        seed=19,
        gradient=double_well_gradient,
    )
    means = np.sin(run.particles[:, :, 0]).mean(axis=1)
    correlation = np.corrcoef(means[0::2], means[1::2])[0, 1]
    assert abs(correlation) < 4.0 / math.sqrt(1000)


def test_a_run_is_reproducible_and_leaves_its_arguments_alone(monkeypatch):
    start = points_in(CIRCLE, 200, seed=20).reshape(20, 10, 1)
    kept = start.copy()
    seed = np.random.SeedSequence(21)
    monkeypatch.setattr(particles, "_PARTICLES_PER_BATCH", 64)
    runs = [
        simulate_particles(
            double_well,
            start,
            ParticleDynamics(CIRCLE, 0.3),
            num_ensembles=20,
            num_particles=10,
            seed=s,
        ).particles
        for s in (seed, seed, 21, 22)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])
    assert not np.any(runs[0] == runs[3])
    # Batches of 6 ensembles must not repeat each other's noise.
    moves = CIRCLE.confine(runs[0] - start)
    assert len(np.unique(moves)) == moves.size
    np.testing.assert_array_equal(start, kept)


def test_a_constant_added_to_the_potential_changes_nothing():
    dynamics = ParticleDynamics(CIRCLE, 0.5)
    runs = [
        simulate_particles(
            lambda x, shift=shift: double_well(x) + shift,
            uniform_start(CIRCLE),
            dynamics,
            num_ensembles=4,
            num_particles=50,
            seed=23,
            gradient=double_well_gradient,
        )
        for shift in (0.0, 1000.0)
    ]
    np.testing.assert_allclose(runs[0].particles, runs[1].particles, atol=1e-9)
    assert runs[0].num_births_deaths == runs[1].num_births_deaths > 0


def test_steps_end_exactly_at_the_run_time():
    assert ParticleDynamics(CIRCLE, 3.0, 0.01).num_steps == 300
    assert ParticleDynamics(CIRCLE, 0.3, 0.1).num_steps == 3
    assert ParticleDynamics(CIRCLE, 1.0, 0.3).num_steps == 4
    assert ParticleDynamics(CIRCLE, 1.0, 0.3).realised_step_size == 0.25
    start = points_in(CIRCLE, 8, seed=24).reshape(2, 4, 1)
    run = simulate_particles(
        double_well, start, ParticleDynamics(CIRCLE, 0.0), num_ensembles=2, num_particles=4, seed=0
    )
    np.testing.assert_array_equal(run.particles, start)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_time": -1.0}, "run_time"),
        ({"run_time": math.nan}, "run_time"),
        ({"step_size": 0.0}, "step_size"),
        ({"birth_death_rate": -0.1}, "birth_death_rate"),
        ({"transport_rate": math.inf}, "transport_rate"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": 4.0}, "bandwidth"),
        ({"bandwidth": (0.1, 0.1)}, "bandwidth"),
        ({"density_method": "magic"}, "method"),
        ({"domain": "circle"}, "domain"),
        ({"domain": ParticleDomain.euclidean(2)}, "bandwidth"),
        ({"domain": ParticleDomain.torus(3), "density_method": "binned"}, "binned"),
    ],
)
def test_bad_dynamics_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ParticleDynamics(**{"domain": CIRCLE, "run_time": 1.0, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_particles": 1}, "num_particles"),
        ({"num_ensembles": 0}, "num_ensembles"),
        ({"num_particles": 5.0}, "num_particles"),
        ({"seed": -1}, "seed"),
        ({"start": np.zeros((2, 5, 2))}, "start"),
        ({"start": np.full((2, 5, 1), 4.0)}, "start"),
        ({"start": np.full((2, 5, 1), math.nan)}, "start"),
        ({"start": lambda generator, count: np.zeros((count, 2))}, "start"),
        ({"potential": lambda x: x}, "potential must give an array of shape"),
        ({"potential": lambda x: np.full(len(x), math.nan)}, "potential must give finite numbers"),
        ({"potential": lambda x: np.full(len(x), math.inf)}, "potential must give finite numbers"),
        ({"gradient": lambda x: x[:, 0]}, "gradient must give an array of shape"),
        ({"gradient": lambda x: x * math.nan}, "gradient must give finite numbers"),
        ({"gradient": lambda x: np.full_like(x, 1e4)}, "too long for this potential"),
    ],
)
def test_bad_simulations_are_refused(changes, message):
    arguments = {
        "potential": double_well,
        "start": uniform_start(CIRCLE),
        "dynamics": ParticleDynamics(CIRCLE, 0.1),
        "num_ensembles": 2,
        "num_particles": 5,
        "seed": 0,
        "gradient": double_well_gradient,
        **changes,
    }
    with pytest.raises(ValueError, match=message):
        simulate_particles(**arguments)
