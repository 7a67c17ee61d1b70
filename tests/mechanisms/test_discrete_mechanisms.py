"""Randomised response and noisy max: laws against counts, claims against exact divergences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dvrenyi_plugin.mechanisms import (
    NoisyMaxMechanism,
    NoisyMaxMechanismConfig,
    RandomizedResponseMechanism,
    RandomizedResponseMechanismConfig,
)
from dvrenyi_plugin.privacy.divergences import renyi_pure_dp

ORDERS = (1.25, 2.0, 8.0)


def goodness_of_fit(values: Any, log_masses: Any) -> float:
    counts = np.bincount(values.astype(int).ravel(), minlength=len(log_masses))
    return float(stats.chisquare(counts, counts.sum() * np.exp(log_masses)).pvalue)


def response(**settings: Any) -> RandomizedResponseMechanism:
    return RandomizedResponseMechanism(RandomizedResponseMechanismConfig(**settings))


def noisy_max(**settings: Any) -> NoisyMaxMechanism:
    return NoisyMaxMechanism(NoisyMaxMechanismConfig(**({"num_candidates": 3} | settings)))


class TestRandomizedResponse:
    @pytest.mark.parametrize("alpha", ORDERS)
    def test_two_answers_attain_the_pure_dp_maximum(self, alpha: float) -> None:
        mechanism = response(epsilon=1.3, alpha=alpha)
        pure, renyi = mechanism.claimed_privacy
        assert pure.pure_dp is not None and pure.pure_dp.epsilon == 1.3
        assert renyi.renyi_dp is not None
        assert renyi.renyi_dp.epsilon == pytest.approx(renyi_pure_dp(alpha, 1.3), rel=1e-12)
        assert mechanism.exact_renyi_divergence([0], [1], alpha) == renyi.renyi_dp.epsilon

    @pytest.mark.parametrize("num_categories", [2, 5])
    def test_answers_follow_the_law(self, num_categories: int) -> None:
        mechanism = response(num_categories=num_categories, seed=3)
        answers = mechanism([0, num_categories - 1], 20_000)
        assert answers.shape == (20_000, 2)
        for column, value in enumerate((0, num_categories - 1)):
            # False alarm of each: 0.001.
            assert goodness_of_fit(answers[:, column], mechanism.answer_law(value)) > 1e-3
        # Of independent records: the two columns' agreement is what independence gives.
        laws = [np.exp(mechanism.answer_law(value)) for value in (0, num_categories - 1)]
        agree = int(np.count_nonzero(answers[:, 0] == answers[:, 1]))
        assert stats.binomtest(agree, 20_000, float(laws[0] @ laws[1])).pvalue > 1e-3

    def test_actual_epsilon_breaks_the_claim_and_not_its_text(self) -> None:
        broken, honest = response(actual_epsilon=2.0), response()
        assert broken.claimed_privacy == honest.claimed_privacy
        assert broken.exact_renyi_divergence([1], [0], 2.0) == pytest.approx(
            renyi_pure_dp(2.0, 2.0)
        )

    def test_divergence_adds_over_records(self) -> None:
        mechanism = response(num_categories=4)
        one = mechanism.exact_renyi_divergence([0, 1, 2], [0, 1, 3], 2.0)
        assert mechanism.exact_renyi_divergence([0, 1, 2], [1, 1, 0], 2.0) == pytest.approx(2 * one)
        assert mechanism.exact_renyi_divergence([0], [0], 2.0) == 0.0

    def test_huge_epsilon_does_not_overflow(self) -> None:
        law = response(epsilon=1000.0).answer_law(0)
        np.testing.assert_allclose(law, [0.0, -1000.0], atol=1e-12)

    @pytest.mark.parametrize(
        ("dataset", "message"),
        [
            ([2], "from 0 to 1"),
            ([0.5], "from 0 to 1"),
            ([-1], "from 0"),
            ([], "at least 1"),
            ([[0, 1]], "shape"),
        ],
    )
    def test_bad_datasets_are_refused(self, dataset: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            response()(dataset, 1)

    def test_lengths_that_differ_are_refused(self) -> None:
        with pytest.raises(ValueError, match="equally many"):
            response().exact_renyi_divergence([0], [0, 1], 2.0)


class TestNoisyMax:
    @pytest.mark.parametrize("noise", ["gumbel", "laplace"])
    def test_winners_follow_the_law(self, noise: str) -> None:
        mechanism = noisy_max(noise=noise, epsilon=1.5, seed=1)
        votes = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.4, 0.2, 3.0]])
        winners = mechanism(votes, 20_000)
        assert winners.shape == (20_000, 1)
        assert goodness_of_fit(winners, mechanism.winner_law(votes)) > 1e-3

    def test_laplace_law_against_quadrature(self) -> None:
        votes = np.array([[1.0, 0.0, 0.3]] * 7)
        law = np.exp(noisy_max(noise="laplace", epsilon=2.0).winner_law(votes))
        scores = votes.sum(axis=0)

        def integrand(x: float) -> float:
            others = stats.laplace.cdf(x - scores[1]) * stats.laplace.cdf(x - scores[2])
            return float(stats.laplace.pdf(x - scores[0]) * others)

        points = [-50.0, *sorted(scores), 60.0]
        exact = sum(
            integrate.quad(integrand, a, b, epsabs=1e-13, limit=500)[0]
            for a, b in itertools.pairwise(points)
        )
        assert law[0] == pytest.approx(exact, abs=1e-10)

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(*[st.floats(0.0, 1.0)] * 3), min_size=1, max_size=6),
        st.tuples(*[st.floats(0.0, 1.0)] * 3),
        st.sampled_from(["gumbel", "laplace"]),
        st.sampled_from(ORDERS),
    )
    def test_claims_hold_for_any_replaced_record(
        self, votes: list[Any], other: Any, noise: str, alpha: float
    ) -> None:
        mechanism = noisy_max(noise=noise, epsilon=1.2, alpha=alpha)
        replaced = [other, *votes[1:]]
        pure, renyi = mechanism.claimed_privacy
        assert pure.pure_dp is not None and renyi.renyi_dp is not None
        ratios = mechanism.winner_law(votes) - mechanism.winner_law(replaced)
        assert np.abs(ratios).max() <= pure.pure_dp.epsilon + 1e-9
        if noise == "gumbel":
            assert np.ptp(ratios) <= pure.pure_dp.epsilon + 1e-9
        divergence = mechanism.exact_renyi_divergence(votes, replaced, alpha)
        assert divergence <= renyi.renyi_dp.epsilon + 1e-9

    def test_less_noise_breaks_the_claim_by_a_known_factor(self) -> None:
        pair = [[1.0, 0.0]], [[0.0, 1.0]]
        honest, broken = (noisy_max(num_candidates=2, noise_scale=scale) for scale in (1.0, 0.25))
        claim = honest.claimed_privacy[1].renyi_dp
        assert claim is not None and broken.claimed_privacy == honest.claimed_privacy
        # Two candidates: randomised response at half of epsilon, and at four times that.
        assert honest.exact_renyi_divergence(*pair, 2.0) == pytest.approx(renyi_pure_dp(2.0, 0.5))
        assert broken.exact_renyi_divergence(*pair, 2.0) == pytest.approx(renyi_pure_dp(2.0, 2.0))
        assert broken.exact_renyi_divergence(*pair, 2.0) > 2.0 * claim.epsilon

    def test_votes_are_clipped(self) -> None:
        mechanism = noisy_max()
        np.testing.assert_array_equal(
            mechanism.winner_law([[9.0, -3.0, 0.5]]), mechanism.winner_law([[1.0, 0.0, 0.5]])
        )

    def test_wrong_number_of_columns_is_refused(self) -> None:
        with pytest.raises(ValueError, match="3 columns"):
            noisy_max()([[1.0, 0.0]], 1)


@pytest.mark.parametrize(
    ("build", "changes"),
    [
        (response, {"epsilon": 0.0}),
        (response, {"num_categories": 1}),
        (response, {"actual_epsilon": math.inf}),
        (response, {"alpha": 1.0}),
        (noisy_max, {"epsilon": -1.0}),
        (noisy_max, {"num_candidates": 1}),
        (noisy_max, {"noise": "normal"}),
        (noisy_max, {"noise_scale": 0.0}),
    ],
)
def test_configs_are_checked(build: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        build(**changes)
