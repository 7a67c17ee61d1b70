"""Particles: kernel densities that integrate to one, single steps, and flows whose law is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dvrenyi_plugin.flows.particles import ensembles as particles
from dvrenyi_plugin.flows.particles import kernel_density
from dvrenyi_plugin.flows.particles.birth_death import (
    birth_death_rates,
    birth_death_step,
    resolve_events,
)
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    children_of,
    simulate_particles,
    uniform_start,
)
from dvrenyi_plugin.flows.particles.kernel_density import (
    KernelDensity,
    default_bandwidth,
    log_mean_exp,
)
from dvrenyi_plugin.flows.particles.langevin_moves import central_difference_gradient, langevin_step

CIRCLE = ParticleDomain.torus(1)


def make_domain(kind, dimension):
    if kind == "torus":
        return ParticleDomain.torus(dimension, -1.0, 2.0)
    if kind == "box":
        return ParticleDomain.box(
            [-1.0 + axis for axis in range(dimension)],
            [1.5 * axis + 1.0 for axis in range(dimension)],
        )
    return ParticleDomain.euclidean(dimension)


def points_in(domain, count, seed):
    if domain.is_bounded:
        return uniform_start(domain)(np.random.default_rng(seed), count)
    return np.random.default_rng(seed).standard_normal((count, domain.dimension))


# --- domains ---


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e3, 1e3))
def test_confining_wraps_a_torus_and_folds_a_box(x):
    torus, box = ParticleDomain.torus(1, -1.0, 2.0), ParticleDomain.box([-1.0], [2.0])
    wrapped = torus.confine(np.array([[x]]))
    assert torus.contains(wrapped)
    turns = (wrapped[0, 0] - x) / 3.0
    assert turns == pytest.approx(round(turns), abs=1e-9)

    folded = x
    while not -1.0 <= folded <= 2.0:
        folded = -2.0 - folded if folded < -1.0 else 4.0 - folded
    reflected = box.confine(np.array([[x]]))
    assert box.contains(reflected)
    assert reflected[0, 0] == pytest.approx(folded, abs=1e-9)


def test_confining_keeps_points_a_rounding_error_outside():
    for domain in (CIRCLE, ParticleDomain.box([-math.pi], [math.pi])):
        ends = np.array([[-math.pi], [math.pi]])
        points = np.concatenate([np.nextafter(ends, -9.0), ends, np.nextafter(ends, 9.0)])
        assert domain.contains(domain.confine(points))


@pytest.mark.parametrize(
    "build",
    [
        lambda: ParticleDomain.torus(0),
        lambda: ParticleDomain.torus(1, 1.0, 1.0),
        lambda: ParticleDomain.box([0.0, 0.0], [1.0]),
        lambda: ParticleDomain.box([0.0], [math.inf]),
        lambda: ParticleDomain.box([math.nan], [1.0]),
        lambda: ParticleDomain("sphere", (0.0,), (1.0,)),
        lambda: ParticleDomain("euclidean", (0.0,), (1.0,)),
    ],
)
def test_bad_domains_are_refused(build):
    with pytest.raises(ValueError, match="must"):
        build()


# --- kernel densities ---


@pytest.mark.parametrize("kind", ["torus", "box", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("relative_bandwidth", [0.15, 0.5])
def test_a_density_estimate_integrates_to_one(kind, dimension, relative_bandwidth):
    """Also with kernels that wrap round the torus or reach over both walls, and with
    unequal axes.
    """
    domain = make_domain(kind, dimension)
    lengths = domain.lengths if domain.is_bounded else np.full(dimension, 2.0)
    bandwidth = tuple(relative_bandwidth * lengths / (1.0 + 0.2 * np.arange(dimension)))
    members = points_in(domain, 5, seed=dimension)[np.newaxis]
    if domain.is_bounded:
        lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
    else:
        reach = 7.0 * np.asarray(bandwidth)
        lower, upper = members[0].min(axis=0) - reach, members[0].max(axis=0) + reach
    cells = 40 if dimension == 3 else 80
    axes = [
        low + (np.arange(cells) + 0.5) * (high - low) / cells
        for low, high in zip(lower, upper, strict=True)
    ]
    grid = np.array(list(itertools.product(*axes)))
    log_density = KernelDensity(domain, bandwidth).log_density_at(grid, members)
    total = np.exp(log_density).sum() * np.prod((upper - lower) / cells)
    # The midpoint rule is exact to rounding on the smooth periodic kernels and, by evenness, on the
    # box.
    assert total == pytest.approx(1.0, abs=1e-6)


def test_the_euclidean_kernel_is_the_gaussian_with_one_width_an_axis():
    domain = ParticleDomain.euclidean(3)
    widths = np.array([0.3, 1.0, 2.5])
    members, points = points_in(domain, 6, seed=1), points_in(domain, 4, seed=2) + 1e3
    members = members + 1e3
    expected = np.mean(
        [stats.multivariate_normal(m, np.diag(widths**2)).pdf(points) for m in members], axis=0
    )
    estimate = KernelDensity(domain, tuple(widths)).log_density_at(points, members[np.newaxis])
    np.testing.assert_allclose(np.exp(estimate[0]), expected, rtol=1e-8)


def test_a_narrow_periodic_kernel_is_nearly_the_wrapped_gaussian():
    offsets = np.linspace(-0.3, 0.3, 7)
    log_density = KernelDensity(CIRCLE, (0.1,)).log_density_at(
        CIRCLE.confine(math.pi + offsets)[:, np.newaxis], np.full((1, 1, 1), -math.pi)
    )
    np.testing.assert_allclose(log_density[0], stats.norm.logpdf(offsets, scale=0.1), atol=0.04)


@pytest.mark.parametrize("kind", ["torus", "box", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_density_at_the_particles_counts_every_particle_once(monkeypatch, kind, dimension, chunk):
    """The estimate at the particles equals the plain double loop over single-particle densities,
    self included.
    """
    monkeypatch.setattr(kernel_density, "_PAIRS_PER_CHUNK", chunk)
    domain = make_domain(kind, dimension)
    density = KernelDensity(domain, (0.4,) * dimension, "exact")
    ensembles = points_in(domain, 3 * 9, seed=5).reshape(3, 9, dimension)
    estimate = density.log_density(ensembles)
    for ensemble in range(3):
        for i in range(9):
            point = ensembles[ensemble, i : i + 1]
            terms = [
                density.log_density_at(point, ensembles[ensemble : ensemble + 1, j : j + 1])[0, 0]
                for j in range(9)
            ]
            assert estimate[ensemble, i] == pytest.approx(
                math.log(np.mean(np.exp(terms))), abs=1e-10
            )


@pytest.mark.parametrize("kind", ["torus", "box"])
@pytest.mark.parametrize("dimension", [1, 2])
def test_binning_agrees_with_the_exact_sum(monkeypatch, kind, dimension):
    monkeypatch.setattr(kernel_density, "_CELLS_PER_CHUNK", 1 << 14)
    domain = make_domain(kind, dimension)
    ensembles = points_in(domain, 5 * 400, seed=8).reshape(5, 400, dimension)
    # One crowd in a corner, with particles exactly on both ends of the axes.
    ensembles[0] = domain.lower + 0.1 * (ensembles[0] - domain.lower)
    ensembles[0, 0], ensembles[0, 1] = domain.lower, domain.upper
    bandwidth = default_bandwidth(domain, 400)
    exact = KernelDensity(domain, bandwidth, "exact").log_density(ensembles)
    binned = KernelDensity(domain, bandwidth, "binned").log_density(ensembles)
    np.testing.assert_allclose(binned, exact, atol=0.05)
    assert abs(np.mean(binned - exact)) < 0.005


def test_densities_stay_in_the_log_domain_far_from_all_particles():
    domain = ParticleDomain.euclidean(2)
    density = KernelDensity(domain, (0.01, 0.01))
    far = density.log_density_at(np.array([[100.0, 0.0]]), np.zeros((1, 3, 2)))
    assert far[0, 0] == pytest.approx(-0.5e8 + math.log(1.0 / (2.0 * math.pi * 1e-4)), rel=1e-12)


def test_masked_entries_add_nothing_to_a_log_mean_exp():
    values = np.array([[-5.0, -6.0, 700.0, -1e9], [2.0, -math.inf, 0.0, 1.0]])
    mask = np.array([[True, True, False, False], [True, True, False, True]])
    expected = [math.log((math.exp(-5) + math.exp(-6)) / 2), math.log((math.exp(2) + math.e) / 3)]
    np.testing.assert_allclose(log_mean_exp(values, 1, mask), expected, rtol=1e-12)
    np.testing.assert_allclose(log_mean_exp(np.array([-1000.0, -1000.0]), 0), -1000.0, rtol=1e-12)
    with pytest.raises(ValueError, match="at least one entry"):
        log_mean_exp(values, 1, np.zeros_like(mask))


def test_masked_particles_are_not_there():
    members = points_in(CIRCLE, 12, seed=3).reshape(2, 6, 1)
    mask = np.array([[True] * 4 + [False] * 2, [True] * 4 + [False] * 2])
    points = points_in(CIRCLE, 5, seed=4)
    density = KernelDensity(CIRCLE, (0.2,))
    np.testing.assert_allclose(
        density.log_density_at(points, members, mask),
        density.log_density_at(points, members[:, :4]),
        rtol=1e-12,
    )


# --- single steps ---


def naive_events(owner, partner, is_removal, num_slots):
    slots, removed, count = list(range(num_slots)), set(), 0
    for own, other, removal in zip(owner, partner, is_removal, strict=True):
        if own in removed:
            continue
        target, origin = (own, other) if removal else (other, own)
        slots[target] = slots[origin]
        removed.add(target)
        count += 1
    return slots, count


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_simultaneous_rounds_equal_one_event_after_another(num_slots, seed):
    generator = np.random.default_rng(seed)
    owner = generator.permutation(num_slots)[: generator.integers(0, num_slots + 1)]
    partner = (owner + generator.integers(1, num_slots, size=owner.size)) % num_slots
    is_removal = generator.random(owner.size) < 0.5
    source, count = resolve_events(owner, partner, is_removal, num_slots)
    assert (list(source), count) == naive_events(owner, partner, is_removal, num_slots)


@pytest.mark.parametrize("rates", [(1.0, 0.0), (0.0, -1.0), (1.0, -1.0)])
def test_positive_rates_remove_and_negative_rates_copy(rates):
    """With two particles and a certain event, the second one always takes over, in either branch or
    both.
    """
    start = np.array([[[10.0], [20.0]]] * 50)
    after, count = birth_death_step(start, np.array([rates] * 50), 1e6, np.random.default_rng(0))
    assert np.all(after == 20.0)
    # Both events happen when the removal has its turn first; else the removed particle has no turn.
    assert (count == 50) == (0.0 in rates)
    assert 50 <= count < 100
    assert np.all(start[:, 0] == 10.0)


def test_partners_are_uniform_over_the_other_particles():
    """Chi-square with 3 degrees of freedom; false-alarm rate 1e-4 at the fixed seed."""
    start = np.tile(np.arange(5.0)[:, np.newaxis], (4000, 1, 1))
    rates = np.tile([0.0, 0.0, 1.0, 0.0, 0.0], (4000, 1))
    after, _ = birth_death_step(start, rates, 1e6, np.random.default_rng(1))
    np.testing.assert_array_equal(np.delete(after, 2, axis=1), np.delete(start, 2, axis=1))
    counts = np.bincount(after[:, 2, 0].astype(int), minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(np.delete(counts, 2)).pvalue > 1e-4


def test_events_have_the_stated_probability():
    """1 - exp(-|b| rate h), binomial test at 1e-4 with one event-capable particle an ensemble."""
    duration = 0.3
    for b in (0.5, -2.0):
        rates = np.tile([b, 0.0, 0.0], (20_000, 1))
        start = np.tile(np.arange(3.0)[:, np.newaxis], (20_000, 1, 1))
        _, count = birth_death_step(start, rates, duration, np.random.default_rng(2))
        expected = 1.0 - math.exp(-abs(b) * duration)
        assert stats.binomtest(count, 20_000, expected).pvalue > 1e-4


def test_no_event_in_a_step_of_a_billionth():
    start = uniform_start(CIRCLE)
    run = simulate_particles(
        double_well,
        start,
        ParticleDynamics(CIRCLE, 1e-9, 1e-9),
        num_ensembles=1,
        num_particles=20_000,
        seed=0,
    )
    assert run.num_steps == 1
    assert run.num_births_deaths == 0


def test_removals_and_copies_keep_the_population_among_its_members():
    start = points_in(CIRCLE, 300, seed=6).reshape(3, 100, 1)
    rates = np.random.default_rng(7).standard_normal((3, 100)) * 3.0
    after, count = birth_death_step(start, rates, 0.5, np.random.default_rng(8))
    assert after.shape == start.shape
    assert 100 < count < 300
    for ensemble in range(3):
        assert set(after[ensemble, :, 0]) < set(start[ensemble, :, 0])


def test_rates_are_log_density_plus_potential_centred_over_each_ensemble():
    members = points_in(CIRCLE, 40, seed=9).reshape(2, 20, 1)
    density = KernelDensity(CIRCLE, (0.3,))
    rates = birth_death_rates(members, double_well, density)
    raw = density.log_density(members) + double_well(members.reshape(-1, 1)).reshape(2, 20)
    np.testing.assert_allclose(rates, raw - raw.mean(axis=1)[:, np.newaxis], atol=1e-12)
    np.testing.assert_allclose(rates.mean(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("kind", ["torus", "box", "euclidean"])
def test_central_differences_match_the_gradient(kind):
    domain = make_domain(kind, 2)

    def potential(x):
        return np.sin(x[:, 0] * 2.0 * math.pi / 3.0) * np.cos(x[:, 1] * 2.0 * math.pi / 3.0)

    points = points_in(domain, 30, seed=10)
    k = 2.0 * math.pi / 3.0
    expected = k * np.stack(
        [
            np.cos(k * points[:, 0]) * np.cos(k * points[:, 1]),
            -np.sin(k * points[:, 0]) * np.sin(k * points[:, 1]),
        ],
        axis=1,
    )
    np.testing.assert_allclose(
        central_difference_gradient(potential, domain)(points), expected, atol=1e-4
    )


# --- flows with a known law ---


def double_well(x):
    return 2.5 * (1.0 - np.cos(2.0 * x[:, 0]))


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


# --- bad input ---


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


def test_bad_density_input_is_refused():
    density = KernelDensity(CIRCLE, (0.1,))
    for bad in (
        np.zeros((3, 1)),
        np.zeros((1, 3, 2)),
        np.zeros((1, 0, 1)),
        np.full((1, 3, 1), 4.0),
    ):
        with pytest.raises(ValueError, match="particles must"):
            density.log_density(bad)
    with pytest.raises(ValueError, match="points must"):
        density.log_density_at(np.zeros(3), np.zeros((1, 3, 1)))
    with pytest.raises(ValueError, match="uniform law"):
        uniform_start(ParticleDomain.euclidean(1))
