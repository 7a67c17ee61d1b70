"""A test of the runner that was interrupted goes on, and is refused where it would be another."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from runner_parts import (
    CLAIM,
    ScriptedTester,
    UniformMechanism,
    run,
)

from dvrenyi_plugin.generators.dataset_generators import (
    BoundedArrays,
    ConstantDatasetGenerator,
    EvolutionarySearchDatasetGenerator,
)
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.mechanisms import GaussianMechanism, GaussianMechanismConfig
from dvrenyi_plugin.testers import ThresholdAttackTester, ThresholdAttackTesterConfig


class InterruptedTestError(Exception):
    pass


class FailsAfter:
    """Passes calls on to a real tester and breaks off before a given one."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._tester = ThresholdAttackTester(
            ThresholdAttackTesterConfig(
                privacy_property=PrivacyProperty(renyi_dp=RenyiDp(2.0, 9.0))
            )
        )
        self.privacy_property = self._tester.privacy_property

    def estimate_lower_bound(
        self, samples1: Any, samples2: Any, failure_probability: float
    ) -> float:
        if self._left == 0:
            raise InterruptedTestError
        self._left -= 1
        return self._tester.estimate_lower_bound(samples1, samples2, failure_probability)

    def reject_property(self, lower_bound: float) -> bool:
        return self._tester.reject_property(lower_bound)


class NormalMechanism:
    """A user's mechanism: one random state, made when it is built."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[np.float64]:
        return np.sum(dataset) + 0.3 * self._rng.normal(size=(num_samples, 1))


def own_mechanism() -> Any:
    return GaussianMechanism(GaussianMechanismConfig(noise_scale=0.3, seed=4))


class TestResuming:
    @pytest.mark.parametrize("build", [own_mechanism, lambda: NormalMechanism(5)])
    def test_resumed_test_equals_the_uninterrupted_one(self, tmp_path: Path, build: Any) -> None:
        path = str(tmp_path / "state.json")

        def search(tester: Any, **changes: Any) -> Any:
            space = BoundedArrays(num_records=2, low=-1.0)
            generator = EvolutionarySearchDatasetGenerator(space)
            changes |= {"max_num_trials": 8, "num_samples": 100}
            return run(tester, build(), generator, **changes)

        whole = search(FailsAfter(1000))
        with pytest.raises(InterruptedTestError):
            search(FailsAfter(11), state_path=path)
        resumed = search(FailsAfter(1000), state_path=path)
        assert resumed.num_resumed_trials == 5
        assert resumed.lower_bound_divergence_estimates == whole.lower_bound_divergence_estimates
        assert len(set(whole.lower_bound_divergence_estimates)) > 3
        for first, second in zip(whole.trials, resumed.trials, strict=True):
            np.testing.assert_array_equal(first.datasets[1], second.datasets[1])

    def test_finished_test_asks_nothing_more(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        run(ScriptedTester([0.0, 2.0]), state_path=path)
        again = run(ScriptedTester([]), state_path=path)
        assert again.found_privacy_violation.lower_bound == 2.0
        assert again.num_resumed_trials == 1

    def test_infinite_bound_survives(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        run(ScriptedTester([0.0, math.inf]), state_path=path)
        json.loads(Path(path).read_text(), parse_constant=lambda name: pytest.fail(name))
        assert run(ScriptedTester([]), state_path=path).lower_bound == math.inf

    @pytest.mark.parametrize("changes", [{"num_samples": 6}, {"failure_probability": 0.1}])
    def test_state_of_another_test_is_refused(
        self, tmp_path: Path, changes: dict[str, Any]
    ) -> None:
        path = str(tmp_path / "state.json")
        run(ScriptedTester([0.0] * 6), state_path=path)
        with pytest.raises(ValueError, match=f"another test: its {next(iter(changes))}"):
            run(ScriptedTester([0.0] * 6), state_path=path, **changes)

    def test_other_datasets_are_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        run(ScriptedTester([0.0] * 6), state_path=path)
        with pytest.raises(ValueError, match="got others in trial 0"):
            run(
                ScriptedTester([0.0] * 6),
                generator=ConstantDatasetGenerator((np.zeros(1), np.full(2, 2.0))),
                state_path=path,
            )

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            '{"version": 1, "test": {}, "trials": [{}]}',
            '{"version": 1, "test": {}, "trials": []}',
            '{"version": 2, "test": [1], "trials": []}',
            '{"version": 2, "test": {}, "trials": 3}',
        ],
    )
    def test_broken_file_is_refused(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "state.json"
        path.write_text(text)
        with pytest.raises(ValueError, match="state_path"):
            run(ScriptedTester([]), state_path=str(path))
        assert path.read_text() == text

    def test_saved_nan_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        run(ScriptedTester([0.0, 2.0]), state_path=str(path))
        path.write_text(path.read_text().replace("2.0", "NaN", 1))
        with pytest.raises(ValueError, match="state_path"):
            run(ScriptedTester([]), state_path=str(path))

    def test_state_of_other_parts_is_refused_and_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"

        def search(noise_scale: float = 1.0, fit_fraction: float = 0.2, process: Any = None) -> Any:
            tester = ThresholdAttackTester(
                ThresholdAttackTesterConfig(privacy_property=CLAIM, fit_fraction=fit_fraction)
            )
            mechanism = GaussianMechanism(GaussianMechanismConfig(noise_scale=noise_scale))
            changes = {"num_samples": 50, "state_path": str(path), "post_processing": process}
            return run(tester, mechanism, **changes)

        search()
        text = path.read_text()
        for changes, name in (
            ({"noise_scale": 0.1}, "mechanism"),
            ({"fit_fraction": 0.3}, "tester"),
            ({"process": np.abs}, "post_processing"),
        ):
            with pytest.raises(ValueError, match=f"another test: its {name} is"):
                search(**changes)  # type: ignore[arg-type]
        assert path.read_text() == text
        assert search().num_resumed_trials == 3

    def test_numpy_settings_can_be_saved(self, tmp_path: Path) -> None:
        settings = {
            "max_num_trials": np.int64(2),
            "num_samples": np.int32(5),
            "failure_probability": np.float32(0.5),
        }
        for resumed in (0, 2):
            result = run(ScriptedTester([0.0] * 4), state_path=str(tmp_path / "s"), **settings)
            assert result.num_resumed_trials == resumed

    def test_file_that_cannot_be_written_is_noticed_before_any_trial(self, tmp_path: Path) -> None:
        tester = ScriptedTester([0.0] * 6)
        with pytest.raises(OSError, match=r"state_path '.*nowhere/state' cannot be written"):
            run(tester, state_path=str(tmp_path / "nowhere" / "state"))
        assert tester.asked == []

    def test_file_of_another_process_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"

        class Meets(ScriptedTester):
            """While this test runs, another one with the same file finishes a trial."""

            def estimate_lower_bound(self, *arguments: Any) -> Any:
                if not self.asked:
                    run(ScriptedTester([0.7] * 6), mechanism, state_path=str(path))
                self.asked.append(0.0)
                return 0.0

        mechanism = UniformMechanism(0)
        with pytest.raises(ValueError, match="one test, one file, one process"):
            run(Meets([]), mechanism, state_path=str(path))
        assert "0.7" in path.read_text()

    def test_file_without_a_trial_binds_nobody(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        with pytest.raises(ValueError, match="must return a number"):
            run(ScriptedTester([math.nan, 0.0]), state_path=path)
        assert (
            run(ScriptedTester([0.0] * 6), num_samples=7, state_path=path).num_resumed_trials == 0
        )

    def test_stops_when_a_refutation_was_saved_earlier(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state.json")
        with pytest.raises(ValueError, match="must return a number"):
            run(
                ScriptedTester([2.0, 0.0, 0.0, 0.0, math.nan, 0.0]),
                state_path=path,
                stop_on_refutation=False,
            )
        assert run(ScriptedTester([]), state_path=path).num_inspected_trials == 2
