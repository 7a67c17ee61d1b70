"""The Gaussian and Laplace mechanisms: exact sums, exact laws, exact claims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dvrenyi_plugin.interfaces import GaussianDp, PureDp, RenyiDp, read_claim
from dvrenyi_plugin.mechanisms.simple.additive_noise import clipped_sum
from dvrenyi_plugin.mechanisms.simple.gaussian import GaussianMechanism, GaussianMechanismConfig
from dvrenyi_plugin.mechanisms.simple.laplace import LaplaceMechanism, LaplaceMechanismConfig
from dvrenyi_plugin.privacy.divergences import renyi_laplace

RECORDS = [[3.0, 4.0], [0.3, -0.4], [0.0, 0.0]]


def test_sum_clips_each_record_in_the_mechanisms_norm() -> None:
    np.testing.assert_allclose(clipped_sum(RECORDS, 1.0, 2), [0.9, 0.4], rtol=1e-15)
    np.testing.assert_allclose(clipped_sum(RECORDS, 1.0, 1), [3 / 7 + 0.3, 4 / 7 - 0.4])
    np.testing.assert_allclose(clipped_sum(np.array([5, -7, 1]), 2.0, 2), [1.0])


def test_sum_of_no_records_is_zero_and_huge_records_do_not_overflow() -> None:
    np.testing.assert_array_equal(clipped_sum(np.zeros((0, 3)), 1.0, 2), np.zeros(3))
    np.testing.assert_allclose(clipped_sum([[1e308, -1e308]], 1.0, 2), [0.5**0.5, -(0.5**0.5)])
    np.testing.assert_allclose(clipped_sum([[1e-320, 0.0]], 1.0, 1), [1e-320, 0.0], rtol=1e-3)


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float64, (4, 3), elements=st.floats(-1e300, 1e300)),
    st.floats(1e-3, 1e3),
    st.sampled_from([1, 2]),
)
def test_one_record_moves_the_sum_by_at_most_the_clip_norm(
    records: np.ndarray, clip_norm: float, order: int
) -> None:
    difference = clipped_sum(records, clip_norm, order) - clipped_sum(
        records[:-1], clip_norm, order
    )
    assert np.linalg.norm(difference, ord=order) <= clip_norm * (1.0 + 1e-9)


def test_gaussian_law_is_exact_and_neighbours_lie_mu_standard_deviations_apart() -> None:
    # Two Kolmogorov-Smirnov tests at 0.001 each on fixed seeds.
    config = GaussianMechanismConfig(clip_norm=2.0, noise_multiplier=0.5, seed=7)
    mechanism = GaussianMechanism(config)
    with_record, without = mechanism([5.0, 1.0], 4000), mechanism([1.0], 4000)
    assert with_record.shape == (4000, 1)
    assert stats.kstest(with_record[:, 0], "norm", args=(3.0, 1.0)).pvalue > 0.001
    assert stats.kstest(without[:, 0], "norm", args=(1.0, 1.0)).pvalue > 0.001
    claims = [read_claim(claim) for claim in mechanism.claimed_privacy]
    assert claims == [GaussianDp(2.0), RenyiDp(2.0, 4.0)]
    assert claims[0].mu == (3.0 - 1.0) / 1.0


def test_laplace_law_is_exact_and_its_renyi_claim_is_attained() -> None:
    config = LaplaceMechanismConfig(clip_norm=2.0, epsilon=0.5, alpha=3.0, seed=7)
    mechanism = LaplaceMechanism(config)
    samples = mechanism([5.0, 1.0], 4000)
    assert stats.kstest(samples[:, 0], "laplace", args=(3.0, 4.0)).pvalue > 0.001
    pure, renyi = (read_claim(claim) for claim in mechanism.claimed_privacy)
    assert pure == PureDp(0.5)
    assert isinstance(renyi, RenyiDp) and renyi.alpha == 3.0
    assert renyi.epsilon == pytest.approx(renyi_laplace(3.0, 1.0, 3.0, 4.0), rel=1e-12)


@pytest.mark.parametrize("split", [0.1, 0.5, 0.9])
def test_laplace_claim_covers_records_spread_over_coordinates(split: float) -> None:
    mechanism = LaplaceMechanism(LaplaceMechanismConfig(epsilon=2.0))
    claim = read_claim(mechanism.claimed_privacy[1])
    assert isinstance(claim, RenyiDp)
    spread = renyi_laplace(2.0, 0.0, split, 0.5) + renyi_laplace(2.0, 0.0, 1.0 - split, 0.5)
    assert spread < claim.epsilon


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_mean_divides_by_the_public_number_not_by_the_count(kind: str) -> None:
    common = {"statistic": "mean", "denominator": 10.0, "noise_scale": 0.0}
    mechanism = (
        GaussianMechanism(GaussianMechanismConfig(**common))
        if kind == "gaussian"
        else LaplaceMechanism(LaplaceMechanismConfig(**common))
    )
    np.testing.assert_allclose(mechanism([1.0, 1.0], 1), [[0.2]])
    np.testing.assert_allclose(mechanism([1.0, 1.0, 1.0], 1), [[0.3]])


def test_replace_one_doubles_the_noise_and_keeps_the_claim() -> None:
    add = GaussianMechanism(GaussianMechanismConfig(seed=1))
    replace = GaussianMechanism(GaussianMechanismConfig(seed=1, neighbours="replace_one"))
    np.testing.assert_allclose(replace([0.0], 50), 2.0 * add([0.0], 50))
    assert add.claimed_privacy == replace.claimed_privacy


def test_noise_scale_changes_the_noise_and_not_the_claim() -> None:
    honest = LaplaceMechanism(LaplaceMechanismConfig(seed=1))
    broken = LaplaceMechanism(LaplaceMechanismConfig(seed=1, noise_scale=0.25))
    np.testing.assert_allclose(broken([0.0], 50), 0.25 * honest([0.0], 50))
    assert honest.claimed_privacy == broken.claimed_privacy


def test_calls_and_coordinates_are_independent() -> None:
    mechanism = GaussianMechanism(GaussianMechanismConfig(seed=3))
    first, second = mechanism(np.zeros((2, 2)), 5000), mechanism(np.zeros((2, 2)), 5000)
    columns = np.concatenate([first, second], axis=1)
    correlation = np.corrcoef(columns.T)[np.triu_indices(4, 1)]
    # Six correlations of standard error 1/sqrt(5000): all below 4.4 errors with probability 0.9999.
    assert np.max(np.abs(correlation)) < 4.4 / np.sqrt(5000)


@pytest.mark.parametrize(
    ("settings_", "named"),
    [
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"statistic": "median"}, "statistic"),
        ({"statistic": "mean"}, "denominator"),
        ({"denominator": 3.0}, "denominator"),
        ({"neighbours": "swap"}, "neighbours"),
        ({"alpha": 1.0}, "alpha"),
    ],
)
def test_gaussian_config_names_what_is_wrong(settings_: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        GaussianMechanismConfig(**settings_)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_laplace_refuses_an_epsilon_without_noise(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        LaplaceMechanismConfig(epsilon=epsilon)


@pytest.mark.parametrize("dataset", [[float("nan")], [[[1.0]]], ["a"], [float("inf"), 1.0]])
def test_datasets_are_checked_at_the_door(dataset: object) -> None:
    with pytest.raises(ValueError, match="dataset"):
        GaussianMechanism(GaussianMechanismConfig())(dataset, 3)
