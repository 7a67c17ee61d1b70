"""Estimators from vectors: a direction is learned from few samples, and its own samples do not make
it look better than it is."""

import math

import numpy as np
import pytest

from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.critics.log_ratio import (
    CrossFittedLogRatio,
    average_families,
    pool_samples,
    values_at_past,
)
from dvrenyi_plugin.critics.neural_classifier import NetworkLogRatio
from dvrenyi_plugin.critics.projections import (
    DirectionLogRatio,
    RadialLogRatio,
    vector_families,
)
from dvrenyi_plugin.critics.simple_families import PolynomialLogRatio

MANY = 5_000


def root_mean_square(errors):
    return math.sqrt(float(np.mean(np.square(errors))))


def shifted(columns, count, mu=2.0, seed=0):
    rng = np.random.default_rng(seed)
    shift = np.full(columns, mu / math.sqrt(columns))
    return rng.normal(size=(count, columns)) + shift, rng.normal(size=(count, columns)), shift


@pytest.mark.parametrize("columns", [2, 5, 15, 60])
def test_a_shift_is_learned(columns):
    q, p, shift = shifted(columns, MANY, mu=1.0)
    log_ratio, name = fit_log_ratio(q, p)
    assert name in {family.name for family in vector_families(columns)}
    fresh = np.random.default_rng(1).normal(size=(500, columns))
    assert root_mean_square(log_ratio(fresh) - (fresh @ shift - 0.5)) < 0.2


def test_a_correlation_is_learned():
    rng = np.random.default_rng(6)
    correlation = 0.7
    p = rng.normal(size=(MANY, 2))
    q = p @ np.linalg.cholesky(np.array([[1.0, correlation], [correlation, 1.0]])).T
    p = rng.normal(size=(MANY, 2))
    log_ratio, name = fit_log_ratio(q, p)
    assert name == "polynomial of degree 2"
    x = rng.normal(size=(500, 2))
    product, squares = x[:, 0] * x[:, 1], (x**2).sum(axis=1)
    determinant = 1.0 - correlation**2
    truth = (
        -0.5 * math.log(determinant)
        + (correlation * product - 0.5 * correlation**2 * squares) / determinant
    )
    assert root_mean_square(log_ratio(x) - truth) < 0.25


@pytest.mark.parametrize("columns", [100, 600])
def test_a_direction_does_not_flatter_itself_on_its_own_samples(columns):
    """Where the estimate takes its samples far apart, what it plans bets on does not."""
    q, p, _ = shifted(columns, 100, mu=0.0)
    log_ratio, _ = fit_log_ratio(q, p)
    assert isinstance(log_ratio, CrossFittedLogRatio)
    planned = values_at_past(log_ratio, q, p)
    assert [len(side) for side in planned] == [100, 100]
    assert abs(planned[0].mean() - planned[1].mean()) < 0.2
    data = pool_samples(*shifted(columns, 100)[:2])
    fit = DirectionLogRatio().fit(data)
    apart = [
        values[:100].mean() - values[100:].mean()
        for values in (fit.log_ratio(data.points), fit.past.q)
    ]
    assert apart[0] > 1.5 * apart[1] > 0.0


def test_the_discriminant_uses_the_correlation_of_the_columns():
    rng = np.random.default_rng(2)
    common = rng.normal(size=(2, 400, 1))
    q, p = 0.3 * rng.normal(size=(2, 400, 20)) + common
    q[:, 0] += 0.6
    losses = {
        direction: DirectionLogRatio(direction).fit(data).score(data)
        for data in [pool_samples(q, p)]
        for direction in ("discriminant", "sparse")
    }
    assert losses["discriminant"] < losses["sparse"] - 50.0


def test_the_sparse_direction_finds_one_column_of_many():
    rng = np.random.default_rng(3)
    q, p = rng.normal(size=(2, 60, 300))
    q[:, 7] += 2.0
    data = pool_samples(q, p)
    losses = [DirectionLogRatio(name).fit(data).score(data) for name in ("discriminant", "sparse")]
    assert losses[1] < losses[0] - 10.0


def test_the_distance_and_the_products_see_what_no_direction_does():
    rng = np.random.default_rng(4)
    ring = rng.normal(size=(200, 10))
    ring *= 2.0 / np.linalg.norm(ring, axis=1, keepdims=True)
    cloud = rng.normal(size=(200, 10)) * 2.0 / math.sqrt(10.0)
    rings = pool_samples(ring, cloud)
    square = rng.uniform(-1.0, 1.0, (2, 200, 10))
    square[0, :, 1] = np.abs(square[0, :, 1]) * np.sign(square[0, :, 0])
    quadrants = pool_samples(*square)
    blind = [DirectionLogRatio().fit(data).score(data) for data in (rings, quadrants)]
    assert RadialLogRatio().fit(rings).score(rings) < blind[0] - 20.0
    products = DirectionLogRatio("sparse", quadratic=True)
    assert products.fit(quadrants).score(quadrants) < blind[1] - 20.0


@pytest.mark.parametrize(("columns", "least"), [(20, 1.5), (100, 1.1), (400, 0.7)])
def test_few_vectors_certify(columns, least):
    """D_2 = 4; before directions were cross-fitted, 100 columns gave 0.24 and 400 gave 0.04."""
    q, p, _ = shifted(columns, 500)
    process = GrowthOptimalEProcess(2.0, 0.05, warm_up=50)
    process.update(q, p)
    assert least < process.lower_bound < 4.0


def test_a_network_plans_its_bets_on_samples_that_it_was_not_fitted_to():
    q, p, _ = shifted(50, 200, mu=0.0)
    log_ratio, _ = NetworkLogRatio(max_epochs=5).fit(q, p)
    planned = values_at_past(log_ratio, q, p)
    assert [len(side) for side in planned] == [50, 50]


@pytest.mark.parametrize("columns", [2, 40])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 3), (2, 2), (7, 4)])
def test_a_few_or_constant_samples_give_finite_values(columns, first, second):
    rng = np.random.default_rng(5)
    for q, p in (
        (rng.normal(size=(first, columns)), rng.normal(size=(second, columns))),
        (np.zeros((first, columns)), np.zeros((second, columns))),
        (np.full((first, columns), 1e300), np.full((second, columns), -1e300)),
    ):
        log_ratio, _ = fit_log_ratio(q, p)
        for values in (*values_at_past(log_ratio, q, p), log_ratio(np.concatenate([q, p]))):
            assert np.isfinite(values).all()


def test_a_value_does_not_depend_on_the_other_rows():
    q, p, _ = shifted(30, 60)
    log_ratio, _ = fit_log_ratio(q, p)
    whole = log_ratio(q)
    one_by_one = np.concatenate([log_ratio(row[np.newaxis]) for row in q])
    np.testing.assert_allclose(one_by_one, whole, rtol=1e-10)


def test_an_average_is_one_of_ratios_and_weighs_by_the_score():
    rng = np.random.default_rng(7)
    data = pool_samples(rng.normal(0.3, 1.0, (40, 1)), rng.normal(0.0, 1.0, (40, 1)))
    families = PolynomialLogRatio(1), PolynomialLogRatio(2)
    fits = [family.fit(data) for family in families]
    weights = np.exp([-fit.score(data) for fit in fits])
    x = np.linspace(-3.0, 3.0, 13)[:, np.newaxis]
    expected = np.log(weights @ np.exp([fit.log_ratio(x) for fit in fits]) / weights.sum())
    average = average_families(data, families)
    np.testing.assert_allclose(average.log_ratio(x), expected, rtol=1e-9)
    assert average.name == families[int(np.argmax(weights))].name
    np.testing.assert_allclose(average.past.q, average.log_ratio(data.points), rtol=1e-9)


def test_unknown_directions_are_refused():
    with pytest.raises(ValueError, match="direction must be"):
        DirectionLogRatio("widest")
    with pytest.raises(ValueError, match="folds must be"):
        DirectionLogRatio(folds=1)
