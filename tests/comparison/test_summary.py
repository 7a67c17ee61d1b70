"""Summaries that say what the rows say."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from comparison_parts import comparison_of, row

from dvrenyi_plugin.comparison.cells import (
    CellResult,
)
from dvrenyi_plugin.comparison.registry import (
    find_tester,
)
from dvrenyi_plugin.comparison.render import verdict_lines
from dvrenyi_plugin.comparison.settings import BROKEN, HONEST
from dvrenyi_plugin.comparison.summary import (
    HeadToHead,
    head_to_head,
    summarise,
    totals_by_tester,
    undetected,
    untested,
)


class TestSummaries:
    def test_honest_beside_broken(self) -> None:
        rows = [
            row("sequential", HONEST, [0.5, 1.5, 0.0, math.nan], 1),
            row("sequential", BROKEN, [1.0, 1.5, 1.1, 1.2], 3, truth=4.0),
        ]
        (summary,) = summarise(comparison_of(rows, ("sequential",)))
        assert (summary.power, summary.false_alarms) == (0.75, 0.25)
        assert summary.fraction_honest == 0.25
        assert summary.fraction_broken == pytest.approx(1.15 / 4.0)
        assert summary.invalid == 1 / 8
        assert summary.nothing_certified == 1 / 7

    def test_totals_weigh_false_alarms(self) -> None:
        rows = [row("sequential", HONEST, [0.0] * 20, 1), row("threshold", HONEST, [0.0] * 20, 5)]
        good, bad = totals_by_tester(comparison_of(rows, ("sequential", "threshold")))
        assert good.p_value == pytest.approx(1.0 - 0.95**20)
        assert bad.false_alarms == 5 and bad.p_value < 0.003
        assert find_tester("gdp_baseline").valid_at_stated_level is False

    def test_undetected_looks_at_the_largest_size(self) -> None:
        rows = [
            row("sequential", BROKEN, [3.0, 3.0], 2, size=100),
            row("sequential", BROKEN, [3.0, 3.0], 1, size=200),
            row("threshold", BROKEN, [3.0, 3.0], 2, mechanism="shk"),
        ]
        comparison = comparison_of(rows, ("sequential", "threshold"))
        assert undetected(comparison, ["sequential", "threshold"]) == ["gaussian"]
        assert undetected(comparison, ["sequential"]) == ["gaussian", "shk"]

    def test_what_has_no_result_is_neither_detected_nor_missed(self) -> None:
        comparison = comparison_of(
            [row("sequential", BROKEN, [3.0, 3.0], 2)], ("sequential", "threshold")
        )
        assert untested(comparison, ["sequential"]) == ["shk"]
        lines = verdict_lines(comparison)
        assert "Every tested broken mechanism is refuted" in lines[0]
        assert lines[1].endswith("any sample size): shk.")
        assert not any("none of this package's testers refuted" in line for line in lines)

    @pytest.mark.parametrize(
        ("ours", "theirs", "expected"),
        [
            (1.0, math.nan, True),
            (math.nan, 1.0, False),
            (math.nan, math.nan, False),
            (1.0, 1.0, True),
        ],
    )
    def test_nan_is_never_the_larger_bound(
        self, ours: float, theirs: float, expected: bool
    ) -> None:
        pair = HeadToHead("gaussian", HONEST, 100, ours, theirs, 0.0)
        assert pair.ours_at_least_as_large is expected

    def test_head_to_head_uses_common_repeats(self) -> None:
        rows = [
            row("sequential", HONEST, [0.5, 0.7, 9.0, 9.0], 0),
            row("threshold", HONEST, [0.4, math.nan], 0),
            row("sequential", BROKEN, [0.5, 0.5], 0),
            row("threshold", BROKEN, [0.6, 0.6], 0),
            row("threshold", BROKEN, [0.6], 0, size=200),
        ]
        pairs = head_to_head(
            comparison_of(rows, ("sequential", "threshold")), "sequential", "threshold"
        )
        assert [pair.ours_at_least_as_large for pair in pairs] == [True, False]
        assert pairs[0].ours == pytest.approx(0.6)
        assert (pairs[0].theirs, pairs[0].theirs_invalid) == (0.4, 0.5)

    def test_rows_survive_json(self) -> None:
        result = row("sequential", HONEST, [math.nan, math.inf, -0.5], 1, truth=math.inf)
        line = result.to_json()
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
        back = CellResult.from_json(line)
        assert back.num_invalid == 1
        assert dataclasses.replace(back, bounds=()) == dataclasses.replace(result, bounds=())
        assert back.bounds[1:] == result.bounds[1:]
        with pytest.raises(ValueError, match="a cell's result"):
            CellResult.from_json('{"key": 1}')
