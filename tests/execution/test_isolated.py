"""Workers of their own: a task that hangs, dies or leaves something behind harms no other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from dvrenyi_plugin.execution.isolated import run_in_processes

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
