"""Losses of samplers keep their bounds, oscillation and sensitivity, and attain them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_losses import LOSSES

from dvrenyi_plugin.flows.grid import Grid
from dvrenyi_plugin.mechanisms import (
    CircularMeanLoss,
    LogisticLoss,
    MeanLoss,
    QuantileLoss,
)
from dvrenyi_plugin.mechanisms.exponential.losses import Loss


def points_of(loss: Loss, cells: int = 15) -> np.ndarray:
    return Grid((loss.axis(cells),) * loss.dimension).midpoints()


class TestLosses:
    @settings(max_examples=80, deadline=None)
    @given(
        which=st.integers(0, len(LOSSES) - 1),
        seed=st.integers(0, 2**32 - 1),
        scale=st.sampled_from([0.3, 3.0, 1e3]),
        change=st.sampled_from(["replace", "remove", "add"]),
    )
    def test_bounds_oscillation_and_sensitivity_hold(
        self, which: int, seed: int, scale: float, change: str
    ) -> None:
        loss, columns = LOSSES[which]
        rng = np.random.default_rng(seed)
        first = scale * rng.normal(size=(5, columns))
        second = first.copy()
        if change == "replace":
            second[2] = -scale * rng.normal(size=columns)
        elif change == "remove":
            second = second[1:]
        else:
            second = np.concatenate([second, scale * rng.normal(size=(1, columns))])
        points = points_of(loss)
        values1, values2 = loss(points, first), loss(points, second)
        low, high = loss.bounds
        assert low - 1e-12 <= values1.min() and values1.max() <= high + 1e-12
        assert np.ptp(values1) <= loss.oscillation + 1e-12
        assert np.ptp(values1 - values2) <= loss.sensitivity + 1e-12

    @pytest.mark.parametrize(
        "loss, one, other",
        [
            (CircularMeanLoss(num_records=4), [[0.0]], [[math.pi]]),
            (MeanLoss(num_records=4, dimension=2), [[0.0, 0.0]], [[1.0, 1.0]]),
            (QuantileLoss(num_records=4, quantile=0.3), [[0.0]], [[1.0]]),
            (LogisticLoss(num_records=4), [[0.7072, 0.7072, 1]], [[0.7072, 0.7072, -1]]),
        ],
    )
    def test_sensitivity_and_oscillation_are_attained(
        self, loss: Loss, one: list[list[float]], other: list[list[float]]
    ) -> None:
        points = points_of(loss, 201)
        assert np.ptp(loss(points, one) - loss(points, other)) > 0.97 * loss.sensitivity
        largest = max(np.ptp(loss(points, np.repeat(r, 4, axis=0))) for r in (one, other))
        assert largest > 0.97 * loss.oscillation

    def test_against_plain_loops(self) -> None:
        rng = np.random.default_rng(0)
        theta = 1.7
        y = rng.uniform(-3.0, 3.0, size=7)
        point = np.array([[theta]])
        circular = sum(1 - math.cos(theta - v) for v in y) / 9
        assert CircularMeanLoss(num_records=9)(point, y)[0] == pytest.approx(circular)
        squares = sum((theta - min(max(v, -1.0), 2.0)) ** 2 for v in y) / 9
        assert MeanLoss(num_records=9, low=-1.0, high=2.0)(point, y)[0] == pytest.approx(squares)
        clipped = [min(max(v, -1.0), 2.0) for v in y]
        pinball = sum(0.8 * max(v - theta, 0) + 0.2 * max(theta - v, 0) for v in clipped) / 9
        loss = QuantileLoss(num_records=9, low=-1.0, high=2.0, quantile=0.8)
        assert loss(point, y)[0] == pytest.approx(pinball)
        features, labels = rng.normal(size=(1200, 2)), rng.integers(0, 2, size=1200)
        theta2 = np.array([[0.4, -1.1]])
        logistic = 0.0
        for x, label in zip(features, labels, strict=True):
            x = x / max(1.0, np.linalg.norm(x))
            logistic += math.log1p(math.exp(-(1 if label else -1) * float(x @ theta2[0]))) / 1200
        logistic_loss = LogisticLoss(num_records=1200)
        assert logistic_loss(theta2, (features, labels))[0] == pytest.approx(logistic)
        table = np.column_stack([features, labels])
        assert logistic_loss(theta2, table)[0] == pytest.approx(logistic)

    @pytest.mark.parametrize("length", [1e-3, 1.0, 1e100, 1e200, 1e308])
    def test_long_features_are_scaled_to_norm_one(self, length: float) -> None:
        point, direction = np.array([[0.4, -1.1]]), np.array([0.6, 0.8])
        record = np.append(length * direction, 1.0)
        margin = min(length, 1.0) * float(direction @ point[0])
        expected = math.log1p(math.exp(-margin))
        assert LogisticLoss(num_records=1)(point, [record])[0] == pytest.approx(expected)

    def test_labels_must_match_features(self) -> None:
        with pytest.raises(
            ValueError, match="a label for every row of features, got 2 labels for 3"
        ):
            LogisticLoss(num_records=3)(np.zeros((1, 2)), (np.zeros((3, 2)), np.zeros(2)))

    def test_minimisers(self) -> None:
        y = np.array([0.1, 0.2, 0.9])
        points = points_of(MeanLoss(num_records=3), 1000)
        assert points[np.argmin(MeanLoss(num_records=3)(points, y)), 0] == pytest.approx(
            0.4, abs=1e-3
        )
        median = points[np.argmin(QuantileLoss(num_records=3)(points, y)), 0]
        assert median == pytest.approx(0.2, abs=1e-3)
