"""One tester on one mechanism: answers, refusals and errors are results."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from comparison_parts import comparison_of

from dvrenyi_plugin.comparison.cells import (
    ERROR,
    NOT_APPLICABLE,
    CellKey,
    CellResult,
    CellTask,
    run_cell,
)
from dvrenyi_plugin.comparison.files import to_json
from dvrenyi_plugin.comparison.registry import (
    AuditSubject,
    NotApplicableError,
    register_mechanism,
    register_tester,
)
from dvrenyi_plugin.comparison.settings import HONEST
from dvrenyi_plugin.interfaces import RenyiDp


class Constant:
    """A tester that answers with one value, and gives one verdict."""

    privacy_property = None

    def __init__(self, value: Any, verdict: Any = False) -> None:
        self._value, self._verdict = value, verdict

    def estimate_lower_bound(self, samples1: Any, samples2: Any, beta: float) -> Any:
        return self._value() if callable(self._value) else self._value

    def reject_property(self, lower_bound: float) -> Any:
        return self._verdict


def cell(mechanism: str, tester: str, repeats: int = 2) -> CellResult:
    """Runs a cell in this process."""
    return run_cell(CellTask(CellKey(mechanism, HONEST, 30, tester, repeats), 0.05, 0, ()))


def add_mechanism(mechanism: Any, **claims: Any) -> None:
    def build(broken: bool, seed: int) -> AuditSubject:
        settings = {"renyi": RenyiDp(2.0, 1.0), "datasets": (0.0, 1.0)} | claims
        return AuditSubject(mechanism=mechanism, **settings)

    register_mechanism("added")(build)


class TestCells:
    @pytest.mark.parametrize("value", [None, "0.5", True, np.array([0.5]), np.zeros(2)])
    def test_answers_that_are_no_numbers_are_errors(self, value: Any) -> None:
        register_tester("odd")(lambda task: Constant(value))
        result = cell("gaussian", "odd")
        assert result.status == ERROR
        assert "property_tester must return a number" in result.message

    def test_infinite_answers_are_kept_as_they_are(self) -> None:
        register_tester("odd")(lambda task: Constant(-math.inf))
        assert cell("gaussian", "odd").bounds[0] == (-math.inf, -math.inf)

    def test_message_that_cannot_be_encoded_can_be_written(self) -> None:
        def odd(task: Any) -> Any:
            raise RuntimeError("lone \ud800")

        register_tester("odd")(odd)
        assert cell("gaussian", "odd").message == "RuntimeError: lone \\ud800"

    def test_verdict_that_is_missing_is_an_error(self) -> None:
        register_tester("odd")(lambda task: Constant(5.0, None))
        assert "reject_property must return a bool" in cell("gaussian", "odd").message

    def test_exit_and_long_reasons_are_rows_of_one_line(self) -> None:
        def leaves() -> float:
            raise SystemExit(3)

        def refuses(task: Any) -> Any:
            raise NotApplicableError("one\ntwo" * 300)

        register_tester("leaves")(lambda task: Constant(leaves))
        register_tester("refuses")(refuses)
        message = "RuntimeError: sys.exit(3) was called (raised by tester)"
        assert cell("gaussian", "leaves").message == message
        refused = cell("gaussian", "refuses")
        assert refused.status == NOT_APPLICABLE
        assert "\n" not in refused.message and len(refused.message) <= 500

    def test_claims_and_truths_of_numpy_can_be_written(self) -> None:
        add_mechanism(
            lambda dataset, count: dataset + np.random.normal(size=count),
            renyi=RenyiDp(np.int64(2), np.float32(1.0)),
            true_divergence=np.float32(0.5),
        )
        result = cell("added", "threshold")
        assert json.loads(result.to_json())["claim"] == 1.0
        to_json(dataclasses.replace(comparison_of([result], ("threshold",)), mechanisms=("added",)))

    def test_mechanism_that_seeds_itself_at_every_call_is_an_error(self) -> None:
        add_mechanism(lambda dataset, count: dataset + np.random.default_rng(1).normal(size=count))
        assert "fresh samples at every call" in cell("added", "threshold").message

    def test_builder_that_forgets_to_return_is_named(self) -> None:
        register_mechanism("added")(lambda broken, seed: None)  # type: ignore[arg-type, return-value]
        assert "builder of mechanism 'added' must return an AuditSubject" in (
            cell("added", "threshold").message
        )

    def test_global_generators_do_not_carry_over(self) -> None:
        add_mechanism(lambda dataset, count: dataset + np.random.normal(size=count))
        register_tester("draws")(lambda task: Constant(np.random.random))
        bounds = []
        for number in (1, 2):
            np.random.seed(number)
            bounds.append((cell("added", "draws").bounds, cell("added", "threshold").bounds))
        assert bounds[0] == bounds[1]
        assert len(set(bounds[0][0])) == 2
