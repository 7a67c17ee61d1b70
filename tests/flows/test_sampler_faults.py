"""Samplers and flows: faults that were found once, each with the value that is right."""

from __future__ import annotations

import math
import pathlib
import time
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid import Axis, Grid
from dvrenyi_plugin.flows.grid_flow import FlowConfig, run_flow
from dvrenyi_plugin.flows.paper.central_rk4 import run_rk4
from dvrenyi_plugin.flows.paper.gaussian_flows import gaussian, wfr_flow
from dvrenyi_plugin.flows.paper.kl_stability import (
    KlConstants,
    best_young_parameter,
    kl_bound,
    kl_bound_integral,
    kl_plateau,
)
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.ensembles import (
    ParticleDynamics,
    simulate_particles,
    uniform_start,
)
from dvrenyi_plugin.flows.stability import pair_constants
from dvrenyi_plugin.flows.utility import best_target_excess_bound
from dvrenyi_plugin.mechanisms.exponential.birth_death import (
    BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.exact import (
    ExponentialMechanism,
    ExponentialMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.losses import (
    CallableLoss,
    CircularMeanLoss,
    MeanLoss,
    QuantileLoss,
)
from dvrenyi_plugin.mechanisms.exponential.shk import (
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
)
from dvrenyi_plugin.privacy.bounded_range import kullback_leibler_of_range

RECORDS = np.array([[0.2], [0.3], [-0.4]])


# --- E2: user functions that change what they are given ---


def loss(points: Any, dataset: Any) -> Any:
    return np.mean(1.0 - np.cos(points - dataset.T), axis=1)


def loss_gradient(points: Any, dataset: Any) -> Any:
    return np.mean(np.sin(points - dataset.T), axis=1, keepdims=True)


def changes_its_arguments(function: Any) -> Any:
    def changed(points: Any, dataset: Any) -> Any:
        result = function(points, dataset)
        points *= 0.1
        dataset += 1.0
        return result

    return changed


def fills_one_buffer(function: Any) -> Any:
    buffers: dict[Any, Any] = {}

    def filled(points: Any, dataset: Any) -> Any:
        result = function(points, dataset)
        buffer = buffers.setdefault(result.shape, np.empty_like(result))
        buffer[...] = result
        return buffer

    return filled


HABITS = [changes_its_arguments, fills_one_buffer]


def particles_of(loss: Any, gradient: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "domain": ParticleDomain.torus(1),
        "inverse_temperature": 4.0,
        "run_time": 0.3,
        "step_size": 0.05,
        "num_particles": 10,
        **changes,
    }
    config = BirthDeathLangevinMechanismConfig(loss=loss, gradient=gradient, **settings)
    dataset = RECORDS.copy()
    released = BirthDeathLangevinMechanism(config)(dataset, 6)
    assert np.array_equal(dataset, RECORDS)
    return released


@pytest.mark.parametrize("habit", HABITS)
def test_e2_particles_do_not_see_what_a_loss_or_gradient_does_to_its_points(habit: Any) -> None:
    pure = particles_of(loss, loss_gradient)
    assert np.array_equal(pure, particles_of(habit(loss), loss_gradient))
    assert np.array_equal(pure, particles_of(loss, habit(loss_gradient)))
    numerical = particles_of(loss, None)
    assert np.array_equal(numerical, particles_of(habit(loss), None))


@pytest.mark.parametrize("habit", HABITS)
def test_e2_grids_do_not_see_what_a_loss_does_to_its_points(habit: Any) -> None:
    laws = []
    for function in (loss, habit(loss)):
        described = CallableLoss(function=function, bounds=(0.0, 2.0), sensitivity=1.0)
        config = ShkExponentialMechanismConfig(
            loss=described, inverse_temperature=4.0, run_time=1.0
        )
        mechanism, dataset = ShkExponentialMechanism(config), RECORDS.copy()
        # Another dataset first: the points of the second call must not be those that the first left
        # behind.
        mechanism.grid_law(dataset - 0.5)
        laws.append([mechanism.grid_law(dataset), mechanism.grid_law(dataset + 1.0)])
        assert np.array_equal(dataset, RECORDS)
    assert np.array_equal(laws[0], laws[1])


def test_e2_a_start_or_potential_that_changes_its_points() -> None:
    def potential(points: Any) -> Any:
        values = 1.0 - np.cos(points[:, 0])
        points[:] = 0.0
        return values

    def start(points: Any) -> Any:
        return potential(points)

    pure = Grid.torus(16).evaluate(lambda points: 1.0 - np.cos(points[:, 0]))
    assert np.array_equal(Grid.torus(16).evaluate(start), pure)
    domain = ParticleDomain.torus(1)
    runs = [
        simulate_particles(
            function,
            uniform_start(domain),
            ParticleDynamics(domain, 0.3, 0.05),
            num_ensembles=2,
            num_particles=8,
            seed=0,
        ).particles
        for function in (lambda points: 1.0 - np.cos(points[:, 0]), potential)
    ]
    assert np.array_equal(runs[0], runs[1])


@pytest.mark.parametrize(
    "function",
    [
        lambda points, dataset: list(loss(points, dataset)),
        lambda points, dataset: pytest.importorskip("torch").tensor(
            loss(points, dataset), requires_grad=True
        ),
    ],
)
def test_e2_lists_and_tensors_are_values_too(function: Any) -> None:
    assert np.array_equal(particles_of(function, None), particles_of(loss, None))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda points, dataset: loss(points, dataset)[:-1], "loss must give an array of shape"),
        (lambda points, dataset: None, "loss must give numbers"),
        (lambda points, dataset: "text", "loss must give numbers"),
        (lambda points, dataset: np.full(len(points), math.nan), "loss must give finite numbers"),
        (
            lambda points, dataset: np.full(len(points), 1e200),
            "potential must be finite and at most",
        ),
    ],
)
def test_e2_what_is_no_loss_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        particles_of(function, loss_gradient)


# --- E4: the bias of the Euler step ---


def released_and_exact(described: Any, beta: float, record: float) -> tuple[Any, Any, Any]:
    """Distances to the record of one large ensemble; the same of the target, with its masses."""
    dataset = np.full((20, 1), record)
    config = BirthDeathLangevinMechanismConfig(
        loss=described,
        inverse_temperature=beta,
        run_time=1.5,
        num_particles=4_000,
        ensemble=True,
    )
    released = BirthDeathLangevinMechanism(config)(dataset, 4_000)[:, 0]
    target = ExponentialMechanism(
        ExponentialMechanismConfig(loss=described, inverse_temperature=beta, cells=4_000)
    )
    masses = np.exp(target.grid_law(dataset))
    return np.abs(released - record), np.abs(target.grid.midpoints()[:, 0] - record), masses


def test_e4_a_quantile_against_a_wall() -> None:
    distances, cells, masses = released_and_exact(QuantileLoss(num_records=20), 20.0, 0.0)
    assert masses @ cells == pytest.approx(0.100, abs=5e-4)
    # Five standard errors of 4,000 particles that depend on each other a little, plus the density
    # estimate's bias.
    assert distances.mean() == pytest.approx(0.100, abs=0.012)
    assert np.mean(distances < 0.05) == pytest.approx(0.393, abs=0.045)


def test_e4_a_kink_inside_and_a_narrow_well() -> None:
    for described, record in ((QuantileLoss(num_records=20), 0.5), (MeanLoss(num_records=20), 0.5)):
        distances, cells, masses = released_and_exact(described, 20.0, record)
        assert distances.mean() == pytest.approx(masses @ cells, rel=0.12)


def test_e4_reflection_is_exact_for_a_constant_drift_at_any_step() -> None:
    domain = ParticleDomain.box([0.0], [10.0])
    dynamics = ParticleDynamics(domain, 30.0, 0.5, birth_death_rate=0.0)
    run = simulate_particles(
        lambda points: 2.0 * points[:, 0],
        np.full((1, 40_000, 1), 0.5),
        dynamics,
        num_ensembles=1,
        num_particles=40_000,
        seed=0,
        gradient=lambda points: np.full_like(points, 2.0),
    )
    # Exp(2): mean and standard deviation 1/2; folding instead would give 1.0.
    assert run.particles.mean() == pytest.approx(0.5, abs=5.0 * 0.5 / 200.0)
    share = 1.0 - math.exp(-0.5)
    assert np.mean(run.particles < 0.25) == pytest.approx(share, abs=5.0 * 0.5 / 200.0)


def test_e4_the_default_step_follows_slope_and_curvature() -> None:
    def step(described: Any, beta: float) -> float:
        config = BirthDeathLangevinMechanismConfig(
            loss=described, inverse_temperature=beta, run_time=0.0
        )
        return config.dynamics.step_size

    assert step(CircularMeanLoss(num_records=5), 5.0) == 0.02
    assert step(CircularMeanLoss(num_records=5), 50.0) == pytest.approx(0.002)
    assert step(MeanLoss(num_records=5), 20.0) == pytest.approx(0.0025)
    assert step(QuantileLoss(num_records=5), 20.0) == pytest.approx(0.001)
    plain = BirthDeathLangevinMechanismConfig(
        loss=loss, inverse_temperature=50.0, run_time=0.0, domain=ParticleDomain.torus(1)
    )
    assert plain.dynamics.step_size == 0.02


# --- F7: extreme numbers ---


def test_f7_inverse_temperature_without_end() -> None:
    for beta in (1e308, 1e200):
        with pytest.raises(ValueError, match="inverse_temperature must be a finite number"):
            ExponentialMechanismConfig(
                loss=CircularMeanLoss(num_records=5), inverse_temperature=beta
            )
    with pytest.raises(ValueError, match="grid too coarse"):
        ExponentialMechanismConfig(loss=CircularMeanLoss(num_records=5), inverse_temperature=1e99)


def test_f7_values_and_refusals() -> None:
    assert kullback_leibler_of_range(1e160) == 1e160
    for bad in ([math.nan], [], [math.inf], [1e308, -1e308]):
        with pytest.raises(ValueError, match="loss_values"):
            best_target_excess_bound(bad, 1.0)
    assert kl_plateau(KlConstants(0.45, 1.0, 800.0, 1.0), 0.5) == math.inf
    assert Certificate(1e308, 1.0, 1e100, 1e100).pure_dp().value > 1.0
    with pytest.raises(ValueError, match="low and high"):
        Axis(-1e308, 1e308)
    with pytest.raises(ValueError, match="low and high"):
        Axis(1e16, 1e16 + 4.0, 100)
    with pytest.raises(ValueError, match="cells must be an integer"):
        Grid.torus(10**12)
    with pytest.raises(ValueError, match="potential must be finite and at most 1e\\+100"):
        run_flow(Grid.torus(8), np.full(8, 1e200), 1.0, None, FlowConfig(max_jump=math.inf))


def test_f7_the_integral_form_at_late_times() -> None:
    constants = KlConstants(0.45, 0.9, 2.0, 0.5)
    for late in (10.0, 1e3, 1e6, 1e12):
        bound = kl_bound_integral(constants, late, 0.5)
        # The rate has recovered: at late times the plateau is that of an initial oscillation of 0.
        recovered = kl_plateau(KlConstants(0.45, 0.9, 0.0, 0.5), 0.5)
        assert recovered * 0.99 <= bound <= kl_bound(constants, late, 0.5)
    assert bound == pytest.approx(recovered, rel=1e-6)
    assert best_young_parameter(constants, 1e12)[1] == pytest.approx(kl_plateau(constants, 0.5))


# --- F8 and F17: runs without end ---


def test_f8_gaussian_flows_at_any_time_and_width() -> None:
    for variance, late in ((1e-6, 1.0), (2.0, 1e4), (1e-100, 1e308)):
        law = wfr_flow(gaussian([0.0], [[1.0]]), gaussian([1.0], [[variance]]), late)
        assert law.covariance[0, 0] == pytest.approx(variance)
        assert law.mean[0] == pytest.approx(1.0)


def test_f8_flows_reach_the_target_or_name_the_steps() -> None:
    grid = Grid.torus(192)
    potential = grid.evaluate(lambda points: 1.0 - np.cos(points[:, 0]))
    path = run_flow(grid, potential, 1e6)
    assert np.abs(path.final - path.log_target).max() < 1e-12
    assert len(path.step_times) == 1_001
    with pytest.raises(ValueError, match=r"at most 1,000,000 steps, got 3.7\d*e\+11"):
        run_rk4(grid, potential, 1e8)
    with pytest.raises(ValueError, match=r"at most 1,000,000 steps, got 1e\+11"):
        ParticleDynamics(ParticleDomain.torus(1), 1e9, 0.01)


@pytest.mark.parametrize("boundary", ["periodic", "reflecting"])
def test_f8_implicit_steps_of_any_length_end_in_the_target(boundary: str) -> None:
    grid = Grid((Axis(0.0, 1.0, 64, boundary),))
    potential = grid.evaluate(lambda points: 40.0 * np.cos(2.0 * math.pi * points[:, 0]))
    start = grid.evaluate(lambda points: 3.0 * points[:, 0])
    for late in (1e30, 1e60, 1e100):
        config = FlowConfig(dynamics="langevin", num_steps=3, transport="implicit")
        path = run_flow(grid, potential, late, start, config)
        assert np.abs(path.final - path.log_target).max() < 1e-9


def test_f17_a_running_time_of_a_billion() -> None:
    mechanism = ShkExponentialMechanism(
        ShkExponentialMechanismConfig(
            loss=CircularMeanLoss(num_records=3), inverse_temperature=5.0, run_time=1e9
        )
    )
    started = time.perf_counter()
    law = mechanism.grid_law(RECORDS)
    assert time.perf_counter() - started < 10.0
    target = ExponentialMechanism(
        ExponentialMechanismConfig(loss=CircularMeanLoss(num_records=3), inverse_temperature=5.0)
    )
    assert np.abs(law - target.grid_law(RECORDS)).max() < 1e-10


# --- G2, G3, G4, G7: claims and constants ---


def bounded_on_the_line(points: Any, dataset: Any) -> Any:
    return np.tanh(points[:, 0]) ** 2


def test_g2_no_claim_on_the_line() -> None:
    config = BirthDeathLangevinMechanismConfig(
        loss=bounded_on_the_line,
        inverse_temperature=1.0,
        run_time=3.0,
        domain=ParticleDomain.euclidean(1),
        bandwidth=0.3,
        loss_bounds=(0.0, 1.0),
        loss_sensitivity=0.1,
        start=lambda generator, count: generator.standard_normal((count, 1)),
        start_oscillation=3.0,
    )
    mechanism = BirthDeathLangevinMechanism(config)
    assert mechanism.claimed_privacy == []
    assert mechanism.mean_field_certificate is None


def test_g3_no_claim_for_a_whole_ensemble() -> None:
    def mechanism(ensemble: bool) -> BirthDeathLangevinMechanism:
        return BirthDeathLangevinMechanism(
            BirthDeathLangevinMechanismConfig(
                loss=CircularMeanLoss(num_records=20),
                inverse_temperature=5.0,
                run_time=6.0,
                ensemble=ensemble,
            )
        )

    assert mechanism(True).claimed_privacy == []
    # Bounded range, pure DP, zCDP and Rényi DP of the mean-field law.
    assert len(mechanism(False).claimed_privacy) == 4


def test_g4_the_distance_of_gradients_is_the_callers() -> None:
    grid = Grid.torus(160)
    x = grid.midpoints()[:, 0]
    base = 1.0 - np.cos(2.0 * x)
    pair = (base, base + 0.45 * np.sin(x))
    assert pair_constants(grid, *pair).gradient_distance is None
    assert pair_constants(grid, *pair, gradient_distance=0.45).gradient_distance == 0.45
    with pytest.raises(ValueError, match="gradient_distance must bound"):
        pair_constants(grid, *pair, gradient_distance=0.449)


def test_g7_certificates_beside_the_papers_from_the_same_start() -> None:
    grid = Grid.torus(160)
    x = grid.midpoints()[:, 0]
    base = 1.0 - np.cos(2.0 * x)
    turns = 2.0 * math.pi * np.arange(-5, 6)
    bump = np.exp(-0.5 * ((x[:, np.newaxis] - 0.4 + turns) / 0.55) ** 2).sum(axis=1)
    start = np.log(bump / (bump.sum() * grid.cell_volume) + 1e-4 / (2.0 * math.pi))
    certificate = Certificate.for_pair(grid, base, base + 0.45 * np.sin(x), 5.0, start)
    assert certificate.pure_dp().value == pytest.approx(0.6353, abs=5e-5)
    values = [certificate.renyi_dp(alpha).value for alpha in (2.0, 3.0, 5.0, 10.0)]
    assert values == pytest.approx([0.2674, 0.3803, 0.5299, 0.5881], abs=5e-5)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "shk.md").read_text(encoding="utf-8")
    assert "D_2 <= .2674, D_3 <= .3803, D_5 <= .5299, D_10 <= .5881" in page


# --- laws and moments in the log domain ---


@pytest.mark.parametrize("beta", [1e-12, 1.0, 1e6])
@pytest.mark.parametrize("alpha", [1.0 + 1e-9, 2.0, 1e3, 1e6])
def test_exact_divergences_of_grid_laws(beta: float, alpha: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    described = MeanLoss(num_records=4)
    mechanism = ExponentialMechanism(
        ExponentialMechanismConfig(
            loss=described, inverse_temperature=beta, cells=32, max_jump=math.inf
        )
    )
    first, second = np.array([[0.0], [0.0], [1.0]]), np.array([[1.0], [0.0], [1.0]])
    points = mechanism.grid.midpoints()
    with mpmath.workdps(60):
        laws = []
        for dataset in (first, second):
            weights = [mpmath.exp(-beta * mpmath.mpf(v)) for v in described(points, dataset)]
            laws.append([weight / mpmath.fsum(weights) for weight in weights])
        moment = mpmath.fsum(p * (p / q) ** (alpha - 1) for p, q in zip(*laws, strict=True))
        exact = float(mpmath.log(moment) / (mpmath.mpf(alpha) - 1))
    found = mechanism.exact_renyi_divergence(first, second, alpha)
    # Log masses are rounded relative to beta, and D_alpha of a weak pair is quadratic in their
    # differences.
    assert found == pytest.approx(exact, rel=1e-3 if beta < 1e-6 else 1e-9, abs=1e-25)
