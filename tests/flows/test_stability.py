"""Certificates: valid for the program as run, attained where they say so, and not vacuous."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.special import logsumexp

from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid import Axis, Grid
from dvrenyi_plugin.flows.grid_flow import LANGEVIN, SHK, FlowConfig, run_flow
from dvrenyi_plugin.flows.paper.kl_stability import (
    KlConstants,
    approximate_dp_delta,
    best_young_parameter,
    gibbs_log_sobolev,
    kl_bound,
    kl_bound_growing,
    kl_bound_integral,
    kl_plateau,
)
from dvrenyi_plugin.flows.stability import (
    log_ratio_bound,
    log_ratio_width,
    pair_constants,
    pure_dp_epsilon,
    time_for_width,
)
from dvrenyi_plugin.flows.utility import (
    best_target_excess_bound,
    excess_bound,
    excess_bound_theorem5,
    target_excess_bound,
)
from dvrenyi_plugin.privacy.bounded_range import (
    delta_of_pure_dp,
    delta_of_range,
    kullback_leibler_of_range,
    renyi_of_range,
    total_variation_of_range,
)
from dvrenyi_plugin.privacy.divergences import (
    hockey_stick_from_log_masses,
    kullback_leibler_from_log_masses,
    renyi_from_log_masses,
)


def two_point_pairs(width: float) -> tuple[np.ndarray, np.ndarray]:
    """All pairs with ratio values e^t and e^(t - width), t on a grid: (log p, log q) of shape (2,
    k).
    """
    t = np.linspace(0.0, width, 20_001)[1:-1]
    scale = math.log(-math.expm1(-width))
    log_q = np.stack([np.log(-np.expm1(t - width)) - t, np.log(-np.expm1(-t))]) - scale
    return log_q + np.stack([t, t - width]), log_q


class TestBoundedRange:
    @pytest.mark.parametrize("alpha", [1.01, 1.25, 2.0, 10.0, 100.0])
    @pytest.mark.parametrize("width", [0.01, 0.3, 0.93, 4.0, 30.0])
    def test_renyi_value_is_the_largest_over_two_point_pairs(
        self, alpha: float, width: float
    ) -> None:
        p, q = two_point_pairs(width)
        values = logsumexp(alpha * p + (1 - alpha) * q, axis=0) / (alpha - 1)
        value = renyi_of_range(alpha, width)
        assert value >= values.max() - 1e-12
        assert value == pytest.approx(values.max(), rel=2e-4)
        assert value <= min(width, alpha * width**2 / 8.0)

    @pytest.mark.parametrize("width", [0.01, 0.93, 4.0, 30.0])
    def test_delta_total_variation_and_kl_over_two_point_pairs(self, width: float) -> None:
        p, q = two_point_pairs(width)
        for epsilon in (0.0, 0.3 * width, 0.9 * width):
            largest = np.maximum(np.exp(p) - np.exp(q + epsilon), 0.0).sum(axis=0).max()
            assert delta_of_range(epsilon, width) == pytest.approx(largest, rel=1e-6, abs=1e-15)
        assert total_variation_of_range(width) == pytest.approx(delta_of_range(0.0, width))
        kl = np.sum(np.exp(p) * (p - q), axis=0).max()
        assert kl <= kullback_leibler_of_range(width)
        assert width > 1.0 or kl > 0.97 * kullback_leibler_of_range(width)
        assert delta_of_range(width, width) == 0.0

    def test_tiny_and_huge_widths(self) -> None:
        assert renyi_of_range(2.0, 0.0) == 0.0
        assert 699.0 < renyi_of_range(1000.0, 700.0) <= 700.0

    @settings(max_examples=300, deadline=None)
    @given(log_order=st.floats(-15.0, 8.0), log_width=st.floats(-9.0, 4.0))
    def test_range_value_keeps_its_digits_at_every_order_and_width(
        self, log_order: float, log_width: float
    ) -> None:
        # A certificate a digit too small would be false: near order 1 the closed form cancels in
        # floats.
        alpha, width = 1.0 + 10.0**log_order, 10.0**log_width
        with decimal.localcontext(prec=80):
            a, r = Decimal(alpha), (-Decimal(width)).exp()
            top = 1 - r**a
            factor = (a - 1) / a * top / (r - r**a)
            exact = factor.ln() + (top / (1 - r) / a).ln() / (a - 1)
        assert renyi_of_range(alpha, width) == pytest.approx(float(exact), rel=2e-15, abs=0.0)

    def test_delta_of_wide_ranges(self) -> None:
        assert 0.999 < delta_of_range(1.0, 1e6) <= 1.0

    def test_delta_of_pure_dp_is_randomised_response(self) -> None:
        p = math.exp(1.5) / (1.0 + math.exp(1.5))
        assert delta_of_pure_dp(1.5, 0.4) == pytest.approx(p - math.exp(0.4) * (1 - p))
        assert delta_of_pure_dp(1.5, 1.5) == 0.0


class TestCertificatesOfTheProgram:
    @settings(max_examples=60, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        cells=st.integers(8, 48),
        dimension=st.integers(1, 2),
        boundary=st.sampled_from(["periodic", "reflecting"]),
        amplitude=st.floats(0.1, 30.0),
        closeness=st.floats(0.0, 1.0),
        time=st.floats(0.0, 8.0),
        num_steps=st.integers(1, 30),
        dynamics=st.sampled_from([SHK, LANGEVIN]),
        transport=st.sampled_from(["auto", "implicit", "exponential"]),
        order=st.integers(1, 4),
        alpha=st.floats(1.05, 40.0),
    )
    def test_never_below_the_exact_divergence(
        self,
        seed: int,
        cells: int,
        dimension: int,
        boundary: str,
        amplitude: float,
        closeness: float,
        time: float,
        num_steps: int,
        dynamics: str,
        transport: str,
        order: int,
        alpha: float,
    ) -> None:
        cells = cells if dimension == 1 else max(4, cells // 4)
        grid = Grid((Axis(cells=cells, boundary=boundary),) * dimension)
        rng = np.random.default_rng(seed)
        # Rough on purpose: no smoothness is used by the discrete proof.
        first = amplitude * rng.random(grid.shape)
        second = first + closeness * amplitude * (rng.random(grid.shape) - 0.5)
        start = amplitude / 3.0 * rng.random(grid.shape) if seed % 2 else None
        config = FlowConfig(
            dynamics=dynamics,
            num_steps=num_steps,
            transport=transport,
            extrapolation_order=order,
            max_jump=math.inf,
        )
        p, q = run_flow(grid, np.stack([first, second]), time, start, config).final
        p, q = p.ravel(), q.ravel()
        certificate = Certificate.for_pair(
            grid, first, second, time, start, has_reaction=dynamics == SHK
        )
        for a, b in ((p, q), (q, p)):
            assert np.max(a - b) <= certificate.pure_dp().value
            assert renyi_from_log_masses(alpha, a, b) <= certificate.renyi_dp(alpha).value + 1e-12
            assert renyi_from_log_masses(alpha, a, b) <= alpha * certificate.zcdp().value + 1e-12
            assert (
                kullback_leibler_from_log_masses(a, b)
                <= certificate.kullback_leibler().value + 1e-12
            )
            for epsilon in (0.0, 0.3, 2.0):
                delta = certificate.approximate_dp(epsilon).value
                assert hockey_stick_from_log_masses(epsilon, a, b) <= delta + 1e-12
        assert np.ptp(p - q) <= certificate.width

    def test_experiment_two_is_not_vacuous(self) -> None:
        """alpha = 2, t = 5, uniform start: at most .22 where the paper's envelope says .635."""
        grid = Grid.torus(160)
        x = grid.midpoints()[:, 0]
        base = 1.0 - np.cos(2.0 * x)
        certificate = Certificate.for_pair(grid, base, base + 0.45 * np.sin(x), 5.0)
        assert 0.0558 < certificate.renyi_dp(2.0).value < 0.21
        assert certificate.renyi_dp(2.0).source == "bounded range, exact"
        assert 2.0 * certificate.zcdp().value <= 0.22

    def test_experiment_one_constants_and_choice_of_result(self) -> None:
        grid = Grid.torus(192)
        x = grid.midpoints()[:, 0]
        base = 1.2 * (1.0 - np.cos(2.0 * x))
        constants = pair_constants(grid, base, base + 0.6 * np.sin(x) + 1.0)
        assert constants.sup_distance == pytest.approx(1.599920, abs=1e-6)
        assert constants.oscillation_distance == pytest.approx(1.199839, abs=1e-6)
        assert constants.target_log_ratio == pytest.approx(0.643549, abs=1e-6)
        certificate = Certificate.for_pair(grid, base, base + 0.6 * np.sin(x) + 1.0, 5.0)
        assert certificate.pure_dp().source == "Theorem 1, exact target ratio"
        data_free = Certificate(5.0, 1.2, 2.4, 3.6)
        assert data_free.pure_dp().value == pytest.approx(1.2 + 6.0 * math.exp(-5.0))
        assert data_free.pure_dp().source == "Theorem 3, oscillation sensitivity (A1')"
        by_sup_norm = Certificate(5.0, 9.0, 2.4, 3.6, sup_distance=0.5)
        assert by_sup_norm.pure_dp().value == pytest.approx(1.0 + 6.0 * math.exp(-5.0))

    def test_sup_norm_theorem_cannot_lose_its_factor_two(self) -> None:
        # Experiment 1, right panel: the exact divergence at t = 5 is above ||V - V'||_inf.
        grid = Grid.torus(192)
        x = grid.midpoints()[:, 0]
        base = 4.0 * (1.0 - np.cos(x))
        p, q = run_flow(grid, np.stack([base, base - 0.8 * np.cos(x)]), 5.0).final
        certificate = Certificate.for_pair(grid, base, base - 0.8 * np.cos(x), 5.0)
        assert 0.8 < np.abs(p - q).max() <= certificate.pure_dp().value < 1.7

    def test_utility_bound_holds_and_tends_to_the_target(self) -> None:
        grid = Grid.torus(128)
        loss = 1.0 - np.cos(grid.midpoints()[:, 0])
        potential = 5.0 * loss
        target_excess = float(np.exp(grid.gibbs(potential)) @ loss) - loss.min()
        for time in (0.0, 0.5, 2.0, 8.0):
            masses = np.exp(run_flow(grid, potential, time).final)
            certificate = Certificate.for_pair(grid, potential, potential, time)
            bound = certificate.utility(float(np.ptp(loss)), target_excess).value
            assert masses @ loss - loss.min() <= bound
        assert bound == pytest.approx(target_excess, abs=2e-3)


class TestTheorems:
    def test_pointwise_formulas(self) -> None:
        assert log_ratio_bound(0.4, 1.0, 2.0, 0.0) == pytest.approx(3.4)
        assert pure_dp_epsilon(0.4, 1.5, 2.0) == pytest.approx(0.4 + 3.0 * math.exp(-2.0))
        assert log_ratio_width(0.4, 1.0, 2.0, 1.0) == pytest.approx(0.4 + 3.0 / math.e)

    @given(floor=st.floats(0.0, 5.0), margin=st.floats(1e-6, 5.0), initial=st.floats(0.0, 1e6))
    def test_time_for_width_is_the_inverse(
        self, floor: float, margin: float, initial: float
    ) -> None:
        assume(floor + margin > floor)
        time = time_for_width(floor + margin, floor, initial)
        assert log_ratio_width(floor, initial, 0.0, time) <= floor + margin + 1e-9
        if time > 0.0:
            earlier = log_ratio_width(floor, initial, 0.0, 0.99 * time)
            assert earlier > floor + margin or time < 1e-3

    def test_time_for_an_unreachable_width(self) -> None:
        with pytest.raises(ValueError, match="target_width must be a finite number > 1"):
            time_for_width(1.0, 1.0, 3.0)

    @pytest.mark.parametrize("young", [0.1, 0.5, 0.98, 1.0])
    @pytest.mark.parametrize("initial", [0.0, 1.0, 3.0])
    def test_theorem_two_solves_its_differential_inequality(
        self, young: float, initial: float
    ) -> None:
        constants = KlConstants(0.45, 0.9, initial, 0.7)

        def forcing(t: float) -> float:
            return (
                0.45**2 / (4 * young)
                + (initial**2 / 16) * math.exp(-2 * t)
                + (0.9 * initial / 2 + 2 * initial) * math.exp(-t)
            )

        for bound, rate in (
            (kl_bound, lambda t: math.exp(-initial)),
            (kl_bound_integral, lambda t: math.exp(-initial * math.exp(-t))),
        ):
            solution = solve_ivp(
                lambda t, h, rate=rate: forcing(t) - 2 * (1 - young) * rate(t) * 0.7 * h,
                (0.0, 2.0),
                [0.0],
                rtol=1e-10,
                atol=1e-12,
            ).y[0, -1]
            assert bound(constants, 2.0, young) == pytest.approx(solution, rel=1e-7)
        closed = kl_bound(constants, 2.0, young)
        assert kl_bound_integral(constants, 2.0, young) <= closed * (1 + 1e-9)

    @pytest.mark.parametrize("rate", [1.0, 2.0])
    def test_theorem_two_where_rates_meet(self, rate: float) -> None:
        # kappa = lambda at c = 1/2 and B = 0; B tiny leaves the limits of the quotients.
        below, at, above = (
            kl_bound(KlConstants(0.3, 0.5, 1e-3, r * math.exp(1e-3)), 1.5, 0.5)
            for r in (rate - 1e-6, rate, rate + 1e-6)
        )
        assert at == pytest.approx((below + above) / 2, rel=1e-9)

    def test_paper_table_four(self) -> None:
        # The table's constants: lambda = e^{-osc V} = e^{-2}, S = .9, B read off the plateau it
        # reports.
        constants = KlConstants(0.45, 0.9, 11.907965, math.exp(-2.0))
        grid = np.linspace(0.02, 0.98, 200)
        plateaus = [kl_plateau(constants, float(c)) for c in grid]
        finite = [kl_bound(constants, 2.0, float(c)) for c in grid]
        assert grid[np.argmin(plateaus)] == pytest.approx(0.497588, abs=1e-6)
        assert min(plateaus) == pytest.approx(111060.018822, rel=1e-4)
        assert grid[np.argmin(finite)] == pytest.approx(0.98)
        assert min(finite) == pytest.approx(29.683066, rel=5e-4)

    def test_best_young_parameter_and_theorem_six(self) -> None:
        constants = KlConstants(0.45, 0.9, 1.0, 1.0)
        c, value = best_young_parameter(constants, 30.0)
        assert all(value <= kl_bound(constants, 30.0, float(k)) for k in np.linspace(0.01, 1.0, 50))
        assert c == pytest.approx(0.5, abs=0.01)
        assert kl_bound_growing(constants, 30.0) == pytest.approx(kl_bound(constants, 30.0, 1.0))
        slope = kl_bound_growing(constants, 31.0) - kl_bound_growing(constants, 30.0)
        assert slope == pytest.approx(0.45**2 / 4.0, rel=1e-9)
        assert value < kl_bound_growing(constants, 30.0)
        assert approximate_dp_delta(constants, 30.0, 2.0) == pytest.approx(min(1.0, value / 2.0))

    def test_kl_theorems_above_a_fine_grid(self) -> None:
        grid = Grid.torus(256)
        x = grid.midpoints()[:, 0]
        base = 0.5 * (1.0 - np.cos(x))
        potentials = np.stack([base, base + 0.2 * np.sin(x)])
        k = pair_constants(grid, *potentials, gradient_distance=0.2)
        assert k.gradient_distance == 0.2
        initial = max(k.initial_oscillation1, k.initial_oscillation2)
        oscillation = float(max(grid.oscillation(potentials)))
        constants = KlConstants(
            k.gradient_distance,
            k.target_log_ratio,
            initial,
            gibbs_log_sobolev(grid.axes, oscillation),
        )
        for time in (0.3, 1.0, 4.0):
            p, q = run_flow(grid, potentials, time).final
            exact = kullback_leibler_from_log_masses(p, q)
            assert exact <= kl_bound_integral(constants, time, 0.5)
            assert exact <= kl_bound_growing(constants, time)

    def test_log_sobolev_constants(self) -> None:
        assert gibbs_log_sobolev((Axis(),), 0.0) == pytest.approx(1.0)
        assert gibbs_log_sobolev((Axis(0.0, 1.0, 8, "reflecting"),), 0.0) == pytest.approx(
            math.pi**2
        )
        assert gibbs_log_sobolev((Axis(), Axis(-1.0, 1.0)), 2.0) == pytest.approx(math.exp(-2.0))

    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), beta=st.floats(0.1, 50.0))
    def test_proposition_one(self, seed: int, beta: float) -> None:
        grid = Grid.torus(30)
        loss = np.random.default_rng(seed).random(30)
        excess = float(np.exp(grid.gibbs(beta * loss)) @ loss) - loss.min()
        bound = best_target_excess_bound(loss, beta)
        assert excess <= bound
        slacks = np.sort(loss - loss.min())[1:]
        for slack in slacks[:5]:
            ratio = 30.0 / np.sum(loss <= loss.min() + slack)
            assert bound <= target_excess_bound(float(slack), ratio, beta) + 1e-12

    def test_theorem_five_is_weaker_than_the_range_bound(self) -> None:
        grid = Grid.torus(192)
        loss = 1.0 - np.cos(grid.midpoints()[:, 0])
        potential = 5.0 * loss
        path = run_flow(grid, potential, 6.0)
        target_excess = float(np.exp(path.log_target) @ loss) - loss.min()
        kl = kullback_leibler_from_log_masses(path.log_masses[0], path.log_target)
        lower = float(np.max(path.log_target - path.log_masses[0]))
        constants = {"lower_ratio_log": lower, "rate_loss": 0.2, "start_time": 0.0}
        theorem = excess_bound_theorem5(target_excess, 2.0, kl, **constants, time=6.0)
        ours = excess_bound(target_excess, 2.0, math.exp(-6.0) * path.oscillations[0])
        actual = float(np.exp(path.final) @ loss) - loss.min()
        assert actual <= ours < theorem
        with pytest.raises(ValueError, match="time must be a finite number >="):
            excess_bound_theorem5(target_excess, 2.0, kl, **constants, time=1.0)


class TestBadInput:
    @pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
    def test_constants_are_checked(self, bad: float) -> None:
        with pytest.raises(ValueError, match="time"):
            Certificate(bad, 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match="oscillation_distance"):
            Certificate(1.0, bad, 1.0, 1.0)
        with pytest.raises(ValueError, match="width"):
            renyi_of_range(2.0, bad)
        with pytest.raises(ValueError, match="gradient_distance"):
            KlConstants(bad, 1.0, 1.0, 1.0)

    def test_orders_and_young_parameter(self) -> None:
        certificate = Certificate(1.0, 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match="alpha"):
            certificate.renyi_dp(1.0)
        with pytest.raises(ValueError, match="epsilon"):
            certificate.approximate_dp(-0.1)
        with pytest.raises(ValueError, match="young"):
            kl_bound(KlConstants(1.0, 1.0, 1.0, 1.0), 1.0, 0.0)
