"""Samplers on a grid: losses within their promises, claims above exact divergences, broken ones far
beyond.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from known_losses import LOSSES
from scipy.stats import chisquare

from dvrenyi_plugin.interfaces import read_claim
from dvrenyi_plugin.mechanisms import (
    BrokenShkMechanism,
    BrokenShkMechanismConfig,
    CallableLoss,
    CircularMeanLoss,
    ExponentialMechanism,
    ExponentialMechanismConfig,
    LangevinMechanism,
    LangevinMechanismConfig,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
    balanced_circle_pair,
)
from dvrenyi_plugin.mechanisms.exponential.defects import SAMPLER_DEFECTS
from dvrenyi_plugin.mechanisms.exponential.losses import Loss
from dvrenyi_plugin.privacy.divergences import (
    hockey_stick_from_log_masses,
    renyi_pure_dp,
)


def shk(loss: Loss | None = None, **settings_: Any) -> ShkExponentialMechanism:
    values: dict[str, Any] = {"inverse_temperature": 5.0, "run_time": 6.0} | settings_
    return ShkExponentialMechanism(
        ShkExponentialMechanismConfig(loss=loss or CircularMeanLoss(num_records=20), **values)
    )


class TestHonestMechanisms:
    @pytest.mark.parametrize("which", range(len(LOSSES)))
    def test_claims_hold_on_the_exact_laws(self, which: int) -> None:
        loss, columns = LOSSES[which]
        rng = np.random.default_rng(which)
        cells = 60 if loss.dimension == 1 else 12
        common: dict[str, Any] = {
            "loss": loss,
            "inverse_temperature": 4.0,
            "cells": cells,
            "alphas": (1.5, 2.0, 16.0),
            "max_jump": math.inf,
        }
        mechanisms = [
            ExponentialMechanism(ExponentialMechanismConfig(**common)),
            ShkExponentialMechanism(ShkExponentialMechanismConfig(run_time=3.0, **common)),
            ShkExponentialMechanism(
                ShkExponentialMechanismConfig(
                    run_time=0.7, num_steps=1, start=lambda p: -np.sum(p**2, axis=1), **common
                )
            ),
            LangevinMechanism(LangevinMechanismConfig(run_time=0.3, **common)),
        ]
        for _ in range(3):
            first = 2.0 * rng.normal(size=(6, columns))
            second = first.copy()
            second[0] = -second[0]
            for mechanism in mechanisms:
                p, q = (mechanism.grid_law(d).ravel() for d in (first, second))
                for claim in map(read_claim, mechanism.claimed_privacy):
                    match claim.__class__.__name__:
                        case "PureDp":
                            assert np.max(np.abs(p - q)) <= claim.epsilon  # type: ignore[union-attr]
                            assert hockey_stick_from_log_masses(claim.epsilon, p, q) == 0.0  # type: ignore[union-attr]
                        case "ZeroConcentratedDp":
                            for alpha in (1.1, 3.0, 50.0):
                                exact = mechanism.exact_renyi_divergence(first, second, alpha)
                                assert exact <= alpha * claim.rho  # type: ignore[union-attr]
                        case "BoundedRangeDp":
                            assert np.ptp(p - q) <= claim.width  # type: ignore[union-attr]
                        case _:
                            alpha = claim.alpha  # type: ignore[union-attr]
                            exact = mechanism.exact_renyi_divergence(first, second, alpha)
                            assert exact <= claim.epsilon  # type: ignore[union-attr]
                if isinstance(mechanism, ShkExponentialMechanism):
                    pair = mechanism.pair_certificate(first, second)
                    exact = mechanism.exact_renyi_divergence(first, second, 2.0)
                    assert exact <= pair.renyi_dp(2.0).value
                    assert pair.width <= mechanism.certificate.width + 1e-9

    def test_claim_is_not_vacuous(self) -> None:
        mechanism = shk()
        exact = mechanism.exact_renyi_divergence(*balanced_circle_pair(20), 2.0)
        claim = mechanism.certificate.renyi_dp(2.0).value
        assert 0.4 * claim < exact < claim
        assert claim < 0.6 * renyi_pure_dp(2.0, mechanism.certificate.pure_dp().value)

    def test_experiment_three(self) -> None:
        # n = 100 angles near .25, one moved to -2.4, beta = 5, t = 7; the paper's data are not
        # published, and a spread of .45 gives its utility floor.
        quantiles = (np.arange(100) + 0.5) / 100
        angles = 0.25 + 0.45 * math.sqrt(2.0) * np.array([_erfinv(2 * q - 1) for q in quantiles])
        moved = angles.copy()
        moved[np.argmin(np.abs(angles - 0.25))] = -2.4
        mechanism = shk(CircularMeanLoss(num_records=100), run_time=7.0, cells=192)
        p, q = mechanism.grid_law(angles), mechanism.grid_law(moved)
        assert np.abs(p - q).max() == pytest.approx(0.1816, abs=6e-3)
        assert mechanism.expected_excess_loss(angles) == pytest.approx(0.1075, abs=2e-3)
        delta = mechanism.pair_certificate(angles, moved).approximate_dp(0.15).value
        exact_delta = max(
            hockey_stick_from_log_masses(0.15, p, q), hockey_stick_from_log_masses(0.15, q, p)
        )
        assert 1e-6 < exact_delta < 1e-4
        assert exact_delta <= delta

    def test_shk_tends_to_the_exponential_mechanism_and_langevin_lags(self) -> None:
        # Two wells 2.5 apart: transport alone is slow.
        def two_wells(points: np.ndarray, dataset: Any) -> np.ndarray:
            return np.asarray(1.1 - np.cos(2.0 * points[:, 0]) + 0.1 * np.sin(points[:, 0])) / 2.3

        loss = CallableLoss(function=two_wells, bounds=(0.0, 1.0), sensitivity=0.1)
        common: dict[str, Any] = {"loss": loss, "inverse_temperature": 12.0, "cells": 96}
        target = ExponentialMechanism(ExponentialMechanismConfig(**common)).grid_law([])
        laws = [
            cls(config(run_time=8.0, start=lambda p: 8.0 * np.cos(p[:, 0]), **common)).grid_law([])
            for cls, config in (
                (ShkExponentialMechanism, ShkExponentialMechanismConfig),
                (LangevinMechanism, LangevinMechanismConfig),
            )
        ]
        assert np.abs(laws[0] - target).max() < 0.05
        assert np.abs(laws[1] - target).max() > 1.0

    @pytest.mark.parametrize("epsilon", [1.0 + 1e-9, 1.003, 1.1, 2.7, 20.0])
    def test_time_for_epsilon(self, epsilon: float) -> None:
        mechanism = shk()
        time = mechanism.time_for_epsilon(epsilon)
        reached = shk(run_time=time).certificate.pure_dp().value
        assert epsilon - 1e-9 < reached <= epsilon
        with pytest.raises(ValueError, match="epsilon must be a finite number > 1"):
            mechanism.time_for_epsilon(1.0)

    @pytest.mark.parametrize("run_time", [0.5, 2.0, 6.0])
    def test_no_event_has_more_power_than_the_certificate_allows(self, run_time: float) -> None:
        """The most powerful events of two laws are those of their log ratio."""
        mechanism = shk(run_time=run_time)
        curve = mechanism.certificate.trade_off()
        laws = [mechanism.grid_law(dataset) for dataset in balanced_circle_pair(20)]
        for first, second in (laws, laws[::-1]):
            order = np.argsort(second - first)
            power, level = (np.cumsum(np.exp(law[order])) for law in (first, second))
            assert np.all(power <= curve.power(np.minimum(level, 1.0)) + 1e-12)
        width = mechanism.certificate.width
        assert curve.epsilon(0.01) < width
        assert mechanism.certificate.approximate_dp(0.5 * width).value == pytest.approx(
            curve.delta(0.5 * width), rel=1e-6
        )

    def test_g8_the_law_may_leak_less_than_the_floor_of_its_claims(self) -> None:
        """The floor of `time_for_epsilon` is that of the claim: early in a run, from a common
        start, the exact law lies below it.
        """
        mechanism = shk(run_time=0.05)
        floor = mechanism.config.oscillation_distance
        first, second = (mechanism.grid_law(dataset) for dataset in balanced_circle_pair(20))
        with pytest.raises(ValueError, match="epsilon must be a finite number >"):
            mechanism.time_for_epsilon(floor)
        assert 0.0 < np.abs(first - second).max() < 0.5 * floor
        assert mechanism.certificate.pure_dp().value > floor

    def test_draws_follow_the_law(self) -> None:
        """Chi-square at level 1e-4, fixed seed."""
        dataset = balanced_circle_pair(20)[0]
        mechanism = shk(cells=24, seed=5)
        draws = mechanism(dataset, 100_000)
        counts, _ = np.histogram(draws[:, 0], bins=np.linspace(-math.pi, math.pi, 25))
        expected = 100_000 * np.exp(mechanism.grid_law(dataset))
        assert chisquare(counts, expected * 100_000 / expected.sum()).pvalue > 1e-4

    def test_laws_are_kept_by_value(self) -> None:
        dataset = balanced_circle_pair(20)[0]
        mechanism = shk(cells=24)
        law = mechanism.grid_law(dataset)
        assert mechanism.grid_law(dataset.copy()) is law
        dataset[0] = 2.0
        assert mechanism.grid_law(dataset) is not law
        with pytest.raises(ValueError, match="read-only"):
            law[0] = 0.0

    def test_datasets_that_cannot_be_pickled(self) -> None:
        loss = CallableLoss(function=lambda p, d: d(p), bounds=(-1, 1), sensitivity=0.1)
        law = shk(loss).grid_law(lambda points: np.cos(points[:, 0]))
        assert np.exp(law).sum() == pytest.approx(1.0)


class TestBrokenMechanisms:
    @pytest.mark.parametrize("defect", SAMPLER_DEFECTS)
    def test_exact_divergence_is_at_least_twice_the_claim(self, defect: str) -> None:
        config = BrokenShkMechanismConfig(
            loss=CircularMeanLoss(num_records=20),
            inverse_temperature=5.0,
            run_time=6.0,
            defect=defect,
        )
        mechanism = BrokenShkMechanism(config)
        exact = mechanism.exact_renyi_divergence(*balanced_circle_pair(20), 2.0)
        claim = read_claim(mechanism.claimed_privacy[-1])
        assert exact >= 2.0 * claim.epsilon  # type: ignore[union-attr]

    def test_factor_and_defect_are_checked(self) -> None:
        with pytest.raises(ValueError, match="factor"):
            BrokenShkMechanismConfig(
                loss=CircularMeanLoss(num_records=2),
                inverse_temperature=1.0,
                run_time=1.0,
                factor=1.0,
            )
        with pytest.raises(ValueError, match="defect"):
            BrokenShkMechanismConfig(
                loss=CircularMeanLoss(num_records=2),
                inverse_temperature=1.0,
                run_time=1.0,
                defect="x",
            )


class TestBadInput:
    def test_loss_outside_its_bounds(self) -> None:
        loss = CallableLoss(
            function=lambda p, d: 2.0 * np.cos(p[:, 0]), bounds=(-1, 1), sensitivity=0.1
        )
        with pytest.raises(ValueError, match=r"loss must stay inside its bounds \[-1, 1\]"):
            shk(loss).grid_law([])
        nan = CallableLoss(
            function=lambda p, d: p[:, 0] * math.nan, bounds=(-1, 1), sensitivity=0.1
        )
        with pytest.raises(ValueError, match="loss must stay inside its bounds"):
            shk(nan).grid_law([])

    def test_bounds_of_any_scale_are_kept(self) -> None:
        # Ten times the range, small in absolute terms: beta makes it large.
        loss = CallableLoss(
            function=lambda p, d: 5e-10 * (1.0 + np.sin(p[:, 0])),
            bounds=(0.0, 1e-10),
            sensitivity=0.0,
        )
        with pytest.raises(ValueError, match="loss must stay inside its bounds"):
            shk(loss, inverse_temperature=1e10, max_jump=math.inf)([0.0], 1)
        rounded = CallableLoss(
            function=lambda p, d: np.cos(p[:, 0]) * (1.0 + 5e-10), bounds=(-1, 1), sensitivity=0.0
        )
        mechanism = shk(rounded)
        assert np.ptp(mechanism.loss_values([0.0])) <= rounded.oscillation

    @pytest.mark.parametrize("loss, columns", LOSSES)
    def test_resolution_is_settled_before_any_dataset_is_seen(
        self, loss: Loss, columns: int
    ) -> None:
        # At the largest temperature that the constructor accepts no dataset is refused; just above,
        # no object is made.
        width = loss.axis(9).width
        largest = 5.0 / (loss.slope * width)  # type: ignore[operator]
        with pytest.raises(ValueError, match="for some dataset neighbouring cells may differ"):
            shk(loss, inverse_temperature=1.001 * largest, cells=9)
        mechanism = shk(loss, inverse_temperature=0.999 * largest, cells=9, run_time=0.1)
        steepest = 0.0
        for value in (-1e300, -1.0, 0.0, 1.0, 1e300):
            for column in range(columns):
                records = np.zeros((6, columns))
                records[:, column] = value
                records[:, -1] = value if columns == 1 or column == columns - 1 else 1.0
                mechanism.grid_law(records)
                values = mechanism.potential(records)
                for axis in range(loss.dimension):
                    steepest = max(steepest, float(np.abs(np.diff(values, axis=axis)).max()))
        assert steepest > 0.6 * 5.0  # the slope is a bound that some dataset comes near

    def test_slope_of_a_function_is_taken_on_trust_or_left_to_the_data(self) -> None:
        arguments: dict[str, Any] = {
            "function": lambda p, d: np.cos(p[:, 0]),
            "bounds": (-1, 1),
            "sensitivity": 0.0,
        }
        with pytest.raises(ValueError, match="for some dataset"):
            shk(CallableLoss(**arguments, slope=1.0), inverse_temperature=1e4)
        late = shk(CallableLoss(**arguments), inverse_temperature=1e4)
        with pytest.raises(ValueError, match="grid too coarse for the potential: neighbouring"):
            late([0.0], 1)
        with pytest.raises(ValueError, match="slope"):
            CallableLoss(**arguments, slope=0.0)

    def test_coarse_grid(self) -> None:
        with pytest.raises(ValueError, match="grid too coarse for the potential"):
            shk(CircularMeanLoss(num_records=1), inverse_temperature=1e4)([0.3], 1)

    @pytest.mark.parametrize(
        "dataset, message",
        [
            (np.zeros(21), "at most num_records = 20 records, got 21"),
            ([0.1, math.nan], "dataset must be finite"),
            (np.zeros((3, 2)), "dataset must have 1 columns"),
            (["a"], "dataset must hold floats"),
        ],
    )
    def test_datasets(self, dataset: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            shk()(dataset, 1)

    @pytest.mark.parametrize(
        "settings_",
        [
            {"inverse_temperature": 0.0},
            {"inverse_temperature": math.nan},
            {"run_time": -1.0},
            {"run_time": math.nan},
            {"cells": 2},
            {"alphas": (1.0,)},
            {"alphas": ()},
            {"num_steps": 0},
            {"start": 3.0},
            {"transport": "fast"},
        ],
    )
    def test_configs(self, settings_: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(settings_))):
            shk(**settings_)

    def test_losses_and_starts(self) -> None:
        with pytest.raises(ValueError, match="loss must be a loss"):
            shk(loss=lambda p, d: p[:, 0])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"function must give an array of shape \(256,\)"):
            shk(CallableLoss(function=lambda p, d: p, bounds=(-4, 4), sensitivity=0))([0.0], 1)
        with pytest.raises(ValueError, match="start must be finite"):
            shk(start=lambda p: np.full(len(p), -np.inf))
        with pytest.raises(ValueError, match="bounds"):
            CallableLoss(function=np.cos, bounds=(1.0, 0.0), sensitivity=0.0)


def _erfinv(x: float) -> float:
    from scipy.special import erfinv

    return float(erfinv(x))
