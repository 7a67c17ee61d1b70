"""The parts that every estimator is built from: the split, the standardiser, the logistic fit."""

import numpy as np
import pytest

from dvrenyi_plugin.critics.logistic_fit import fit_logistic
from dvrenyi_plugin.critics.sample_split import part_size, split_samples
from dvrenyi_plugin.critics.standardiser import Standardiser, weighted_quantile


def test_split_is_a_seeded_partition():
    samples = np.arange(10.0)[:, np.newaxis]
    first, rest = split_samples(samples, 0.3, np.random.SeedSequence(3))
    again, _ = split_samples(samples, 0.3, np.random.SeedSequence(3))
    assert (first == again).all()
    assert len(first) == 3
    assert sorted(np.concatenate([first, rest])[:, 0]) == samples[:, 0].tolist()


def test_split_without_a_stream_keeps_the_order():
    first, rest = split_samples(np.arange(5.0)[:, np.newaxis], 0.4, None)
    assert (first[:, 0].tolist(), rest[:, 0].tolist()) == ([0.0, 1.0], [2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("count", "fraction", "at_least", "size"),
    [(2, 0.01, 1, 1), (2, 0.99, 1, 1), (100, 0.4, 4, 40), (8, 0.01, 4, 4), (9, 0.99, 4, 5)],
)
def test_neither_part_is_too_small(count, fraction, at_least, size):
    assert part_size(count, fraction, at_least) == size


def test_quartiles_of_a_normal_column_have_scale_one():
    column = np.random.default_rng(0).normal(5.0, 2.0, (20_000, 1))
    standard = Standardiser.of_quartiles(column, 20.0)(column)
    assert (np.median(standard), standard.std()) == pytest.approx((0.0, 1.0), abs=0.02)


def test_weighted_points_stand_for_that_many_samples():
    points = np.array([[0.0], [1.0], [4.0], [9.0]])
    weights = np.array([3.0, 5.0, 4.0, 8.0])
    each = np.repeat(points, weights.astype(int), axis=0)
    pooled = Standardiser.of_weighted(points, weights, 6.0)
    single = Standardiser.of_weighted(each, np.ones(len(each)), 6.0)
    np.testing.assert_array_equal(pooled(points), single(points))
    assert weighted_quantile(points[:, 0], weights, np.array([0.4, 0.41])).tolist() == [1.0, 4.0]


def test_logistic_fit_is_stationary_and_counts_its_parameters():
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(500), rng.normal(size=500)])
    is_q = (rng.random(500) < 1.0 / (1.0 + np.exp(-1.0 - 2.0 * design[:, 1]))).astype(float)
    penalty = np.array([1e-9, 0.01])
    fitted = fit_logistic(design, is_q, 1.0 - is_q, penalty, np.zeros(2), tolerance=0.0)
    probability = 1.0 / (1.0 + np.exp(-design @ fitted.coefficients))
    gradient = design.T @ (probability - is_q) + penalty * fitted.coefficients
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    assert fitted.coefficients == pytest.approx([1.0, 2.0], abs=0.5)
    assert fitted.num_effective == pytest.approx(2.0, abs=0.01)
