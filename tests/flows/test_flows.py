"""Flows on a grid: exact invariants, known answers, convergence orders, draws, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flow_examples import smooth_potential
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import chisquare

from dvrenyi_plugin.flows.grid import Axis, Grid
from dvrenyi_plugin.flows.grid_flow import (
    BIRTH_DEATH,
    DYNAMICS,
    LANGEVIN,
    SHK,
    FlowConfig,
    run_flow,
)
from dvrenyi_plugin.flows.paper.central_rk4 import CENTRAL, REVERSIBLE, run_rk4
from dvrenyi_plugin.flows.paper.gaussian_flows import (
    Gaussian,
    fisher_rao_flow,
    gaussian,
    wasserstein_flow,
    wfr_flow,
)
from dvrenyi_plugin.privacy.divergences import (
    kullback_leibler_from_log_masses,
    renyi_from_log_masses,
)

BOUNDARIES = ("periodic", "reflecting")


def experiment_one(grid: Grid) -> np.ndarray:
    x = grid.midpoints()[:, 0]
    left, right = 1.2 * (1.0 - np.cos(2.0 * x)), 4.0 * (1.0 - np.cos(x))
    return np.stack([left, left + 0.6 * np.sin(x) + 1.0, right, right - 0.8 * np.cos(x)])


def experiment_two(grid: Grid) -> np.ndarray:
    x = grid.midpoints()[:, 0]
    base = 1.0 - np.cos(2.0 * x)
    return np.stack([base, base + 0.45 * np.sin(x)])


class TestInvariants:
    @pytest.mark.parametrize("dynamics", DYNAMICS)
    @pytest.mark.parametrize("boundary", BOUNDARIES)
    @pytest.mark.parametrize("dimension", [1, 2, 3])
    def test_target_is_stationary_and_mass_is_one(
        self, dynamics: str, boundary: str, dimension: int
    ) -> None:
        grid = Grid((Axis(cells=12, boundary=boundary),) * dimension)
        potential = smooth_potential(grid, np.random.default_rng(3), 4.0)
        config = FlowConfig(dynamics=dynamics, record_every=1, num_steps=7)
        path = run_flow(grid, potential, 2.0, -potential, config)
        np.testing.assert_allclose(
            path.log_masses, path.log_target[np.newaxis].repeat(8, 0), atol=1e-12
        )
        moving = run_flow(grid, potential, 2.0, config=config)
        total = logsumexp(moving.log_masses, axis=grid.cell_axes())
        np.testing.assert_allclose(total, 0.0, atol=1e-12)
        assert np.all(np.isfinite(moving.log_masses))
        assert kullback_leibler_from_log_masses(
            moving.final.ravel(), moving.log_target.ravel()
        ) < kullback_leibler_from_log_masses(
            moving.log_masses[0].ravel(), moving.log_target.ravel()
        )

    def test_hundred_random_potentials_contract_at_every_step(self) -> None:
        rng = np.random.default_rng(4)
        excess = -np.inf
        for k in range(100):
            cells = int(rng.integers(16, 1025)) if k % 10 == 0 else int(rng.integers(16, 129))
            steps = 1000 if k % 25 == 0 else int(rng.integers(5, 60))
            grid = Grid.torus(cells)
            potential = smooth_potential(grid, rng, rng.uniform(0.1, min(20.0, cells / 4.0)))
            time = rng.uniform(0.05, 8.0)
            transport = "exponential" if cells <= 64 and k % 2 else "implicit"
            config = FlowConfig(num_steps=steps, transport=transport)
            path = run_flow(grid, potential, time, config=config)
            allowed = np.exp(-path.step_times) * path.oscillations[0]
            excess = max(excess, float(np.max(path.oscillations - allowed)))
        assert excess <= 1e-12

    def test_langevin_never_raises_the_oscillation(self) -> None:
        grid = Grid.torus(40, 2)
        potential = smooth_potential(grid, np.random.default_rng(5), 10.0)
        path = run_flow(grid, potential, 1.0, config=FlowConfig(dynamics=LANGEVIN))
        assert np.all(np.diff(path.oscillations) <= 0.0)

    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        shift=st.floats(-1e6, 1e6),
        boundary=st.sampled_from(BOUNDARIES),
    )
    def test_constants_in_the_potential_do_not_matter(
        self, seed: int, shift: float, boundary: str
    ) -> None:
        grid = Grid((Axis(cells=20, boundary=boundary),))
        potential = smooth_potential(grid, np.random.default_rng(seed), 3.0)
        plain, shifted = (run_flow(grid, v, 1.0).final for v in (potential, potential + shift))
        np.testing.assert_allclose(plain, shifted, atol=1e-7)

    def test_batched_equals_one_by_one(self) -> None:
        grid = Grid.torus(14, 2)
        rng = np.random.default_rng(6)
        potentials = np.stack([smooth_potential(grid, rng, 3.0) for _ in range(4)])
        batched = run_flow(grid, potentials.reshape(2, 2, 14, 14), 1.0)
        assert batched.final.shape == (2, 2, 14, 14)
        for k, potential in enumerate(potentials):
            alone = run_flow(grid, potential, 1.0)
            np.testing.assert_allclose(batched.final.reshape(4, 14, 14)[k], alone.final, atol=1e-6)

    def test_time_zero_returns_the_start(self) -> None:
        grid = Grid.torus(16)
        path = run_flow(grid, np.cos(grid.midpoints()[:, 0]), 0.0)
        np.testing.assert_allclose(np.exp(path.final), 1.0 / 16, atol=1e-15)
        assert path.times.tolist() == [0.0]


class TestAgainstThePaper:
    def test_central_flux_reproduces_experiment_one(self) -> None:
        log_masses = run_rk4(Grid.torus(192), experiment_one(Grid.torus(192)), 5.0)
        assert np.abs(log_masses[0] - log_masses[1]).max() == pytest.approx(0.644016, abs=5e-6)
        assert np.abs(log_masses[2] - log_masses[3]).max() == pytest.approx(1.505272, abs=5e-6)

    def test_central_flux_reproduces_experiment_two(self) -> None:
        log_masses = run_rk4(Grid.torus(160), experiment_two(Grid.torus(160)), 5.0)
        for alpha, paper in ((2, 0.055881), (3, 0.083185), (5, 0.133828), (10, 0.228820)):
            assert renyi_from_log_masses(alpha, *log_masses) == pytest.approx(paper, abs=5e-6)

    def test_reversible_splitting_ends_on_the_exact_floor(self) -> None:
        path = run_flow(Grid.torus(192), experiment_one(Grid.torus(192)), 5.0)
        for k, floor in ((0, 0.643549), (2, 1.501403)):
            exact = np.abs(path.log_target[k] - path.log_target[k + 1]).max()
            assert exact == pytest.approx(floor, abs=1e-6)
            assert np.abs(path.final[k] - path.final[k + 1]).max() == pytest.approx(exact, abs=1e-6)

    def test_exact_targets_of_experiment_two(self) -> None:
        target = Grid.torus(160).gibbs(experiment_two(Grid.torus(160)))
        for alpha, value in ((2, 0.055834), (3, 0.083112), (5, 0.133706), (10, 0.228602)):
            assert renyi_from_log_masses(alpha, *target) == pytest.approx(value, abs=1e-6)

    def test_splitting_converges_to_rk4_at_second_order_in_the_step(self) -> None:
        grid = Grid.torus(64)
        x = grid.midpoints()[:, 0]
        potential = 1.2 * (1.0 - np.cos(2.0 * x)) + 0.6 * np.sin(x)
        start = np.cos(x - 1.0)
        exact = run_rk4(grid, potential, 0.5, start, flux=REVERSIBLE)
        errors = [
            np.abs(
                run_flow(grid, potential, 0.5, start, FlowConfig(num_steps=n)).final - exact
            ).max()
            for n in (8, 16, 32, 256)
        ]
        assert 1.8 < math.log2(errors[0] / errors[1]) < 2.2
        assert 1.8 < math.log2(errors[1] / errors[2]) < 2.2
        assert errors[3] < 2e-6

    def test_law_converges_at_second_order_in_dx(self) -> None:
        # Cell means at N from cells of N = 768, three to one: midpoints coincide.
        def law(cells: int) -> np.ndarray:
            grid = Grid.torus(cells)
            x = grid.midpoints()[:, 0]
            config = FlowConfig(num_steps=40, transport="implicit")
            log_masses = run_flow(grid, np.cos(2 * x) + np.sin(x), 0.4, config=config).final
            return np.exp(log_masses) / grid.cell_volume

        coarse, middle, fine = law(32), law(96), law(864)
        first = np.abs(coarse - fine[13::27]).max()
        second = np.abs(middle - fine[4::9]).max()
        assert 1.8 < math.log(first / second, 3.0) < 2.2

    def test_metastable_target_needs_the_reaction(self) -> None:
        grid = Grid.torus(192)
        x = grid.midpoints()[:, 0]
        potential, start = 2.5 * (1.0 - np.cos(2.0 * x)), 5.0 * np.cos(x)
        divergences = []
        for dynamics in (SHK, LANGEVIN):
            path = run_flow(grid, potential, 6.0, start, FlowConfig(dynamics=dynamics))
            divergences.append(kullback_leibler_from_log_masses(path.final, path.log_target))
        assert divergences[0] == pytest.approx(1.204e-5, rel=0.01)
        assert divergences[1] == pytest.approx(0.352, abs=1e-3)

    def test_central_flux_is_not_stationary_at_the_gibbs_law(self) -> None:
        grid = Grid.torus(48)
        potential = experiment_one(grid)[0]
        drift = {
            flux: np.abs(
                run_rk4(grid, potential, 1.0, -potential, flux=flux) - grid.gibbs(potential)
            ).max()
            for flux in (CENTRAL, REVERSIBLE)
        }
        assert drift[REVERSIBLE] < 1e-12 < 1e-5 < drift[CENTRAL]


class TestGaussianFlows:
    FLOWS = ((LANGEVIN, wasserstein_flow), (BIRTH_DEATH, fisher_rao_flow), (SHK, wfr_flow))

    @pytest.mark.parametrize("dynamics, exact", FLOWS)
    def test_grid_flow_follows_the_exact_mean_and_variance(self, dynamics: str, exact) -> None:  # type: ignore[no-untyped-def]
        grid = Grid.box(-8.0, 8.0, 1600)
        x = grid.midpoints()[:, 0]
        potential, start = (x + 0.5) ** 2 / 1.6, -((x - 1.0) ** 2) / 0.6
        for time in (0.2, 1.0):
            config = FlowConfig(dynamics=dynamics, num_steps=100)
            masses = np.exp(run_flow(grid, potential, time, start, config).final)
            law = exact(gaussian(1.0, 0.3), gaussian(-0.5, 0.8), time)
            mean = masses @ x
            assert mean == pytest.approx(law.mean[0], abs=2e-5)
            assert masses @ (x - mean) ** 2 == pytest.approx(law.covariance[0, 0], abs=2e-5)

    def test_grid_flow_follows_a_correlated_plane_target(self) -> None:
        grid = Grid.box(-6.0, 6.0, 120, 2)
        points = grid.midpoints()
        target = gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.6]])
        start = gaussian([-0.5, 0.5], [[0.5, 0.0], [0.0, 0.4]])

        def potential_of(law: Gaussian) -> np.ndarray:
            offset = points - law.mean
            values = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(law.covariance), offset) / 2
            return values.reshape(grid.shape)

        masses = np.exp(
            run_flow(
                grid, potential_of(target), 0.6, -potential_of(start), FlowConfig(num_steps=60)
            ).final.ravel()
        )
        law = wfr_flow(start, target, 0.6)
        mean = masses @ points
        np.testing.assert_allclose(mean, law.mean, atol=2e-3)
        covariance = np.einsum("n,ni,nj->ij", masses, points - mean, points - mean)
        np.testing.assert_allclose(covariance, law.covariance, atol=2e-3)

    @pytest.mark.parametrize("exact", [flow for _, flow in FLOWS])
    def test_closed_forms_solve_their_equations(self, exact) -> None:  # type: ignore[no-untyped-def]
        target = gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.6]])
        start = gaussian([-0.5, 0.5], [[2.0, -0.3], [-0.3, 0.4]])
        precision = np.linalg.inv(target.covariance)
        h = 1e-5
        before, now, after = (exact(start, target, t) for t in (0.7 - h, 0.7, 0.7 + h))
        S, offset = now.covariance, now.mean - target.mean
        transport = 2 * np.eye(2) - precision @ S - S @ precision
        reaction = S - S @ precision @ S
        speed, spread = {
            wasserstein_flow: (precision, transport),
            fisher_rao_flow: (S @ precision, reaction),
            wfr_flow: (precision + S @ precision, transport + reaction),
        }[exact]
        np.testing.assert_allclose((after.mean - before.mean) / (2 * h), -speed @ offset, atol=1e-8)
        np.testing.assert_allclose(
            (after.covariance - before.covariance) / (2 * h), spread, atol=1e-8
        )
        at_start, at_end = exact(start, target, 0.0), exact(start, target, 40.0)
        np.testing.assert_allclose(at_start.covariance, start.covariance, atol=1e-12)
        np.testing.assert_allclose(at_end.covariance, target.covariance, atol=1e-9)
        np.testing.assert_allclose(at_end.mean, target.mean, atol=1e-9)

    def test_scalar_shk_variance_is_logistic(self) -> None:
        # (S - 1/l) / (S + 2) decays as e^{-(2 l + 1) t}.
        law = wfr_flow(gaussian(0.0, 3.0), gaussian(0.0, 0.5), 0.3)
        variance = law.covariance[0, 0]
        decay = math.exp(-(2.0 * 2.0 + 1.0) * 0.3)
        assert (variance - 0.5) / (variance + 2.0) == pytest.approx((3.0 - 0.5) / 5.0 * decay)


class TestLargePotentials:
    def test_amplitude_of_a_million_on_a_coarse_grid_stays_finite(self) -> None:
        grid = Grid.torus(192)
        potential = 5e5 * (1.0 - np.cos(grid.midpoints()[:, 0]))
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            path = run_flow(grid, potential, 5.0, config=FlowConfig(max_jump=math.inf))
        assert np.all(np.isfinite(path.log_masses))
        allowed = np.exp(-path.step_times) * path.oscillations[0]
        assert np.all(path.oscillations <= allowed * (1.0 + 1e-12))
        assert logsumexp(path.final) == pytest.approx(0.0, abs=1e-9)

    def test_thousands_resolved_by_the_grid_reach_their_narrow_target(self) -> None:
        grid = Grid.torus(4096)
        x = grid.midpoints()[:, 0]
        potential = 1500.0 * (1.0 - np.cos(x))
        path = run_flow(grid, potential, 25.0, config=FlowConfig(num_steps=25))
        masses = np.exp(path.final)
        assert masses @ x**2 == pytest.approx(1.0 / 1500.0, rel=2e-3)

    @pytest.mark.parametrize("transport", ["exponential", "implicit"])
    def test_a_wall_is_no_jump(self, transport: str) -> None:
        grid = Grid.box(0.0, 1.0, 200)
        slope = 400.0 * grid.midpoints()[:, 0]
        with np.errstate(over="raise", invalid="raise"):
            config = FlowConfig(transport=transport)
            path = run_flow(grid, slope, 2.0, config=config)
        assert np.abs(path.final - path.log_target)[:20].max() < 1e-3

    def test_coarse_grid_is_refused_by_default(self) -> None:
        grid = Grid.torus(32)
        with pytest.raises(
            ValueError, match=r"grid too coarse for the potential.*cells instead of 32"
        ):
            run_flow(grid, 500.0 * np.cos(grid.midpoints()[:, 0]), 1.0)


class TestBadInput:
    @pytest.mark.parametrize("time", [-1.0, math.nan, math.inf, "1"])
    def test_time(self, time: object) -> None:
        with pytest.raises(ValueError, match="time must be"):
            run_flow(Grid.torus(8), np.zeros(8), time)  # type: ignore[arg-type]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_potential_and_start_are_finite(self, bad: float) -> None:
        values = np.zeros(8)
        values[3] = bad
        with pytest.raises(ValueError, match=r"potential must be finite.*index \(3,\)"):
            run_flow(Grid.torus(8), values, 1.0)
        with pytest.raises(ValueError, match="initial_log_density must be finite"):
            run_flow(Grid.torus(8), np.zeros(8), 1.0, values)

    def test_shapes(self) -> None:
        with pytest.raises(ValueError, match=r"potential must have shape"):
            run_flow(Grid.torus(8), np.zeros(9), 1.0)
        with pytest.raises(ValueError, match="function must give an array of shape"):
            Grid.torus(8).evaluate(lambda points: points)
        with pytest.raises(ValueError, match="one periodic axis"):
            run_rk4(Grid.box(0, 1, 8), np.zeros(8), 1.0)

    @pytest.mark.parametrize(
        "settings_",
        [
            {"dynamics": "sgd"},
            {"num_steps": 0},
            {"num_steps": 2.5},
            {"transport": "magic"},
            {"extrapolation_order": 0},
            {"max_jump": 0.0},
            {"record_every": 0},
        ],
    )
    def test_configs(self, settings_: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=next(iter(settings_))):
            FlowConfig(**settings_)  # type: ignore[arg-type]

    def test_axes(self) -> None:
        with pytest.raises(ValueError, match="cells must be"):
            Axis(cells=2)
        with pytest.raises(ValueError, match="high must be"):
            Axis(low=1.0, high=1.0)
        with pytest.raises(ValueError, match="1 to 3 axes"):
            Grid(())


class TestDraws:
    def test_cells_have_the_masses_of_the_law(self) -> None:
        """Chi-square at level 1e-4, fixed seed."""
        grid = Grid.torus(6, 2)
        log_masses = grid.gibbs(smooth_potential(grid, np.random.default_rng(7), 3.0))
        draws = grid.draw(log_masses, 200_000, np.random.default_rng(8))
        edges = [np.linspace(a.low, a.high, a.cells + 1) for a in grid.axes]
        counts, _ = np.histogramdd(draws, bins=edges)
        assert counts.sum() == 200_000
        assert chisquare(counts.ravel(), 200_000 * np.exp(log_masses).ravel()).pvalue > 1e-4

    def test_offsets_are_uniform_inside_a_cell(self) -> None:
        """Chi-square at level 1e-4, fixed seed."""
        grid = Grid.box(0.0, 4.0, 4)
        log_masses = np.array([-800.0, 0.0, -800.0, -800.0])
        draws = grid.draw(log_masses, 50_000, np.random.default_rng(9))[:, 0]
        assert draws.min() >= 1.0 and draws.max() < 2.0
        counts, _ = np.histogram(draws, bins=np.linspace(1.0, 2.0, 21))
        assert chisquare(counts).pvalue > 1e-4

    def test_all_draws_lie_in_the_domain_even_when_the_uniform_is_extreme(self) -> None:
        class Extreme(np.random.Generator):
            def random(self, size=None, *args, **kwargs):  # type: ignore[no-untyped-def, override]
                return np.full(size, 1.0 - 2.0**-53)

        grid = Grid.torus(10)
        log_masses = grid.normalise(np.where(np.arange(10) < 5, 0.0, -2000.0))
        draws = grid.draw(log_masses, 3, Extreme(np.random.PCG64(0)))
        assert np.all(draws < 0.0) and np.all(draws >= -math.pi)
