"""The runner: total failure probability, NaN in any place, feedback, early stop, resuming."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runner_parts import (
    ExactLevelTester,
    RememberingGenerator,
    ScriptedTester,
    UniformMechanism,
    config,
    run,
)
from scipy import stats

from dvrenyi_plugin._internal.user_code import notes_of
from dvrenyi_plugin.audits.runner import (
    DIRECTIONS,
    TerminationReason,
)
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty, RenyiDp
from dvrenyi_plugin.mechanisms import GaussianMechanism, GaussianMechanismConfig
from dvrenyi_plugin.testers import ThresholdAttackTester, ThresholdAttackTesterConfig


class TestFailureProbability:
    def test_every_bound_gets_its_share(self) -> None:
        tester = ScriptedTester([0.0] * 20)
        result = run(tester, max_num_trials=10, failure_probability=0.05)
        assert tester.asked == [0.0025] * 20
        assert "0.0025 for each bound" in result.failure_probability_note

    def test_total_on_null_data_with_a_test_of_exact_level(self) -> None:
        repeats = 4000
        refuted = 0
        for seed in range(repeats):
            result = run(
                ExactLevelTester(), UniformMechanism(seed), max_num_trials=10, num_samples=1
            )
            refuted += result.found_privacy_violation is not None
        # 1 - (1 - 0.0025)^20 = 0.0488; with an undivided 0.05 it would be 0.64. False alarm of this
        # test: 0.002.
        low, high = stats.binom.interval(0.998, repeats, 1.0 - (1.0 - 0.0025) ** 20)
        assert low <= refuted <= high

    def test_total_on_null_data_with_a_real_tester(self) -> None:
        tester = ThresholdAttackTester(
            ThresholdAttackTesterConfig(
                privacy_property=PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.0)), orders=(2.0,)
            )
        )
        repeats = 60
        refuted = sum(
            run(tester, UniformMechanism(seed), max_num_trials=10, num_samples=60).lower_bound > 0.0
            for seed in range(repeats)
        )
        # False alarm of this test below 0.001 if the level is kept.
        assert refuted <= stats.binom.ppf(0.999, repeats, 0.05)

    def test_broken_mechanism_is_refuted_and_honest_one_is_not(self) -> None:
        tester = ThresholdAttackTester(
            ThresholdAttackTesterConfig(
                privacy_property=PrivacyProperty(gaussian_dp=GaussianDp(1.0))
            )
        )
        verdicts = []
        for noise_scale in (1.0, 0.25):
            mechanism = GaussianMechanism(GaussianMechanismConfig(noise_scale=noise_scale))
            verdicts.append(run(tester, mechanism, num_samples=1000))
        honest, broken = verdicts
        assert honest.found_privacy_violation is None
        assert honest.termination_reason is TerminationReason.TRIAL_LIMIT_REACHED
        assert 0.3 < honest.lower_bound <= 1.0
        assert broken.found_privacy_violation.trial == 0
        assert broken.found_privacy_violation.failure_probability == 0.05
        assert broken.termination_reason is TerminationReason.FOUND_PRIVACY_VIOLATION


class TestTrials:
    @pytest.mark.parametrize("values", [[math.nan, 5.0], [5.0, math.nan], [0.0, math.nan]])
    def test_nan_is_refused_in_either_place(self, values: list[float]) -> None:
        with pytest.raises(ValueError, match=r"got nan in trial 0 \(dataset"):
            run(ScriptedTester(values))

    @pytest.mark.parametrize(
        "value", [None, "x", "0.5", True, np.array([1.0, 2.0]), np.array([0.5]), 1j]
    )
    def test_what_is_no_number_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match="property_tester must return a number"):
            run(ScriptedTester([value, 0.0]))

    def test_infinite_and_zero_dimensional_estimates_count(self) -> None:
        result = run(ScriptedTester([np.array(0.5), math.inf]))
        assert result.lower_bound_divergence_estimates == [math.inf]
        assert result.found_privacy_violation.direction == DIRECTIONS[1]

    def test_feedback_is_the_larger_bound_and_none_first(self) -> None:
        generator = RememberingGenerator()
        run(ScriptedTester([0.1, 0.2, 0.4, 0.3, 0.0, 0.0]), generator=generator)
        assert generator.feedback == [None, 0.2, 0.4]

    def test_stops_at_the_first_refutation_and_keeps_every_trial(self) -> None:
        result = run(ScriptedTester([0.1, 0.2, 0.3, 1.5]), generator=RememberingGenerator())
        assert result.num_inspected_trials == 2
        assert result.trials[1].lower_bounds == (0.3, 1.5)
        assert result.trials[1].refuted == (False, True)
        assert len(result.trials[1].datasets[0]) == 2

    def test_goes_on_when_asked_to(self) -> None:
        result = run(ScriptedTester([2.0] * 6), stop_on_refutation=False)
        assert result.num_inspected_trials == 3
        assert result.found_privacy_violation.trial == 0

    def test_post_processing_is_applied_to_both_samples(self) -> None:
        class Echo(ScriptedTester):
            def estimate_lower_bound(self, samples1: Any, samples2: Any, beta: float) -> float:
                assert samples1.shape == samples2.shape == (5, 1)
                return float(max(samples1.max(), samples2.max()))

        result = run(Echo([], threshold=99.0), post_processing=lambda samples: 7.0 + 0.0 * samples)
        assert result.lower_bound == 7.0

    def test_wrong_number_of_samples_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"must return 5 samples, got shape \(4, 1\)"):
            run(ScriptedTester([0.0, 0.0]), lambda dataset, count: np.zeros((count - 1, 1)))

    def test_generator_that_returns_no_pair_is_refused(self) -> None:
        with pytest.raises(ValueError, match="pair of datasets, got NoneType"):
            run(ScriptedTester([0.0, 0.0]), generator=lambda divergence: None)

    @pytest.mark.parametrize(
        "changes",
        [
            {"max_num_trials": 0},
            {"num_samples": 0},
            {"failure_probability": 0.0},
            {"failure_probability": math.nan},
            {"failure_probability": 1.0},
            {"post_processing": 3},
            {"state_path": ""},
            {"state_path": 3},
        ],
    )
    def test_config_is_checked(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(changes))):
            config(**changes)


class SumTester(ScriptedTester):
    """Returns the difference of the means, after which both arguments are spoilt."""

    def estimate_lower_bound(self, samples1: Any, samples2: Any, failure_probability: float) -> Any:
        difference = float(samples2.mean() - samples1.mean())
        samples1[:] = samples2[:] = 0.0
        return difference


class TestUntidyParts:
    """Testers and mechanisms that would spoil a test if they were trusted."""

    def test_tester_that_changes_its_arguments_spoils_nothing(self) -> None:
        result = run(SumTester([]), lambda dataset, count: np.arange(count) + 3.0 * np.sum(dataset))
        assert result.trials[0].lower_bounds == (3.0, -3.0)

    def test_mechanism_may_fill_one_buffer_again_and_again(self) -> None:
        class Buffered:
            def __init__(self) -> None:
                self._buffer = np.zeros((5, 1))
                self._calls = 0

            def __call__(self, dataset: Any, num_samples: int) -> Any:
                self._calls += 1
                self._buffer[:] = 3.0 * np.sum(dataset)
                self._buffer[0, 0] += self._calls / 1000.0
                return self._buffer

        result = run(SumTester([], threshold=9.0), Buffered(), max_num_trials=1)
        assert result.lower_bound == pytest.approx(3.0, abs=0.01)

    def test_mechanism_that_seeds_itself_at_every_call_is_refused(self) -> None:
        def seeded(dataset: Any, count: int) -> Any:
            return np.sum(dataset) + np.random.default_rng(0).normal(size=(count, 1))

        def seeded_bits(dataset: Any, count: int) -> Any:
            return np.random.default_rng(0).integers(0, 2, size=(count, 1))

        for mechanism in (seeded, seeded_bits):
            with pytest.raises(ValueError, match="fresh samples at every call"):
                run(ScriptedTester([0.0] * 6), mechanism, num_samples=100)
        # Equal samples by chance are none of its fault: few bits, or one value.
        run(ScriptedTester([0.0] * 6), seeded_bits)
        run(ScriptedTester([0.0] * 6), lambda dataset, count: np.zeros((count, 2)))

    def test_e1_what_the_parts_do_to_their_arguments_reaches_no_other_part(self) -> None:
        class Spoiling:
            """A generator with one array, a mechanism, a tester and a post-processing that change
            what they get.
            """

            def __init__(self) -> None:
                self.data = np.array([2.0, 1.0, 0.0])
                self.seen: list[Any] = []

            def generate(self, divergence: float | None) -> Any:
                self.data += 1.0
                return self.data[:2], self.data

            def mechanism(self, dataset: Any, count: int) -> Any:
                self.seen.append(dataset.copy())
                dataset -= 100.0
                return np.arange(count, dtype=float) + self.seen[-1].sum() + len(self.seen)

            def post_process(self, samples: Any) -> Any:
                samples += 1.0
                return samples

        parts = Spoiling()
        tester = SumTester([])
        result = run(tester, parts.mechanism, parts.generate, post_processing=parts.post_process)
        for trial, (without, with_one) in enumerate(zip(*[iter(parts.seen)] * 2, strict=True)):
            np.testing.assert_array_equal(with_one, np.array([3.0, 2.0, 1.0]) + trial)
            np.testing.assert_array_equal(without, with_one[:2])
            np.testing.assert_array_equal(result.trials[trial].datasets[1], with_one)

    def test_an_error_says_whose_it_is(self) -> None:
        def fails(*_: Any) -> Any:
            raise KeyError("weights")

        for part, name in (
            ({"mechanism": fails}, "mechanism"),
            ({"generator": fails}, "dataset_generator"),
            ({"post_processing": fails}, "post_processing"),
        ):
            with pytest.raises(KeyError) as caught:
                run(ScriptedTester([0.0] * 6), **part)
            assert notes_of(caught.value) == f" (raised by {name})"

    def test_samples_that_are_nan_are_refused_unless_post_processing_maps_them(self) -> None:
        def diverges(dataset: Any, count: int) -> Any:
            return np.where(np.arange(count) == 3, np.nan, 0.0)[:, np.newaxis]

        with pytest.raises(
            ValueError, match="no NaN, got some in 1 of 5 samples, the first at index 3"
        ):
            run(ScriptedTester([0.0] * 6), diverges)
        run(ScriptedTester([0.0] * 6), diverges, post_processing=np.nan_to_num)

    def test_post_processing_that_mixes_rows_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"post_processing must return 5 samples, got shape \(1,"
        ):
            run(ScriptedTester([0.0] * 6), post_processing=lambda x: x.mean(axis=0, keepdims=True))

    @pytest.mark.parametrize("verdict", [None, "no"])
    def test_verdict_that_is_none_is_refused(self, verdict: Any) -> None:
        class Forgets(ScriptedTester):
            def reject_property(self, lower_bound: float) -> Any:
                return verdict

        with pytest.raises(ValueError, match="reject_property must return a bool"):
            run(Forgets([0.0, 5.0]))


DOCUMENTATION = Path(__file__).parents[2] / "docs" / "runner.md"


@pytest.mark.skipif(not DOCUMENTATION.exists(), reason="this build leaves out docs/")
def test_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCUMENTATION.read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for resumed in (0, 1):
        names: dict[str, Any] = {}
        exec(example, names)
        result = names["result"]
        assert result.found_privacy_violation.trial == 0
        assert result.num_resumed_trials == resumed
    assert (tmp_path / "laplace.json").exists()
