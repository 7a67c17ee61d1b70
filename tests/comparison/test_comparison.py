"""The comparison: what it compares, rows that survive failures, and summaries that say what the
rows say.
"""

from __future__ import annotations

import dataclasses
import html.parser
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin.comparison import page as comparison_page
from dvrenyi_plugin.comparison import registry
from dvrenyi_plugin.comparison.cells import (
    DIED,
    ERROR,
    NOT_APPLICABLE,
    OK,
    TIMEOUT,
    CellKey,
    CellResult,
    CellTask,
    run_cell,
)
from dvrenyi_plugin.comparison.files import to_json
from dvrenyi_plugin.comparison.page import to_html, to_markdown
from dvrenyi_plugin.comparison.registry import (
    AuditSubject,
    NotApplicableError,
    find_mechanism,
    find_tester,
    load_modules,
    make_tester_task,
    register_mechanism,
    register_tester,
)
from dvrenyi_plugin.comparison.render import to_csv, verdict_lines
from dvrenyi_plugin.comparison.rows import RowStore
from dvrenyi_plugin.comparison.run import Comparison, run_comparison
from dvrenyi_plugin.comparison.settings import BROKEN, BUILT_IN_MODULES, HONEST, ComparisonConfig
from dvrenyi_plugin.comparison.summary import (
    HeadToHead,
    head_to_head,
    summarise,
    totals_by_tester,
    undetected,
    untested,
)
from dvrenyi_plugin.execution.isolated import run_in_processes
from dvrenyi_plugin.interfaces import RenyiDp
from dvrenyi_plugin.mechanisms import ExponentialMechanism, ExponentialMechanismConfig

EXTRA = '''
import os, time
import numpy as np
from dvrenyi_plugin.comparison.registry import (
    AuditSubject, DELTA, NotApplicableError, register_mechanism, register_tester)
from dvrenyi_plugin.interfaces import RenyiDp

class Reads:
    """Returns a number read off the first sample."""
    privacy_property = None
    def __init__(self, read): self.read = read
    def estimate_lower_bound(self, samples1, samples2, failure_probability):
        return self.read(samples1, samples2)
    def reject_property(self, lower_bound): return lower_bound > 1e6

def hang(first, second): time.sleep(600)
def die(first, second): os._exit(7)
def fail(first, second): raise RuntimeError("no\\nluck <b>")
def spoil(first, second):
    total = float(first.sum())
    first[:] = 0.0
    return total

@register_tester("reads")
def reads(task): return Reads(lambda first, second: float(first.sum()))
@register_tester("spoils")
def spoils(task): return Reads(spoil)
@register_tester("hangs")
def hangs(task): return Reads(hang)
@register_tester("dies")
def dies(task): return Reads(die)
@register_tester("fails")
def fails(task): return Reads(fail)
@register_tester("nan_second")
def nan_second(task): return Reads(lambda a, b: 1.0 if a.sum() > b.sum() else float("nan"))
@register_tester("wants_delta", scale=DELTA)
def wants_delta(task): return task.approximate_dp

class Counts:
    def __init__(self): self.next = 0
    def __call__(self, dataset, num_samples):
        self.next += num_samples
        return np.arange(self.next - num_samples, self.next, dtype=float) + dataset

@register_mechanism("counts", pool_size=100)
def counts(broken, seed):
    return AuditSubject(mechanism=Counts(), datasets=(0.0, 1000.0), renyi=RenyiDp(2.0, 1.0))

@register_mechanism("cannot_be_sampled", pool_size=50)
def cannot_be_sampled(broken, seed):
    mechanism = lambda dataset, n: np.full(n, np.nan)
    return AuditSubject(mechanism=mechanism, datasets=(0, 1), renyi=RenyiDp(2.0, 1.0))
'''


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    load_modules(BUILT_IN_MODULES)
    monkeypatch.setattr(registry, "_MECHANISMS", dict(registry._MECHANISMS))
    monkeypatch.setattr(registry, "_TESTERS", dict(registry._TESTERS))
    monkeypatch.setattr(registry, "_LOADED_FILES", set())


@pytest.fixture
def extra(tmp_path: Path) -> str:
    path = tmp_path / "extra.py"
    path.write_text(EXTRA)
    return str(path)


def config(tmp_path: Path, **changes: Any) -> ComparisonConfig:
    settings: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "mechanisms": ("gaussian",),
        "testers": ("threshold",),
        "variants": (HONEST,),
        "sample_sizes": (30,),
        "repeats": 2,
        "num_workers": 1,
        "timeout_s": 60.0,
    }
    return ComparisonConfig(**(settings | changes))


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


class TestRegistry:
    def test_file_adds_to_both_lists_and_runs_once(self, extra: str) -> None:
        load_modules((extra, extra))
        assert find_mechanism("counts").pool_size == 100
        assert find_tester("wants_delta").scale == registry.DELTA

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x = 1", "registers nothing"),
            ("1 / 0", "ZeroDivisionError"),
            ("def f(:", "SyntaxError"),
            (EXTRA + "\nraise SystemExit(3)", "SystemExit: 3"),
            (
                EXTRA.replace('"reads"', '"reads", family="a\\nb"'),
                "family must be one line of text",
            ),
            (EXTRA.replace('"reads"', '"sequential"'), "'sequential', a tester that is registered"),
            (EXTRA.replace('"reads"', '"Two Words"'), "small letters"),
        ],
    )
    def test_bad_file_is_refused_and_leaves_nothing(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        path = tmp_path / "bad.py"
        path.write_text(text)
        before = registry.tester_names(), registry.mechanism_names()
        with pytest.raises(ValueError, match="bad") as caught:
            load_modules((str(path),))
        assert message in str(caught.value)
        assert (registry.tester_names(), registry.mechanism_names()) == before

    def test_missing_file_and_unknown_names_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"file that exists, got 'nowhere\.py'"):
            load_modules(("nowhere.py",))
        with pytest.raises(ValueError, match=r"one of sequential, .* got 'oracle'"):
            find_tester("oracle")
        with pytest.raises(ValueError, match=r"one of gaussian, .* got 'oracle'"):
            find_mechanism("oracle")
        with pytest.raises(ValueError, match="scale"):
            register_tester("other", scale="bits")


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
        assert cell("gaussian", "leaves").message == "SystemExit: 3"
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


# Evaluated in the worker: builtins need no import there.
DIES, HANGS, RAISES = "__import__('os')._exit(3)", "__import__('time').sleep(600)", "{}['lost']"


class TestWorkers:
    def test_what_hangs_or_dies_takes_nothing_with_it(self) -> None:
        tasks = ["1 + 1", DIES, HANGS, "1 + 2", RAISES, "1 + 3"]
        outcomes = {
            outcome.task: outcome
            for outcome in run_in_processes(eval, tasks, num_workers=2, timeout_s=3.0)
        }
        assert [outcomes[f"1 + {number}"].value for number in (1, 2, 3)] == [2, 3, 4]
        assert (outcomes[DIES].status, outcomes[DIES].message) == ("process died", "exit code 3")
        assert outcomes[HANGS].status == "timed out"
        assert outcomes[RAISES].message == "KeyError: 'lost'"

    def test_copy_of_a_task_that_forks_gives_no_answer(self) -> None:
        tasks = ["__import__('os').fork() and 1", "2", "3"]
        outcomes = list(run_in_processes(eval, tasks, num_workers=1, timeout_s=60.0))
        assert [outcome.value for outcome in outcomes] == [1, 2, 3]

    def test_late_death_is_not_blamed_on_the_next_task(self) -> None:
        late = "__import__('threading').Timer(0.3, __import__('os')._exit, (9,)).start()"
        wait = "__import__('time').sleep(1) or 'waited'"
        outcomes = list(run_in_processes(eval, [late, wait], num_workers=1, timeout_s=60.0))
        assert [(o.status, o.value) for o in outcomes] == [
            ("finished", None),
            ("finished", "waited"),
        ]

    def test_worker_that_died_while_idle_is_replaced(self) -> None:
        late = "__import__('threading').Timer(0.1, __import__('os')._exit, (9,)).start()"
        outcomes = run_in_processes(eval, [late, "2"], num_workers=1, timeout_s=60.0)
        assert next(outcomes).value is None
        time.sleep(1.0)
        assert next(outcomes).value == 2

    def test_what_a_hanging_task_started_is_stopped_too(self, tmp_path: Path) -> None:
        path = tmp_path / "pid"
        hang = (
            f"open({str(path)!r}, 'w').write(str(__import__('subprocess').Popen(['sleep',"
            f" '100']).pid))"
            " and __import__('time').sleep(100)"
        )
        (outcome,) = run_in_processes(eval, [hang], num_workers=1, timeout_s=2.0)
        assert outcome.status == "timed out"
        assert is_gone(int(path.read_text()))

    def test_workers_end_with_the_process_that_started_them(self, tmp_path: Path) -> None:
        path = tmp_path / "pid"
        written = f"open({str(path)!r}, 'w').write(str(__import__('os').getpid()))"
        task = f"{written} and __import__('time').sleep(99)"
        code = (
            "from dvrenyi_plugin.execution.isolated import run_in_processes\n"
            f"if __name__ == '__main__': list(run_in_processes(eval, [{task!r}], num_workers=1,"
            f" timeout_s=99))"
        )
        script = tmp_path / "main.py"
        script.write_text(code)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        main = subprocess.Popen([sys.executable, str(script)], env=environment)
        try:
            for _ in range(300):
                if path.exists() and path.read_text():
                    break
                time.sleep(0.1)
        finally:
            main.kill()
            main.wait()
        assert is_gone(int(path.read_text()))

    def test_nothing_starts_after_the_limit(self) -> None:
        allowed = iter([True, False])
        outcomes = list(
            run_in_processes(
                eval, ["1", "2"], num_workers=1, timeout_s=60.0, may_start=lambda: next(allowed)
            )
        )
        assert [outcome.value for outcome in outcomes] == [1]


def is_gone(pid: int) -> bool:
    """Returns whether a process ends within some seconds."""
    for _ in range(50):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


HEADER = {"seed": 0}


def stored(path: Path, source: str | None = "", header: Any = None) -> list[CellResult]:
    with RowStore.open(str(path), header or HEADER, lambda key: source) as store:
        return list(store.rows.values())


class TestRowStore:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "rows.jsonl"
        with RowStore.open(str(path), HEADER, lambda key: "") as store:
            store.append(row("sequential", HONEST, [1.0], 0))
            store.append(row("threshold", HONEST, [2.0], 1))
        return path

    def test_a_row_that_was_cut_off_is_dropped(self, path: Path) -> None:
        assert len(stored(path)) == 2
        path.write_bytes(path.read_bytes()[:-20])
        assert [result.key.tester for result in stored(path)] == ["sequential"]
        assert path.read_bytes().endswith(b"}\n")

    @pytest.mark.parametrize("length", [0, 1, 9, 30])
    def test_a_header_that_was_cut_off_is_written_anew(self, path: Path, length: int) -> None:
        path.write_bytes(path.read_bytes()[:length])
        assert stored(path) == []
        assert json.loads(path.read_text()) == {"comparison": {**HEADER, "layout": 2}}

    @pytest.mark.parametrize("garbage", [b"{", b"\x00\xff\x00", b"[1]", b"", b'{"key": {}}'])
    def test_a_damaged_line_is_named_and_kept(self, path: Path, garbage: bytes) -> None:
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([lines[0], garbage, *lines[1:]]))
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"line 2 of .*rows\.jsonl is damaged"):
            stored(path)
        assert path.read_bytes() == before

    def test_files_of_others_are_refused_and_kept(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        for content in (b"mine", b"mine\n", b'{"comparison": {"seed": 0, "version": "0"}}\n'):
            other.write_bytes(content)
            with pytest.raises(ValueError, match=r"must hold rows|another comparison"):
                stored(other)
            assert other.read_bytes() == content
        with pytest.raises(ValueError, match="another comparison"):
            stored(path, header={"seed": 1})

    def test_one_process_at_a_time(self, path: Path) -> None:
        with (
            RowStore.open(str(path), HEADER, lambda key: ""),
            pytest.raises(ValueError, match="in use by another process"),
        ):
            stored(path)
        assert len(stored(path)) == 2

    def test_rows_of_a_file_that_was_changed_are_passed_over(self, path: Path) -> None:
        assert stored(path, "other") == stored(path, None) == []
        assert len(stored(path)) == 2


class TestRuns:
    def test_a_file_that_was_changed_has_its_cells_run_again(self, tmp_path: Path) -> None:
        path = tmp_path / "own.py"
        text = (
            "from dvrenyi_plugin.comparison.registry import register_tester\n"
            "class Own:\n"
            "    privacy_property = None\n"
            "    def estimate_lower_bound(self, samples1, samples2, beta): return 1.0\n"
            "    def reject_property(self, lower_bound): return False\n"
            "@register_tester('own')\n"
            "def own(task): return Own()\n"
        )
        seen: list[str] = []
        for answer, expected in (
            ("1.0", ["threshold", "own"]),
            ("1.0", []),
            ("2.0", ["own"]),
            ("1.0", []),
        ):
            path.write_text(text.replace("1.0", answer))
            seen.clear()
            comparison = run_comparison(
                config(tmp_path, testers=("threshold", "own"), modules=(str(path),)),
                lambda done, planned, result: seen.append(result.key.tester),
            )
            assert seen == expected
            assert comparison.rows[1].bounds[0][0] == float(answer)
            registry._LOADED_FILES.clear()
            del registry._TESTERS["own"]

    def test_settings_of_numpy_and_a_tester_that_leaves_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "own.py"
        own.write_text(
            EXTRA.replace("pool_size=100", "pool_size=np.int64(100)")
            + "def leaves(first, second):\n    os.chdir('/')\n    return 0.0\n"
            + "@register_tester('leaves')\ndef left(task): return Reads(leaves)\n"
        )
        monkeypatch.chdir(tmp_path)
        comparison = run_comparison(
            config(
                tmp_path,
                output_dir="relative",
                mechanisms=("counts",),
                testers=("leaves", "reads"),
                modules=("own.py",),
                sample_sizes=(np.int64(30),),
                repeats=np.int64(2),
                seed=np.int64(0),
            )
        )
        assert [row.status for row in comparison.rows] == [OK, OK]
        json.loads(to_json(comparison))

    def test_output_dir_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine")
        with pytest.raises(ValueError, match="output_dir must be a folder, got the file"):
            run_comparison(config(tmp_path))

    def test_failures_are_rows(self, tmp_path: Path, extra: str) -> None:
        comparison = run_comparison(
            config(
                tmp_path,
                mechanisms=("gaussian", "counts"),
                testers=("hangs", "dies", "fails", "nan_second", "wants_delta", "reads", "spoils"),
                modules=(extra,),
                timeout_s=4.0,
                num_workers=2,
            )
        )
        rows = {(row.key.mechanism, row.key.tester): row for row in comparison.rows}
        assert comparison.num_missing == 0
        gaussian = {tester: rows["gaussian", tester] for tester in comparison.testers}
        assert gaussian["hangs"].status == TIMEOUT
        assert gaussian["dies"].status == DIED
        assert "exit code 7" in gaussian["dies"].message
        assert gaussian["fails"].status == ERROR
        assert gaussian["fails"].message == "RuntimeError: no luck <b> (raised by tester)"
        assert rows["counts", "wants_delta"].status == NOT_APPLICABLE
        assert gaussian["nan_second"].num_invalid == 2
        assert gaussian["nan_second"].refuted == (False, False)
        # One set of samples for all testers, whatever one of them does to its arguments.
        assert gaussian["reads"].bounds == gaussian["spoils"].bounds
        assert len(set(gaussian["reads"].bounds)) == 2
        # Disjoint parts of the pool: 0..29 and 30..59.
        assert rows["counts", "reads"].bounds[0][0] == sum(range(30))
        assert rows["counts", "reads"].bounds[1][0] == sum(range(30, 60))
        page = to_html(comparison, "t")
        assert "no luck &lt;b&gt;" in page and "luck <b>" not in page

    def test_pool_that_cannot_be_drawn_is_rows(self, tmp_path: Path, extra: str) -> None:
        comparison = run_comparison(
            config(tmp_path, mechanisms=("cannot_be_sampled",), modules=(extra,))
        )
        (row,) = comparison.rows
        assert row.status == ERROR
        assert row.message.startswith("drawing samples: ValueError: samples must be finite")

    def test_resumes_and_does_not_depend_on_workers(self, tmp_path: Path) -> None:
        settings = {"testers": ("threshold", "gdp_baseline"), "sample_sizes": (30, 40)}
        seen: list[CellKey] = []

        def note(done: int, planned: int, result: CellResult) -> None:
            seen.append(result.key)

        whole = run_comparison(config(tmp_path, **settings), note)
        assert len(seen) == 4
        rows_path = tmp_path / "out" / "rows.jsonl"
        lines = rows_path.read_text().splitlines()
        # Killed in the middle of writing the last row.
        rows_path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:50])
        seen.clear()
        again = run_comparison(config(tmp_path, num_workers=2, **settings), note)
        assert len(seen) == 1
        assert [r.bounds for r in again.rows] == [r.bounds for r in whole.rows]
        seen.clear()
        more = run_comparison(config(tmp_path, repeats=3, **settings), note)
        assert len(seen) == 4
        # The first audits are the same ones.
        assert [row.bounds[:2] for row in more.rows] == [row.bounds for row in whole.rows]
        with pytest.raises(ValueError, match="rows of another comparison"):
            run_comparison(config(tmp_path, seed=1, **settings))

    def test_time_limit_leaves_the_rest_for_later(self, tmp_path: Path) -> None:
        comparison = run_comparison(config(tmp_path, time_limit_s=0.0))
        assert comparison.rows == ()
        assert "1 planned cells have not been run yet." in verdict_lines(comparison)[-1]

    @pytest.mark.parametrize(
        "changes",
        [
            {"output_dir": ""},
            {"variants": ("good",)},
            {"sample_sizes": (5,)},
            {"sample_sizes": (30, 30)},
            {"mechanisms": ("gaussian", "gaussian")},
            {"testers": ("threshold", "threshold")},
            {"variants": (HONEST, HONEST)},
            {"repeats": 0},
            {"failure_probability": 1.0},
            {"timeout_s": 0.0},
            {"num_workers": 0},
        ],
    )
    def test_config_is_checked(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(changes))):
            config(tmp_path, **changes)


def row(
    tester: str,
    variant: str,
    bounds: list[float],
    refuted: int,
    *,
    size: int = 100,
    mechanism: str = "gaussian",
    truth: float | None = 2.0,
) -> CellResult:
    return CellResult(
        key=CellKey(mechanism, variant, size, tester, len(bounds)),
        status=OK,
        claim=1.0,
        truth=truth,
        bounds=tuple((bound, 0.0) for bound in bounds),
        refuted=tuple(i < refuted for i in range(len(bounds))),
        seconds=tuple(0.5 for _ in bounds),
    )


def comparison_of(rows: list[CellResult], testers: tuple[str, ...]) -> Comparison:
    settings = ComparisonConfig(output_dir="x", sample_sizes=(100, 200))
    return Comparison(settings, ("gaussian", "shk"), testers, tuple(rows), 0, {"numpy": "0"})


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


class _Page(html.parser.HTMLParser):
    """Reads a page, and fails where a tag is not closed or closed twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "wbr"):
            self._open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.loaded.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_messages_cannot_break_the_tables() -> None:
    failed = CellResult(
        CellKey("gaussian", HONEST, 100, "sequential", 1),
        ERROR,
        "a | b \\\\| <script>x</script> `c`",
    )
    comparison = comparison_of([failed], ("sequential",))
    assert "script" not in _Page(to_html(comparison, "<script>")).tags
    markdown = to_markdown(comparison, "<script>")
    assert "<script>" not in markdown
    (line,) = [line for line in markdown.splitlines() if "a \\|" in line]
    # A bar splits cells unless an odd number of backslashes stands before it.
    cells = re.findall(r"(?<!\\)(?:\\\\)*\|", line)
    assert len(cells) == 13


def test_page_and_texts_show_every_cell_and_load_nothing() -> None:
    rows = [
        row("sequential", HONEST, [0.5, 1.5], 1),
        row("sequential", BROKEN, [3.0, 3.0], 2, truth=4.0),
        row("gdp_baseline", BROKEN, [3.0, math.nan], 1, truth=None),
    ]
    comparison = comparison_of(rows, ("sequential", "gdp_baseline"))
    page = to_html(comparison, "A <title>")
    read = _Page(page)
    assert read.loaded == []
    assert "A &lt;title&gt;" in page
    assert read.tags.count("svg") == 1
    assert "NaN 0.50" in page
    markdown = to_markdown(comparison, "Title")
    assert "| gaussian | 100 | sequential | 1.00 | 0.50 | 2 + 2 | 0.75 | 0.50 |" in markdown
    lines = to_csv(comparison).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("gaussian,gdp_baseline,100,0.5,,2,0,")
    assert np.all([len(line.split(",")) == 13 for line in lines])


def test_messages_false_alarms_do_not_look_like_power() -> None:
    """A tester that accuses everybody, one that is right, one that has no number, one of a single
    false alarm.
    """
    rows = [
        row("gdp_baseline", HONEST, [3.0] * 5, 5),
        row("gdp_baseline", BROKEN, [3.0] * 5, 5),
        row("sequential", HONEST, [0.5] * 5, 0),
        row("sequential", BROKEN, [3.0] * 5, 5),
        row("dv", HONEST, [math.nan] * 5, 0),
        row("dv", BROKEN, [3.0] * 5, 5),
        row("threshold", HONEST, [1.5, 0.0, 0.0, 0.0, 0.0], 1),
        row("threshold", BROKEN, [3.0] * 5, 5),
    ]
    testers = ("gdp_baseline", "sequential", "dv", "threshold")
    comparison = comparison_of(rows, testers)
    page = to_html(comparison, "t")
    looks = re.findall(r'<td class="(heat[^"]*)"( style="[^"]*")?>1.00', page)
    assert [look for look, _ in looks] == ["heat alarm", "heat", "heat nan", "heat"]
    assert looks[1][1] == looks[3][1] != ""
    assert page.count("no guarantee</small>") == 1
    power = to_markdown(comparison, "t").split("## Power and false alarms")[1]
    assert "| 1.00 / 1.00 ! | 1.00 / 0.00 | 1.00 / 0.00 NaN | 1.00 / 0.20 |" in power


def test_f5_the_page_is_written_without_its_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> str:
        raise RuntimeError("no <ink> left")

    monkeypatch.setattr(comparison_page, "_power_curves", fail)
    page = to_html(comparison_of([row("sequential", HONEST, [0.5] * 5, 0)], ("sequential",)), "t")
    assert "The curves could not be drawn: no &lt;ink&gt; left." in page
    assert "Every cell" in page
