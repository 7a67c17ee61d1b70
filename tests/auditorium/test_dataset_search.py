"""DP-Auditorium's Vizier search over dataset pairs with a tester of this package as the
objective.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dp_auditorium import privacy_test_runner
from dp_auditorium.configs import (
    dataset_generator_config,
    privacy_property,
    privacy_test_runner_config,
)
from dp_auditorium.generators import vizier_dataset_generator
from vizier.service import clients

from dvrenyi_plugin.interfaces import RenyiDp, read_claim
from dvrenyi_plugin.mechanisms import (
    CircularMeanLoss,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
)
from dvrenyi_plugin.testers import (
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
)

DOCS = Path(__file__).parents[2] / "docs" / "dp_auditorium.md"
ALPHA = 2.0
NUM_TRIALS = 12


def scalar_pairs(study_name: str) -> Any:
    """Pairs of 2 and 3 angles."""
    return vizier_dataset_generator.VizierScalarDataAddRemoveGenerator(
        dataset_generator_config.VizierDatasetGeneratorConfig(
            study_name=study_name,
            study_owner="tests",
            num_vizier_parameters=3,
            data_type=dataset_generator_config.DataType.DATA_TYPE_FLOAT,
            min_value=-math.pi,
            max_value=math.pi,
            search_algorithm="EAGLE_STRATEGY",
            metric_name="lower_bound",
        )
    )


def documented_wrapper() -> Callable[[Any], Any]:
    """Returns the function that the documentation gives for searches, as it stands there."""
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[1]
    names: dict[str, Any] = {}
    exec(compile(code, str(DOCS), "exec"), names)
    return names["answering_zero"]


def test_search_finds_a_pair_on_which_the_sampler_leaks_more(new_study: Callable[[], str]) -> None:
    mechanism = ShkExponentialMechanism(
        ShkExponentialMechanismConfig(
            loss=CircularMeanLoss(num_records=3), inverse_temperature=6.0, run_time=5.0
        )
    )
    (epsilon,) = (
        claim.epsilon
        for claim in map(read_claim, mechanism.claimed_privacy)
        if isinstance(claim, RenyiDp) and claim.alpha == ALPHA
    )
    claim = privacy_property.PrivacyProperty(renyi_dp=privacy_property.RenyiDp(ALPHA, epsilon))
    tester = SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(claim))
    study_name = new_study()
    search = documented_wrapper()(scalar_pairs(study_name))
    pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def guess_then_search(divergence: float | None) -> tuple[np.ndarray, np.ndarray]:
        """An auditor's first guess, three equal angles, then what Vizier makes of the bounds."""
        if not pairs:
            pairs.append((np.zeros(2), np.zeros(3)))
        else:
            pairs.append(search(divergence if len(pairs) > 1 else None))
        return pairs[-1]

    config = privacy_test_runner_config.PrivacyTestRunnerConfig(
        property_tester=privacy_test_runner_config.PropertyTester.UNSPECIFIED_TESTER,
        max_num_trials=NUM_TRIALS,
        failure_probability=0.05 / (2 * NUM_TRIALS),
        num_samples=1500,
        post_processing=privacy_test_runner_config.PostProcessing.NONE,
    )
    result = privacy_test_runner.PrivacyTestRunner(config, guess_then_search, tester).test_privacy(
        mechanism, "shk"
    )
    assert result.found_privacy_violation is None  # the sampler keeps its claim on every pair
    bounds = result.lower_bound_divergence_estimates
    assert len({pair[1].tobytes() for pair in pairs}) == NUM_TRIALS == len(bounds)
    truths = [
        max(mechanism.exact_renyi_divergence(*order, ALPHA) for order in (pair, pair[::-1]))
        for pair in pairs
    ]
    worst = int(np.argmax(bounds))
    # The first guess is at 0.18; nine of ten pairs of uniform angles are above 0.65, half above
    # 1.0.
    assert worst > 0 and truths[worst] > 2.0 * truths[0]
    assert all(bound <= truth for bound, truth in zip(bounds, truths, strict=True))
    # The search was told the bounds: its own best trial is ours. The last trial is never reported.
    (best,) = clients.Study.from_owner_and_id("tests", study_name).optimal_trials()
    told = 1 + int(np.argmax(bounds[1:-1]))
    trial = best.materialize()
    np.testing.assert_array_equal(
        [trial.parameters[f"x{i}"].value for i in range(3)], pairs[told][1]
    )
    assert trial.final_measurement.metrics["lower_bound"].value == max(bounds[told], 1e-12)


def test_vizier_generators_take_a_bound_of_zero_for_no_answer(new_study: Callable[[], str]) -> None:
    plain = scalar_pairs(new_study())
    first = plain(None)
    assert np.array_equal(plain(0.0)[1], first[1])  # the same pair again
    wrapped = documented_wrapper()(scalar_pairs(new_study()))
    first = wrapped(None)
    assert not np.array_equal(wrapped(0.0)[1], first[1])
