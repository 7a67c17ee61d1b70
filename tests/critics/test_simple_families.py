"""Estimators of the log density ratio: calibrated on known pairs, chosen by the data, unmoved by
outliers."""

import math

import numpy as np
import pytest

from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.critics.log_ratio import pool_samples, values_at_past
from dvrenyi_plugin.critics.simple_families import (
    SCALAR_FAMILIES,
    BoundedLogRatio,
    HistogramLogRatio,
    MonotoneLogRatio,
    PolynomialLogRatio,
    SplineLogRatio,
)

MANY = 20_000


def column(values):
    return np.asarray(values, dtype=np.float64)[:, np.newaxis]


def gaussians(mu, count, seed=0):
    rng = np.random.default_rng(seed)
    return column(rng.normal(mu, 1.0, count)), column(rng.normal(0.0, 1.0, count))


def root_mean_square(errors):
    return math.sqrt(float(np.mean(np.square(errors))))


@pytest.mark.parametrize(
    "family",
    [family for family in SCALAR_FAMILIES if not isinstance(family, BoundedLogRatio)],
    ids=lambda family: family.name,
)
def test_every_other_scalar_family_learns_a_gaussian_shift(family):
    q, p = gaussians(1.0, MANY)
    fit = family.fit(pool_samples(q, p))
    x = np.linspace(-1.5, 2.5, 81)
    errors = fit.log_ratio(column(x)) - (x - 0.5)
    # Parametric families are within sampling error; step functions within half a step.
    assert root_mean_square(errors) < (0.08 if isinstance(family, PolynomialLogRatio) else 0.25)
    assert abs(np.mean(errors)) < 0.05
    assert fit.num_parameters >= 1.0


@pytest.mark.parametrize("family", SCALAR_FAMILIES, ids=lambda family: family.name)
def test_every_scalar_family_is_calibrated(family):
    """Both means of the ratio are 1: E_P[e^l] = E_Q[e^-l] = 1, on fresh samples."""
    log_ratio = family.fit(pool_samples(*gaussians(1.0, MANY))).log_ratio
    q, p = gaussians(1.0, MANY, seed=1)
    # Standard errors are near 0.01; e^l is cut where a fit has to extrapolate.
    assert np.exp(log_ratio(p)).mean() == pytest.approx(1.0, abs=0.06)
    assert np.exp(-log_ratio(q)).mean() == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("family", SCALAR_FAMILIES, ids=lambda family: family.name)
def test_unequal_counts_do_not_shift_the_ratio(family):
    q, p = gaussians(0.0, MANY)
    log_ratio = family.fit(pool_samples(q, p[: MANY // 10])).log_ratio
    values = log_ratio(column(np.linspace(-1.5, 1.5, 31)))
    # The counts differ by a factor 10, log 10 = 2.3; equal laws have ratio 0.
    # A cell of the finer histogram holds some 8 samples of P.
    fine = family == HistogramLogRatio(max_cells=256)
    assert root_mean_square(values) < (0.5 if fine else 0.2)
    assert abs(values.mean()) < 0.12


def test_degree_two_learns_a_change_of_scale():
    rng = np.random.default_rng(2)
    q, p = column(rng.normal(0.0, 2.0, MANY)), column(rng.normal(0.0, 1.0, MANY))
    log_ratio = PolynomialLogRatio(2).fit(pool_samples(q, p)).log_ratio
    x = np.linspace(-2.5, 2.5, 51)
    truth = -math.log(2.0) + x**2 * (0.5 - 0.125)
    assert root_mean_square(log_ratio(column(x)) - truth) < 0.08


def test_the_spline_follows_a_laplace_ratio_that_polynomials_miss():
    rng = np.random.default_rng(3)
    q, p = column(rng.laplace(1.0, 1.0, MANY)), column(rng.laplace(0.0, 1.0, MANY))
    data = pool_samples(q, p)
    x = np.linspace(-2.0, 3.0, 101)
    truth = np.abs(x) - np.abs(x - 1.0)
    errors = {
        family.name: root_mean_square(family.fit(data).log_ratio(column(x)) - truth)
        for family in (PolynomialLogRatio(1), SplineLogRatio(), MonotoneLogRatio())
    }
    assert errors["linear spline with 7 knots"] < 0.15
    assert errors["monotone"] < 0.25
    assert errors["polynomial of degree 1"] > 0.3


def test_the_monotone_family_finds_the_direction():
    q, p = gaussians(-1.0, 2_000)
    log_ratio = MonotoneLogRatio().fit(pool_samples(q, p)).log_ratio
    values = log_ratio(column(np.linspace(-3.0, 3.0, 61)))
    assert np.all(np.diff(values) <= 0.0)
    assert values[0] > 1.0
    assert values[-1] < -1.0


def test_histograms_take_discrete_values_apart():
    counts_q, counts_p = np.array([60, 30, 10, 0]), np.array([10, 30, 50, 10])
    q, p = column(np.repeat(np.arange(4), counts_q)), column(np.repeat(np.arange(4), counts_p))
    fit = HistogramLogRatio().fit(pool_samples(q, p))
    assert 1.0 < fit.num_parameters < 6.0
    values = fit.log_ratio(column(np.arange(4)))
    raw = np.log((counts_q + 0.5) / (counts_p + 0.5))
    # Towards 0, by less where there are more samples.
    assert np.all(np.abs(values) <= np.abs(raw) + 1e-9)
    assert np.all(values * raw >= 0.0)
    np.testing.assert_allclose(values[:3], raw[:3], atol=0.15)
    # A point between two values belongs to the lower one, a point below all to the first.
    np.testing.assert_array_equal(fit.log_ratio(column([1.5, -7.0, 99.0])), values[[1, 0, 3]])


def test_heights_on_values_that_do_not_differ_are_shrunk_away():
    rng = np.random.default_rng(8)
    q, p = (column(rng.integers(0, 10, 100)) for _ in range(2))
    shrunk = HistogramLogRatio().fit(pool_samples(q, p))
    assert np.abs(shrunk.log_ratio(column(np.arange(10)))).max() < 0.1
    counts = (np.bincount(side[:, 0].astype(int), minlength=10) for side in (q, p))
    assert np.abs(np.log(np.divide(*counts))).max() > 0.3


def test_a_sample_does_not_plan_its_own_bet_on_few_values():
    rng = np.random.default_rng(11)
    masses = np.where(np.arange(40) % 2 == 0, 0.04, 0.01)
    q = column(rng.choice(40, 200, p=masses).astype(float))
    p = column(rng.integers(0, 40, 200).astype(float))
    log_ratio, _ = fit_log_ratio(q, p)
    planned_q, planned_p = values_at_past(log_ratio, q, p)
    # Each is judged by the others: less Q-like if of Q, less P-like if of P.
    assert np.all(planned_q < log_ratio(q)) and np.all(planned_p > log_ratio(p))
    without_first, _ = fit_log_ratio(q[1:], p)
    assert planned_q[0] == pytest.approx(without_first(q[:1])[0], abs=0.05)


@pytest.mark.parametrize(
    ("shape", "draw", "truth"),
    [
        ("saturated", lambda rng: rng.laplace(size=MANY), lambda x: np.abs(x) - np.abs(x - 0.5)),
        (
            "redescending",
            lambda rng: rng.standard_t(3.0, size=MANY),
            lambda x: 2.0 * np.log((3.0 + x**2) / (3.0 + (x - 0.5) ** 2)),
        ),
    ],
)
def test_bounded_scores_follow_heavy_tails_that_a_line_leaves(shape, draw, truth):
    rng = np.random.default_rng(9)
    data = pool_samples(column(draw(rng) + 0.5), column(draw(rng)))
    x = np.linspace(-6.0, 6.0, 121)
    width = {"saturated": 0.25, "redescending": 1.2}[shape]
    bounded = BoundedLogRatio(width, shape).fit(data)
    line = PolynomialLogRatio(1).fit(data)
    errors = [root_mean_square(fit.log_ratio(column(x)) - truth(x)) for fit in (bounded, line)]
    assert errors[0] < 0.12
    assert errors[1] > 3.0 * errors[0]
    assert bounded.score(data) < line.score(data)


def test_an_even_score_sees_a_scale():
    rng = np.random.default_rng(10)
    data = pool_samples(column(rng.laplace(0, 1.5, MANY)), column(rng.laplace(0, 1.0, MANY)))
    values = BoundedLogRatio(1.0, "even").fit(data).log_ratio(column([-4.0, 0.0, 4.0]))
    assert values[0] == pytest.approx(values[2], abs=0.1)
    assert values[1] < -0.25 < 0.25 < values[0]


def test_the_data_choose_the_family():
    rng = np.random.default_rng(4)
    q, p = gaussians(1.0, 2_000)
    assert fit_log_ratio(q, p)[1] == "polynomial of degree 1"
    wide = column(rng.normal(0.0, 2.0, 2_000))
    assert fit_log_ratio(wide, p)[1] == "polynomial of degree 2"
    # Alternating masses on ten values: only a step function sees them.
    masses = np.where(np.arange(10) % 2 == 0, 0.15, 0.05)
    alternating = column(rng.choice(10, 2_000, p=masses).astype(float))
    even = column(rng.choice(10, 2_000).astype(float))
    log_ratio, name = fit_log_ratio(alternating, even)
    assert name.startswith("histogram")
    truth = np.log(masses / 0.1)
    assert root_mean_square(log_ratio(column(np.arange(10))) - truth) < 0.15
    with pytest.raises(ValueError, match="families"):
        fit_log_ratio(q, p, ())


def test_many_values_are_told_apart_when_there_are_samples_enough():
    rng = np.random.default_rng(7)
    masses = np.where(np.arange(100) % 2 == 0, 0.016, 0.004)
    q = column(rng.choice(100, MANY, p=masses).astype(float))
    p = column(rng.choice(100, MANY).astype(float))
    log_ratio, name = fit_log_ratio(q, p)
    assert name == "histogram of at most 256 cells"
    assert root_mean_square(log_ratio(column(np.arange(100))) - np.log(masses / 0.01)) < 0.2


def test_pooling_many_points_changes_little():
    q, p = gaussians(1.0, 50_000)
    data = pool_samples(q, p)
    assert len(data.points) <= 1_024
    assert data.weights_q.sum() == data.weights_p.sum() == 50_000
    x = column(np.linspace(-1.0, 2.0, 31))
    pooled = PolynomialLogRatio(1).fit(data).log_ratio(x)
    np.testing.assert_allclose(pooled, x[:, 0] - 0.5, atol=0.05)


def test_ties_are_counted_not_dropped():
    data = pool_samples(column([1.0, 1.0, 2.0]), column([2.0, 2.0, 3.0, 3.0]))
    np.testing.assert_array_equal(data.points[:, 0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(data.weights_q, [2.0, 1.0, 0.0])
    np.testing.assert_array_equal(data.weights_p, [0.0, 2.0, 2.0])
    assert data.log_odds_offset == pytest.approx(math.log(3.0 / 4.0))


@pytest.mark.parametrize("family", SCALAR_FAMILIES, ids=lambda family: family.name)
def test_one_outlier_moves_nothing(family):
    q, p = gaussians(1.0, 1_000)
    x = column(np.linspace(-1.5, 2.5, 41))
    clean = family.fit(pool_samples(q, p)).log_ratio(x)
    for outlier in (1e6, -1e300):
        moved = family.fit(pool_samples(np.concatenate([q, [[outlier]]]), p)).log_ratio(x)
        assert np.abs(moved - clean).max() < 0.5


@pytest.mark.parametrize("family", SCALAR_FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize(
    ("q", "p"),
    [
        ([0.0, 0.0], [0.0, 0.0]),
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
        ([0.0], [1.0]),
        ([1e300, -1e300], [0.0, 1.0]),
        ([1e-300], [2e-300]),
    ],
)
def test_degenerate_samples_give_finite_values(family, q, p):
    fit = family.fit(pool_samples(column(q), column(p)))
    values = fit.log_ratio(column([*q, *p, 0.5, -1e300, 1e300]))
    assert np.isfinite(values).all()
    assert np.isfinite(fit.past.q).all() and np.isfinite(fit.past.p).all()
    assert math.isfinite(fit.num_parameters)


def test_separated_laws_have_a_large_but_finite_ratio():
    log_ratio, _ = fit_log_ratio(column(np.ones(200)), column(np.zeros(200)))
    assert 4.0 < log_ratio(column([1.0]))[0] <= 50.0
    assert -50.0 <= log_ratio(column([0.0]))[0] < -4.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: PolynomialLogRatio(0),
        lambda: PolynomialLogRatio(1, ridge=0.0),
        lambda: SplineLogRatio(num_knots=0),
        lambda: SplineLogRatio(ridge=-1.0),
        lambda: MonotoneLogRatio(prior_count=0.0),
        lambda: BoundedLogRatio(0.0),
        lambda: BoundedLogRatio(1.0, "odd"),
        lambda: HistogramLogRatio(max_cells=1),
        lambda: HistogramLogRatio(prior_count=math.nan),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()
