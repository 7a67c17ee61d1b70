"""Domains of particles, and single steps: birth-death events, rates and gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flow_examples import CIRCLE, double_well, make_domain, points_in
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dvrenyi_plugin.flows.particles.birth_death import (
    birth_death_rates,
    birth_death_step,
    resolve_events,
)
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    simulate_particles,
    uniform_start,
)
from dvrenyi_plugin.flows.particles.kernel_density import (
    KernelDensity,
)
from dvrenyi_plugin.flows.particles.langevin_moves import central_difference_gradient


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
