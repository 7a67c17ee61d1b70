"""The mechanisms that are compared: their claims and their truths."""

from __future__ import annotations

import pytest

from dvrenyi_plugin.comparison.registry import (
    find_mechanism,
    find_tester,
    make_tester_task,
)
from dvrenyi_plugin.mechanisms import ExponentialMechanism, ExponentialMechanismConfig


class TestMechanisms:
    @pytest.mark.parametrize(
        "name",
        [
            "gaussian",
            "gaussian_order_1.25",
            "laplace",
            "randomized_response",
            "noisy_max",
            "exponential",
            "shk",
            "langevin",
        ],
    )
    def test_honest_ones_keep_and_broken_ones_break_both_claims(self, name: str) -> None:
        honest, broken = (find_mechanism(name).build(is_broken, 0) for is_broken in (False, True))
        assert honest.renyi == broken.renyi
        assert honest.approximate == broken.approximate
        assert honest.true_divergence is not None and broken.true_divergence is not None
        assert honest.true_delta is not None and broken.true_delta is not None
        assert honest.approximate is not None
        assert honest.true_divergence <= honest.renyi.epsilon * (1.0 + 1e-9)
        assert broken.true_divergence >= 2.0 * broken.renyi.epsilon
        assert honest.true_delta <= honest.approximate.delta + 1e-12
        assert broken.true_delta >= max(0.05, 2.0 * honest.approximate.delta)

    def test_particles_sample_a_target_that_breaks_the_claim(self) -> None:
        mechanism = find_mechanism("birth_death")
        claims = {mechanism.build(broken, 0).renyi for broken in (False, True)}
        (claim,) = claims
        divergences = []
        for broken in (False, True):
            subject = mechanism.build(broken, 0)
            settings = subject.mechanism.config  # type: ignore[attr-defined]
            target = ExponentialMechanism(
                ExponentialMechanismConfig(
                    loss=settings.loss, inverse_temperature=settings.inverse_temperature
                )
            )
            divergences.append(target.exact_renyi_divergence(*subject.datasets, claim.alpha))
        assert divergences[0] <= claim.epsilon
        assert divergences[1] >= 2.0 * claim.epsilon

    @pytest.mark.parametrize("name", ["gaussian", "randomized_response", "noisy_max", "shk"])
    def test_broken_ones_are_refuted_from_samples(self, name: str) -> None:
        subject = find_mechanism(name).build(True, 1)
        samples = [subject.mechanism(dataset, 1000) for dataset in subject.datasets]
        task = make_tester_task(subject, 1000, samples[0].shape[1], (0.0, 1.0), 0)
        tester = find_tester("sequential").build(task)
        assert tester.reject_property(tester.estimate_lower_bound(*samples, 0.025))
