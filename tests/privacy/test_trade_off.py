"""Trade-off curves: closed forms, dp_accounting, tangents that never cut the curve, polygons that
never claim too much.
"""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    GaussianDp,
    PureDp,
    RenyiDp,
    ZeroConcentratedDp,
    claim_level,
)
from dvrenyi_plugin.privacy.claim_families import RenyiFamily, SingleCurveFamily, family_of
from dvrenyi_plugin.privacy.conversions import gaussian_dp_delta
from dvrenyi_plugin.privacy.divergences import renyi_bernoulli
from dvrenyi_plugin.privacy.trade_off import (
    ApproximateDpCurve,
    BoundedRangeCurve,
    GaussianCurve,
    GroupCurve,
    MinimumCurve,
    PointsCurve,
    TradeOffCurve,
)
from dvrenyi_plugin.privacy.trade_off_claims import (
    dp_event_curve,
    dp_sgd_curve,
    privacy_loss_curve,
    renyi_curve,
    trade_off_curve,
)
from dvrenyi_plugin.privacy.trade_off_families import (
    ApproximateDpFamily,
    BoundedRangeFamily,
    GaussianFamily,
    TradeOffFamily,
)

CURVES = {
    "gaussian": GaussianCurve(1.3),
    "approximate": ApproximateDpCurve(1.0, 0.01),
    "pure": ApproximateDpCurve(0.7),
    "bounded range": BoundedRangeCurve(2.0),
    "points": PointsCurve([0.1, 0.4], [0.5, 0.8]),
    "minimum": MinimumCurve([GaussianCurve(1.0), ApproximateDpCurve(1.0)]),
    "group": GroupCurve(ApproximateDpCurve(0.4, 0.01), 3),
    "renyi": renyi_curve(2.0, 0.5),
    "renyi of a large order": renyi_curve(1000.0, 1.0),
    "zcdp": trade_off_curve(ZeroConcentratedDp(0.3)),
    "sampled": dp_sgd_curve(20, 1.0, 0.1),
}
LEVELS = st.floats(1e-12, 1.0 - 1e-12)


@pytest.mark.parametrize("name", CURVES)
@settings(max_examples=40, deadline=None)
@given(level=LEVELS, other=LEVELS)
def test_curves_are_concave_above_the_diagonal_and_below_their_tangents(name, level, other):
    curve = CURVES[name]
    power, slope = float(curve.power(level)), float(curve.slope(level))
    assert level - 1e-12 <= power <= 1.0 and slope >= 0.0
    assert float(curve.power(other)) <= power + slope * (other - level) + 1e-12
    assert float(curve.power(1.0)) == 1.0


def test_known_powers():
    a = np.array([1e-6, 0.02, 0.5, 0.9])
    gaussian = stats.norm.sf(stats.norm.isf(a) - 1.5)
    np.testing.assert_allclose(GaussianCurve(1.5).power(a), gaussian, rtol=1e-9)
    e = math.e
    np.testing.assert_allclose(
        ApproximateDpCurve(1.0, 0.05).power([0.0, 0.1, 0.5, 0.95, 1.0]),
        [0.05, 0.1 * e + 0.05, 1.0 - (0.95 - 0.5) / e, 1.0, 1.0],
    )
    # Two points with masses in the ratios e^1 and e^-1 have a log ratio of width 2.
    p = 1.0 / (1.0 + e)
    assert float(BoundedRangeCurve(2.0).power(p)) == pytest.approx(e * p)
    with_both = MinimumCurve([GaussianCurve(1.0), ApproximateDpCurve(0.5)])
    assert float(with_both.power(0.01)) == pytest.approx(0.01 * math.exp(0.5))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_conjugates(epsilon):
    by_search = TradeOffCurve.delta(GaussianCurve(1.2), epsilon)
    assert by_search == pytest.approx(gaussian_dp_delta(1.2, epsilon), abs=1e-9)
    assert ApproximateDpCurve(epsilon, 1e-3).delta(epsilon) == pytest.approx(1e-3, abs=1e-12)
    assert ApproximateDpCurve(epsilon, 1e-3).epsilon(1e-3) == pytest.approx(epsilon, abs=1e-6)
    # The largest sum of (q - e^epsilon p)+ over two-point laws of width 2.
    tops = np.linspace(0.0, 2.0, 2001)
    p = -np.expm1(tops[1:-1] - 2.0) / (np.exp(tops[1:-1]) - np.exp(tops[1:-1] - 2.0))
    brute = max(0.0, float((p * (np.exp(tops[1:-1]) - math.exp(epsilon))).max()))
    assert BoundedRangeCurve(2.0).delta(epsilon) == pytest.approx(brute, abs=1e-6)


def test_groups():
    a = np.linspace(0.01, 0.99, 9)
    one = GaussianCurve(0.4)
    np.testing.assert_allclose(GroupCurve(one, 3).power(a), one.group(3).power(a), rtol=1e-9)
    width = BoundedRangeCurve(0.3)
    np.testing.assert_allclose(GroupCurve(width, 4).power(a), width.group(4).power(a), rtol=1e-9)
    pure = ApproximateDpCurve(0.5).group(2)
    assert np.all(pure.power(a) <= ApproximateDpCurve(1.0).power(a) + 1e-12)


@settings(max_examples=80, deadline=None)
@given(
    q=st.floats(1e-9, 1.0 - 1e-9),
    p=st.floats(1e-9, 1.0 - 1e-9),
    alpha=st.sampled_from([1.01, 1.25, 2.0, 8.0, 64.0]),
)
def test_no_coins_that_keep_renyi_dp_lie_above_its_polygon(q, p, alpha):
    epsilon = max(renyi_bernoulli(alpha, q, p), renyi_bernoulli(alpha, p, q))
    assert q <= float(renyi_curve(alpha, epsilon).power(p))


def test_coins_beyond_renyi_dp_lie_above_its_polygon():
    for a in (1e-6, 0.05, 0.5, 0.9):
        b = float(renyi_curve(2.0, 0.5).power(a)) + 1e-4 * (1.0 - a)
        assert b > 1.0 or max(renyi_bernoulli(2.0, b, a), renyi_bernoulli(2.0, a, b)) > 0.5


def test_events_of_gaussian_dp_keep_the_zcdp_that_it_implies():
    a = np.linspace(1e-4, 1.0 - 1e-4, 500)
    implied = trade_off_curve(ZeroConcentratedDp(0.5)).power(a)
    assert np.all(GaussianCurve(1.0).power(a) <= implied + 1e-12)


def sampled_gaussian():
    return privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.1, value_discretization_interval=1e-3
    ).self_compose(20)


def test_curves_of_privacy_losses_have_the_accountants_deltas():
    pld = sampled_gaussian()
    both = privacy_loss_curve(pld, "both")
    for epsilon in (0.1, 0.5, 1.5):
        by_curve = both.delta(epsilon)
        assert by_curve == pytest.approx(pld.get_delta_for_epsilon(epsilon), abs=1e-8)


def test_the_two_directions_are_inverse_to_each_other():
    pld = sampled_gaussian()
    remove, add = privacy_loss_curve(pld, "remove"), privacy_loss_curve(pld, "add")
    a = np.linspace(0.01, 0.99, 50)
    np.testing.assert_allclose(add.power(1.0 - remove.power(a)), 1.0 - a, atol=2e-3)
    assert not np.allclose(add.power(a), remove.power(a), atol=2e-3)


def test_events_of_the_accountant():
    a = np.linspace(0.01, 0.99, 50)
    gaussian = dp_event_curve(dp_accounting.GaussianDpEvent(2.0)).power(a)
    exact = GaussianCurve(0.5).power(a)
    assert np.all((exact <= gaussian + 1e-12) & (gaussian <= exact + 1e-3))
    np.testing.assert_allclose(dp_sgd_curve(4, 2.0, 1.0).power(a), GaussianCurve(1.0).power(a))


@pytest.mark.parametrize(
    "family",
    [GaussianFamily(), ApproximateDpFamily(0.0), ApproximateDpFamily(0.02), BoundedRangeFamily()],
    ids=lambda family: family.name,
)
def test_families_grow_and_agree_with_their_curves(family):
    values = np.array([0.1, 0.5, 2.0])
    levels = np.tile([0.9, 0.6, 0.3, 1e-3], (3, 1))
    power, slope = family.power_and_slope_at(values, levels)
    slow_power, slow_slope = TradeOffFamily.power_and_slope_at(family, values, levels)
    np.testing.assert_allclose(power, slow_power, rtol=1e-12)
    np.testing.assert_allclose(slope, slow_slope, rtol=1e-12)
    assert np.all(np.diff(power, axis=0) >= 0.0)
    assert family.grid[0] > 0.0 and np.all(np.diff(family.grid) > 0.0)


@pytest.mark.parametrize(
    ("claim", "parameter"),
    [
        (GaussianDp(1.0), "mu"),
        (PureDp(1.0), "epsilon"),
        (ApproximateDp(1.0, 1e-3), "epsilon"),
        (RenyiDp(2.0, 0.5), "epsilon"),
        (ZeroConcentratedDp(0.3), "rho"),
    ],
)
def test_the_family_of_a_claim_holds_its_curve(claim, parameter):
    family, a = family_of(claim), np.linspace(0.01, 0.99, 30)
    assert family.parameter == parameter
    np.testing.assert_allclose(
        family.curve(claim_level(claim)).power(a), trade_off_curve(claim).power(a), atol=1e-8
    )


@pytest.mark.parametrize("mu", [1.0, 3.0, 8.0])
def test_the_curve_of_a_privacy_loss_lies_above_the_mechanisms_down_to_the_smallest_levels(mu):
    curve = dp_event_curve(dp_accounting.GaussianDpEvent(1.0 / mu))
    levels = np.geomspace(1e-60, 0.999, 2000)
    above = curve.power(levels) - GaussianCurve(mu).power(levels)
    assert above.min() >= -1e-15
    assert above.max() < 1e-7


def test_negative_rounding_of_a_composed_privacy_loss_makes_no_curve_fall():
    curve = dp_sgd_curve(200, 0.6, 0.01)
    assert np.all(np.diff(curve.power(np.geomspace(1e-250, 1.0, 2000))) >= 0.0)
    assert 4.4 < curve.epsilon(1e-5) < 4.5


@pytest.mark.parametrize("alpha", [1.01, 2.0, 64.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-16, 1e-13, 1e-9])
def test_curves_of_tiny_renyi_claims_are_no_rounding_noise(alpha, epsilon):
    curve = renyi_curve(alpha, epsilon)
    levels = np.geomspace(1e-14, 0.9, 60)
    powers = curve.power(levels)
    # Coins on the curve are as far apart as the claim allows, and by no more than rounding further.
    assert np.all(powers > levels)
    assert np.all(powers - levels < 1e-5 + np.sqrt(2.0 * epsilon))
    assert np.all(np.isfinite(curve.slope(levels)))


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5, 5.0])
def test_tangents_of_approximate_dp_lie_above_it_at_every_level(epsilon):
    levels, others = np.linspace(1e-4, 0.9999, 999), np.linspace(0.0, 1.0, 1001)
    family = ApproximateDpFamily(0.1)
    power, slope = family.power_and_slope_at(np.array([epsilon]), levels[np.newaxis])
    tangents = power.T + slope.T * (others - levels[:, np.newaxis])
    assert np.max(family.curve(epsilon).power(others) - tangents) < 1e-14


def test_the_steepest_tangents_of_a_bounded_range_are_finite():
    np.testing.assert_allclose(
        BoundedRangeCurve(600.0).slope(1e-200), math.exp(-600.0) * 1e200 * 1e200
    )


@pytest.mark.parametrize("alpha", [1.5, 4688.4, 2.03e6, 8.02e9, 1.05e12])
@pytest.mark.parametrize("epsilon", [1.8e-4, 1.0, 10.3])
@mpmath.workdps(50)
def test_curves_of_large_orders_lie_above_the_coins_that_the_claim_allows(alpha, epsilon):
    curve, odds = renyi_curve(alpha, epsilon), mpmath.mpf(alpha) - 1
    for log_odds in (-25.0, -8.0, -1.0):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(log_odds)))
        low, high = p, mpmath.mpf(1)
        for _ in range(120):
            q = (low + high) / 2
            moment = q**alpha * p**-odds + (1 - q) ** alpha * (1 - p) ** -odds
            low, high = (q, high) if mpmath.log(moment) <= odds * epsilon else (low, q)
        if low + p > 1.0:
            continue  # the other order of the two laws allows less
        # The coin and its mirror image: what the claim says is symmetric.
        for level, power in ((p, low), (1 - low, 1 - p)):
            above = curve.power(float(level)) - float(power)
            assert -1e-15 <= above < 2e-4 * max(float(power), 1e-9)


def test_curves_say_whether_they_are_symmetric():
    assert renyi_curve(2.0, 1.0).symmetric
    assert trade_off_curve(ZeroConcentratedDp(0.3)).symmetric
    assert dp_event_curve(dp_accounting.GaussianDpEvent(1.0)).symmetric
    assert dp_sgd_curve(20, 1.0, 0.1, "both").symmetric
    assert not dp_sgd_curve(20, 1.0, 0.1).symmetric


@pytest.mark.filterwarnings("error")
def test_impossible_losses_make_no_infinite_likelihood():
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        0.025, sampling_prob=0.01, value_discretization_interval=0.1
    )
    for direction in ("remove", "add", "both"):
        powers = privacy_loss_curve(pld, direction).power(np.linspace(0.0, 1.0, 99))
        assert np.all(np.diff(powers) >= 0.0)


@pytest.mark.filterwarnings("error")
def test_groups_have_finite_tangents_at_the_smallest_levels():
    for curve in (GaussianCurve(0.0), GaussianCurve(3.0)):
        assert np.all(np.isfinite(GroupCurve(curve, 5).slope([1e-320, 1.0 - 1e-16])))


def test_a_group_is_as_large_as_its_parameter_allows():
    assert GaussianCurve(1e-3).group(20_000).mu == 20.0
    assert GaussianCurve(0.0).group(10**12).mu == 0.0
    assert BoundedRangeCurve(0.1).group(6000).width == 600.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianCurve(-1.0), "mu must be"),
        (lambda: GaussianCurve(math.nan), "mu must be"),
        (lambda: BoundedRangeCurve(1e4), "width must be"),
        (lambda: ApproximateDpCurve(1.0, 1.5), "delta must be"),
        (lambda: PointsCurve([0.1, 0.2], [0.5]), "one shape"),
        (lambda: PointsCurve([0.1, 0.2], [0.5, 1.2]), r"powers must be in \[0, 1\]"),
        (lambda: PointsCurve([0.2, 0.1], [0.5, 0.6]), "levels must increase"),
        (lambda: PointsCurve([0.2, 0.4], [0.3, 0.9]), "concave"),
        (lambda: MinimumCurve([]), "at least one"),
        (lambda: GaussianCurve(1.0).group(0), "size must be"),
        (lambda: GaussianCurve(1.0).group(101), "size must be .* <= 100, got 101"),
        (lambda: PointsCurve([0.5], [0.5], symmetric="no"), "symmetric must be"),
        (lambda: privacy_loss_curve(sampled_gaussian(), "up"), "direction must be"),
        (lambda: dp_event_curve(dp_accounting.NonPrivateDpEvent(), "sideways"), "must be"),
        (lambda: RenyiFamily(1.0), "alpha must be"),
        (lambda: SingleCurveFamily(GaussianCurve(1.0), 0.0), "level must be"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
