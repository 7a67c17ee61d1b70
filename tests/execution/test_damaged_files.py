"""What is read back from a folder: damaged or edited, it is refused, or nothing of it was lost;
links are not followed.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin._internal.files import create_once, open_for_appending, write_atomically
from dvrenyi_plugin._internal.sealed_arrays import read_arrays, write_arrays
from dvrenyi_plugin._internal.sealed_json import seal, unseal
from dvrenyi_plugin.audits.runner_state import RunnerState, SavedTrial
from dvrenyi_plugin.binaries import compare_testers, plan_audit
from dvrenyi_plugin.binaries._output_directory import staged_output
from dvrenyi_plugin.comparison.cells import (
    CellKey,
    CellResult,
    PoolTask,
    draw_pool,
    read_pool,
)
from dvrenyi_plugin.comparison.registry import load_modules
from dvrenyi_plugin.comparison.rows import RowStore
from dvrenyi_plugin.comparison.run import run_comparison
from dvrenyi_plugin.comparison.settings import BUILT_IN_MODULES, ComparisonConfig
from dvrenyi_plugin.execution import fingerprint as experiment_fingerprint
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint, source_tree_digest
from dvrenyi_plugin.execution.observation_store import ObservationStore

load_modules(BUILT_IN_MODULES)
NUM_DAMAGES = int(os.environ.get("DVRENYI_DAMAGES", "60"))
HEADER = {"seed": 0, "failure_probability": 0.05, "version": "0"}
IDENTITY = {"mechanism": "gaussian", "num_samples": 5, "failure_probability": 0.05}


@dataclasses.dataclass(frozen=True)
class Settings:
    value: float = 1.0


EXPERIMENT = ExperimentFingerprint.of(Settings(), (np.zeros(3), np.ones(3)))


def cell(tester: str, bounds: list[float], refuted: list[bool], claim: float = 1.0) -> CellResult:
    return CellResult(
        key=CellKey("gaussian", "honest", 100, tester, len(bounds)),
        status="ok",
        claim=claim,
        truth=1.0,
        bounds=tuple((bound, 0.25) for bound in bounds),
        refuted=tuple(refuted),
        seconds=(0.5,) * len(bounds),
    )


# Each: writes a file, and reads back what a program would use of it.


def write_rows(path: str) -> None:
    with RowStore.open(path, HEADER, lambda key: "") as store:
        store.append(cell("sequential", [0.7, 1.5], [False, True]))
        store.append(cell("threshold", [0.1], [False]))


def read_rows(path: str) -> Any:
    with RowStore.open(path, HEADER, lambda key: "") as store:
        return dict(store.rows)


def write_state(path: str) -> None:
    state = RunnerState.open(path, IDENTITY)
    state.append(SavedTrial((0.5, 0.25), (False, False), "ab"))
    state.append(SavedTrial((2.0, 0.0), (True, False), "cd"))


def read_state(path: str) -> Any:
    return dict(enumerate(RunnerState.open(path, IDENTITY).trials))


def write_store(path: str) -> None:
    with ObservationStore(path, EXPERIMENT, seed=3, observe="loss") as store:
        store.add(0, range(4), np.arange(8.0).reshape(4, 2))
        store.add(1, range(4), np.arange(8.0, 16.0).reshape(4, 2))


def read_store(path: str) -> Any:
    with ObservationStore(path, EXPERIMENT, seed=3, observe="loss") as store:
        return {
            (world, number): tuple(row)
            for world in (0, 1)
            for number, row in store.rows(world, range(4)).items()
        }


def write_kept(path: str) -> None:
    arrays = {"2.weight": np.arange(6.0, dtype=np.float32).reshape(2, 3), "bias": np.ones(2)}
    write_arrays(path, arrays, "experiment")


def read_kept(path: str) -> Any:
    arrays = read_arrays(path, "experiment")
    return {n: (i, a.dtype, a.shape, a.tobytes()) for i, (n, a) in enumerate(arrays.items())}


def write_settings(path: str) -> None:
    settings = seal({"program": "audit_shk", "alphas": ["2"], "seed": 1, "run_time": 6.0})
    write_atomically(path, json.dumps(settings, indent=1))


def read_settings(path: str) -> Any:
    return unseal(Path(path).read_text(encoding="utf-8"))


FILES = {
    "rows.jsonl": (write_rows, read_rows),
    "state.json": (write_state, read_state),
    "store.sqlite": (write_store, read_store),
    "kept.npz": (write_kept, read_kept),
    "settings.json": (write_settings, read_settings),
}


@pytest.mark.parametrize("name", FILES)
def test_e11_one_damaged_byte_is_never_used_silently(tmp_path: Path, name: str) -> None:
    """Refused, or what is read is what was written; models and rows may be missing, and are then
    made again.
    """
    write, read = FILES[name]
    path = tmp_path / name
    write(str(path))
    whole, content = path.read_bytes(), read(str(path))
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(NUM_DAMAGES):
        damaged = bytearray(whole)
        place = int(rng.integers(len(whole)))
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            found = read(str(path))
        except (ValueError, OSError):
            refused += 1
            continue
        assert found.items() <= content.items(), (place, damaged[place])
    # Most of an SQLite file is empty space.
    assert refused > (0 if name == "store.sqlite" else NUM_DAMAGES // 2)


def test_e11_an_edited_verdict_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(str(path))
    text = path.read_text()
    path.write_text(text.replace('"refuted": [false]', '"refuted": [true]'))
    assert path.read_text() != text
    with pytest.raises(ValueError, match=r"line 3 of .* is damaged .*digest"):
        read_rows(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"refuted": [False, False]}, "do not keep a claim of 1.0"),
        ({"refuted": [True, True]}, "do not refute a claim of 1.0"),
        ({"refuted": [True]}, "2 audits have 2 pairs of bounds, 1 verdicts"),
        ({"refuted": ["no", "no"]}, "verdicts must be true or false"),
        ({"status": "error"}, "0 audits have 2 pairs"),
        ({"status": "fine"}, "status 'fine' is unknown"),
    ],
)
def test_e11_bounds_and_verdicts_are_cross_checked_even_under_a_good_digest(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(str(path))
    header, first, *rest = path.read_text().splitlines()
    row = seal({**unseal(first, header), **change}, header)
    path.write_text("\n".join([header, json.dumps(row), *rest]) + "\n")
    with pytest.raises(ValueError, match=f"line 2 of .* is damaged .*{message}"):
        read_rows(str(path))


def test_e11_rows_of_another_comparison_do_not_fit_in(tmp_path: Path) -> None:
    path, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    write_rows(str(path))
    with RowStore.open(str(other), {**HEADER, "seed": 1}, lambda key: "") as store:
        store.append(cell("sequential", [0.9], [False]))
    path.write_text(path.read_text() + other.read_text().splitlines()[1] + "\n")
    with pytest.raises(ValueError, match=r"line 4 of .* is damaged"):
        read_rows(str(path))


def test_e11_a_damaged_pool_is_named_before_any_cell_runs(tmp_path: Path) -> None:
    path = tmp_path / "pools" / "birth_death-honest-seed0-40.npz"
    task = PoolTask("birth_death", "honest", 40, 0, BUILT_IN_MODULES, str(path))
    draw_pool(task)
    content = read_pool(str(path))
    assert len(content["samples1"]) == 240
    # Of another size, seed or mechanism, under this name.
    path.rename(path.with_name("birth_death-honest-seed1-40.npz"))
    with pytest.raises(ValueError, match="is damaged: it does not have the digest"):
        read_pool(str(path.with_name("birth_death-honest-seed1-40.npz")))
    path.write_bytes(b"PK nothing")
    config = ComparisonConfig(
        output_dir=str(tmp_path),
        mechanisms=("birth_death",),
        testers=("threshold",),
        variants=("honest",),
        sample_sizes=(20,),
        repeats=2,
    )
    with pytest.raises(ValueError, match=r"seed0-40\.npz is damaged.*delete it, and the samples"):
        run_comparison(config)


# --- creating once, without hard links
# ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [None, errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_f12_a_file_is_created_once_with_hard_links_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError(number, "no hard links here")

    if number is not None:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "file"
    for text, expected in (("first", True), ("second", False)):
        draft = tmp_path / "draft"
        draft.write_text(text)
        assert create_once(str(draft), str(path)) is expected
        assert path.read_text() == "first"
        draft.unlink(missing_ok=True)
    assert os.listdir(tmp_path) == ["file"]
    write_store(str(tmp_path / "store"))
    assert len(read_store(str(tmp_path / "store"))) == 8
    assert sorted(os.listdir(tmp_path)) == ["file", "store"]


def test_f12_other_errors_of_the_system_are_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_once(str(tmp_path / "missing"), str(tmp_path / "file"))


# --- links
# ------------------------------------------------------------------------------------------------


def test_messages_links_in_the_output_folder_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("somebody's file")
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(OSError, match="must not be a symbolic link"):
        open_for_appending(str(link))
    write_atomically(link, "result")
    assert not link.is_symlink() and link.read_text() == "result"
    assert target.read_text() == "somebody's file"


@pytest.mark.parametrize("name", ["workers.log", "rows.jsonl", "pools"])
def test_messages_a_comparison_refuses_links_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "target").write_text("")
    (out / name).symlink_to(tmp_path / "target")
    flags = [f"--output_dir={out}", "--nodp_auditorium", "--quick", "--time_limit_s=0"]
    assert compare_testers.main(["compare_testers", *flags]) == 1
    captured = capsys.readouterr().err
    assert "symbolic link" in captured and captured.count("\n") == 1
    assert (tmp_path / "target").read_text() == ""


# --- other settings in one folder
# -----------------------------------------------------------------------------


def test_messages_a_report_of_other_settings_is_replaced_only_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*flags: str) -> int:
        return plan_audit.main(["plan_audit", f"--output_dir={tmp_path / 'out'}", *flags])

    assert plan("--mu=1") == 0
    first = (tmp_path / "out" / "plan.json").read_text()
    assert plan("--mu=1") == 0
    capsys.readouterr()
    assert plan("--mu=2") == 1
    error = capsys.readouterr().err
    assert "holds a report of other settings: mu 1.0 and not 2.0" in error
    assert "--overwrite" in error and error.count("\n") == 1
    assert (tmp_path / "out" / "plan.json").read_text() == first
    assert plan("--mu=2", "--overwrite") == 0
    assert (tmp_path / "out" / "plan.json").read_text() != first
    (tmp_path / "out" / "settings.json").write_text('{"mu": 2}')
    capsys.readouterr()
    assert plan("--mu=2") == 1
    assert "settings that are not known" in capsys.readouterr().err


def test_messages_what_is_no_report_binds_nobody(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("the user's own")
    with staged_output(str(tmp_path), "report.json", settings={"a": 1}) as staging:
        Path(staging, "report.json").write_text("{}")
    with (
        pytest.raises(ValueError, match="other settings: a 1 and not 2"),
        staged_output(str(tmp_path), "report.json", settings={"a": 2}),
    ):
        pytest.fail("entered")


# --- the fingerprint
# ------------------------------------------------------------------------------------------


def test_fingerprint_covers_nested_files(tmp_path: Path) -> None:
    nested = tmp_path / "mechanisms" / "dp_sgd" / "ensemble"
    nested.mkdir(parents=True)
    (tmp_path / "losses.py").write_text("a = 1")
    (nested / "layers.py").write_text("a = 1")
    digest: Callable[[], str] = lambda: source_tree_digest.__wrapped__(str(tmp_path))  # noqa: E731

    def changed() -> str:
        experiment_fingerprint._file_digest.cache_clear()
        return digest()

    first = changed()
    (nested / "layers.cpython-311.pyc").write_text("compiled")
    (tmp_path / "py.typed").write_text("")
    assert changed() == first
    (nested / "layers.py").write_text("a = 2")
    second = changed()
    (nested / "layers.py").rename(nested / "moved.py")
    assert len({first, second, changed()}) == 3


def test_fingerprint_of_an_experiment_changes_with_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = json.loads(EXPERIMENT.description)["versions"]
    folder = os.path.dirname(os.path.dirname(experiment_fingerprint.__file__))
    assert versions["dvrenyi_plugin source"] == source_tree_digest(folder)
    monkeypatch.setattr(experiment_fingerprint, "source_tree_digest", lambda folder: "other")
    other = ExperimentFingerprint.of(Settings(), (np.zeros(3), np.ones(3)))
    assert EXPERIMENT.differences(other) == ["versions.dvrenyi_plugin source"]
