"""Runs that are killed: no process goes on, no folder is left, and what was kept is used by the
next run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dvrenyi_plugin._internal import files as _files
from dvrenyi_plugin._internal.files import scratch_folder, write_atomically
from dvrenyi_plugin.binaries._command import Outcome, run_command
from dvrenyi_plugin.binaries._flags import ProgramFlags

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
    }


def command(program: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", f"dvrenyi_plugin.binaries.{program}", *flags]


@contextlib.contextmanager
def started(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Gives a running command in a session of its own; nothing of it is left at the end."""
    process = subprocess.Popen(
        arguments,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        for pid in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def session_of(leader: int) -> dict[int, str]:
    """Returns the living processes that a session leader started, with their command lines."""
    return {pid: line for pid, line in _processes() if _field(pid, 3) == leader and pid != leader}


def descendants_of(ancestor: int) -> dict[int, str]:
    """Returns the living processes below one, sessions of their own included, with their command
    lines.
    """
    found: dict[int, str] = {}
    processes = list(_processes())
    for _ in range(5):
        known = {ancestor, *found}
        found |= {pid: line for pid, line in processes if _field(pid, 1) in known}
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Returns whether a condition holds within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    return _field(pid, 0, text=True) not in ("", "Z")


def _processes() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and alive(int(name)):
            with contextlib.suppress(OSError):
                line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(name), line.decode(errors="replace")


def _field(pid: int, index: int, text: bool = False) -> object:
    """Returns a field of /proc/pid/stat that follows the command: 0 state, 1 parent, 2 group, 3
    session.
    """
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if text else -1
    return fields[index] if text else int(fields[index])


# Models that take long enough for a kill to meet them.
LONG_AUDIT = (
    "--dataset=digits",
    "--num_records=100",
    "--steps=3000",
    "--num_models=400",
    "--num_workers=2",
)
LONG_COMPARISON = (
    "--nodp_auditorium",
    "--mechanisms=gaussian",
    "--testers=dv",
    "--sample_sizes=20000",
    "--slow_repeats=50",
    "--num_workers=2",
)


def num_models(folder: Path) -> int:
    """Returns the number of models in the store, 0 before there is one."""
    for path in folder.glob("observations-*.sqlite"):
        connection = sqlite3.connect(path)
        try:
            return int(connection.execute("SELECT count(*) FROM models").fetchone()[0])
        finally:
            connection.close()
    return 0


def workers_of(main: int) -> list[int]:
    return [
        pid
        for pid, line in descendants_of(main).items()
        if "popen_loky" in line or "spawn_main" in line
    ]


def training(main: int) -> bool:
    workers = workers_of(main)
    return len(workers) >= 2 and all(map(busy, workers))


def busy(pid: int) -> bool:
    fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) > 200  # two seconds of a processor: past its imports


@pytest.mark.parametrize(
    ("program", "flags"), [("audit_dpsgd", LONG_AUDIT), ("compare_testers", LONG_COMPARISON)]
)
def test_f1_no_worker_outlives_a_killed_main_process(
    tmp_path: Path, program: str, flags: tuple[str, ...]
) -> None:
    with started(command(program, f"--output_dir={tmp_path / 'out'}", *flags)) as main:
        assert wait_for(lambda: training(main.pid), 90.0)
        family = list(descendants_of(main.pid))
        os.kill(main.pid, signal.SIGKILL)
        main.wait()
        assert wait_for(lambda: not any(map(alive, family)), 10.0), session_of(main.pid)


BLOCKS = """
import os, sys, time
from dvrenyi_plugin.execution.backends import run_tasks
def task(folder, number):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(100)
if __name__ == "__main__":
    list(run_tasks(task, sys.argv[1], [(0,)], backend=sys.argv[2], num_workers=2))
"""


@pytest.mark.parametrize(("backend", "module"), [("loky", "joblib"), ("dask", "distributed")])
def test_f1_workers_of_every_backend_end_with_their_parent(
    tmp_path: Path, backend: str, module: str
) -> None:
    pytest.importorskip(module)
    script = tmp_path / "blocks.py"
    script.write_text(BLOCKS)
    marks = tmp_path / "pids"
    marks.mkdir()
    with started([sys.executable, str(script), str(marks), backend]) as main:
        assert wait_for(lambda: bool(os.listdir(marks)), 60.0)
        family = list(descendants_of(main.pid))
        os.kill(main.pid, signal.SIGKILL)
        main.wait()
        assert wait_for(lambda: not any(map(alive, family)), 10.0)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_f1_sigterm_ends_an_audit_as_ctrl_c_does(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    flags = (
        f"--output_dir={out}",
        *LONG_AUDIT,
        "--model=logistic",
        "--steps=300",
        f"--backend={backend}",
    )
    with started(command("audit_dpsgd", *flags)) as main:
        assert wait_for(lambda: num_models(out) > 0, 90.0)
        family = list(descendants_of(main.pid))
        main.send_signal(signal.SIGTERM)
        _, errors = main.communicate(timeout=20.0)
        assert wait_for(lambda: not any(map(alive, family)), 10.0)
    assert main.returncode == 143
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert "models are kept in" in last and "the same command goes on" in last
    assert last.startswith("audit_dpsgd: ") and "no report was written" in last
    assert num_models(out) > 0
    assert not [name for name in os.listdir(out) if name.startswith(".dvrenyi-")]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_f1_signals_become_an_exit_status_and_a_line(
    number: signal.Signals, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)

    def body(values: object) -> int:
        os.kill(os.getpid(), number)
        time.sleep(5.0)
        return 0

    assert run_command("program", "", ProgramFlags().values, body, ["program"]) == status
    assert capsys.readouterr().err.endswith("no report was written\n")
    assert signal.getsignal(number) is before


def test_f1_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        def body(values: object) -> Outcome:
            os.kill(os.getpid(), signal.SIGHUP)
            return Outcome("", "{}")

        assert run_command("program", "", ProgramFlags().values, body, ["program"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_f1_sigterm_ends_a_comparison_and_a_sampler_audit(tmp_path: Path) -> None:
    comparison = command("compare_testers", f"--output_dir={tmp_path / 'c'}", *LONG_COMPARISON)
    sampler = command("audit_shk", f"--output_dir={tmp_path / 's'}", "--num_samples=400000")

    def staged(main: int) -> bool:
        return any(name.startswith(".dvrenyi-") for name in os.listdir(tmp_path))

    for arguments, at_work in ((comparison, training), (sampler, staged)):
        with started(arguments) as main:
            assert wait_for(lambda w=at_work, p=main.pid: w(p), 90.0)
            main.send_signal(signal.SIGTERM)
            _, errors = main.communicate(timeout=20.0)
        assert main.returncode == 143
        assert "stopped by SIGTERM" in errors and "Traceback" not in errors
    assert os.listdir(tmp_path) == ["c"]


HOLDS = """
import sys, time
from dvrenyi_plugin._internal.files import scratch_folder
with scratch_folder(sys.argv[1]) as folder:
    open(folder + "/half", "w").close()
    print(folder, flush=True)
    time.sleep(100)
"""


def test_f2_folders_of_killed_runs_are_removed_and_those_of_running_ones_are_not(
    tmp_path: Path,
) -> None:
    holds = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with started(holds) as dead, started(holds) as running:
        assert dead.stdout is not None and running.stdout is not None
        left, used = dead.stdout.readline().strip(), running.stdout.readline().strip()
        assert left and used
        dead.kill()
        dead.wait()
        assert os.path.exists(left)
        _files._remove_abandoned.cache_clear()
        write_atomically(tmp_path / "result", "text")
        assert not os.path.exists(left) and not os.path.exists(left + ".lock")
        assert os.listdir(used) == ["half"]
    _files._remove_abandoned.cache_clear()
    with scratch_folder(str(tmp_path)) as own:
        names = {os.path.basename(own), os.path.basename(own) + ".lock", "result"}
        assert set(os.listdir(tmp_path)) == names
    assert os.listdir(tmp_path) == ["result"]


def test_f2_folders_of_other_machines_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".dvrenyi-other").mkdir()
    (tmp_path / ".dvrenyi-other.lock").write_text("another-machine.example")
    (tmp_path / ".dvrenyi-mine").mkdir()
    (tmp_path / ".dvrenyi-link.lock").symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("")
    before = sorted(os.listdir(tmp_path))
    _files._remove_abandoned.cache_clear()
    with scratch_folder(str(tmp_path)):
        pass
    assert sorted(os.listdir(tmp_path)) == before


LOST = """
import sys, threading, time
from dvrenyi_plugin.binaries import _command
from dvrenyi_plugin.binaries._flags import ProgramFlags
from dvrenyi_plugin.execution.backends import run_tasks
import blocks
def body(values):
    tasks = [(i,) for i in range(4)]
    list(run_tasks(blocks.task, sys.argv[2], tasks, backend="dask", scheduler=sys.argv[1]))
if __name__ == "__main__":
    sys.exit(_command.run_command("lost", "", ProgramFlags().values, body, ["lost"]))
"""


def test_f6_a_lost_dask_scheduler_is_one_line_and_a_quick_exit(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "lost.py").write_text(LOST)
    (tmp_path / "pids").mkdir()
    port = 20_000 + os.getpid() % 20_000
    address = f"tcp://127.0.0.1:{port}"
    tools = [sys.executable, "-m"]
    scheduler = [*tools, "distributed.cli.dask_scheduler", f"--port={port}", "--no-dashboard"]
    worker = [*tools, "distributed.cli.dask_worker", address, "--nthreads=1", "--no-dashboard"]
    environment_before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    try:
        with started(scheduler) as lost, started([*worker, "--no-nanny"]):
            main = [sys.executable, str(tmp_path / "lost.py"), address, str(tmp_path / "pids")]
            with started(main) as program:
                assert wait_for(lambda: bool(os.listdir(tmp_path / "pids")), 60.0)
                lost.kill()
                start = time.monotonic()
                _, errors = program.communicate(timeout=30.0)
                assert time.monotonic() - start < 20.0
        assert program.returncode == 1
        assert errors == f"lost: scheduler {address} was lost while tasks were running\n"
    finally:
        if environment_before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = environment_before


def kill_at_random_times(arguments: list[str], rng: np.random.Generator, kills: int) -> int:
    """Kills a command after random times, then lets it end; returns its last exit status."""
    for _ in range(kills):
        with started(arguments) as process:
            if wait_for(lambda p=process: p.poll() is not None, float(rng.uniform(1.0, 5.0))):
                break
    with started(arguments) as process:
        process.communicate(timeout=200.0)
        return process.returncode


def test_f1_f2_a_comparison_that_was_killed_again_and_again_equals_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    flags = (
        "--nodp_auditorium",
        "--quick",
        "--mechanisms=gaussian,randomized_response",
        "--testers=sequential,threshold",
        "--repeats=2",
    )
    rng = np.random.default_rng(0)
    contents = []
    for name, kills in (("killed", 3), ("whole", 0)):
        out = tmp_path / name
        arguments = command("compare_testers", f"--output_dir={out}", *flags)
        assert kill_at_random_times(arguments, rng, kills) == 0
        assert not [entry for entry in os.listdir(out) if entry.startswith(".dvrenyi-")]
        cells = json.loads((out / "comparison.json").read_text())["cells"]
        contents.append([{**cell, "seconds": None} for cell in cells])
    assert contents[0] == contents[1] and len(contents[0]) == 16
