"""r and both halves of the growth-optimal factor: the formulas they stand for, and their slope."""

import numpy as np
import pytest

from dvrenyi_plugin.bounds.tilted_ratio import log_r_inf, log_r_sup, tilted_ratio

Z = np.linspace(-12.0, 12.0, 49)


@pytest.mark.parametrize("bet", [0.01, 0.7, 1.0, 1.5, 4.0])
@pytest.mark.parametrize(("alpha", "epsilon"), [(1.05, 0.3), (2.0, 0.1), (8.0, 0.02)])
def test_halves_are_those_of_the_factor_at_r(alpha, epsilon, bet):
    log_r, log_first, log_second = tilted_ratio(alpha, epsilon, bet).halves(Z)
    phi = np.exp((alpha - 1.0) * epsilon)
    first = 1.0 + bet * (np.exp((alpha - 1.0) * log_r) / phi - 1.0)
    second = 1.0 + bet * (alpha - 1.0) / alpha * (1.0 - np.exp(alpha * log_r) / phi)
    np.testing.assert_allclose(np.exp(log_first), first, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(np.exp(log_second), second, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("bet", [0.01, 0.7, 1.0, 1.5, 4.0])
@pytest.mark.parametrize(("alpha", "epsilon"), [(1.05, 0.3), (2.0, 0.1), (8.0, 0.02)])
def test_slope_is_the_derivative_of_the_log_ratio(alpha, epsilon, bet):
    ratio, step = tilted_ratio(alpha, epsilon, bet), 1e-5
    rise = ratio.halves(Z + step).log_ratio - ratio.halves(Z - step).log_ratio
    np.testing.assert_allclose(ratio.slope(Z), rise / (2.0 * step), rtol=1e-5)


def test_r_stays_between_its_ends():
    log_r = tilted_ratio(2.0, 0.1, 1.5).halves(Z).log_r - 0.1
    assert log_r_inf(2.0, 1.5) < log_r.min() < log_r.max() < log_r_sup(2.0, 0.1, 1.5)
    assert np.all(np.diff(log_r) > 0.0)


def test_halves_do_not_underflow_far_out():
    halves = tilted_ratio(2.0, 0.1, 1.5).halves(np.array([-600.0, 600.0]))
    assert np.isfinite(halves.log_first).all() and np.isfinite(halves.log_second).all()
