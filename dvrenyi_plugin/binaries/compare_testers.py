"""Compares property testers side by side: every tester on every mechanism, honest and broken.

Writes comparison.csv, .md, .html and .json into --output_dir, and a row per cell into rows.jsonl as
soon as it ends: run the same command again to go on after an interruption. DP-Auditorium's testers
are included where it is installed. Add your own mechanisms and testers with --extra_module=path.py.
Exit status: 0; 1 after an error, or when cells ended without a result (unless --allow_failures);
130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.binaries._command import EXIT_ERROR, EXIT_OK, Outcome, end_process, run_command
from dvrenyi_plugin.binaries._flags import ProgramFlags, numbers, settings_from
from dvrenyi_plugin.binaries._output_directory import refuse_other_results
from dvrenyi_plugin.comparison.settings import BUILT_IN_MODULES, ComparisonConfig

_NAME = "compare_testers"
_DP_AUDITORIUM_MODULE = "dvrenyi_plugin.binaries._dp_auditorium_testers"
# What --quick decides where it is not given.
_SCOPE = ("mechanisms", "testers", "sample_sizes", "repeats", "slow_repeats")
_QUICK_SIZES, _QUICK_REPEATS = (200, 800), 5


def define_flags() -> flags.FlagValues:
    """Returns the program's flags, at their defaults."""
    program = ProgramFlags()
    program.settings(
        ComparisonConfig,
        leave_out=("modules",),
        output_dir=None,
        # Unset: as --quick says, or the settings' own.
        **dict.fromkeys(_SCOPE),
    )
    program.switch("quick", False, "a small comparison of the fast testers, minutes at most")
    program.switch("dp_auditorium", True, "include DP-Auditorium's testers where it is installed")
    program.texts(
        "extra_module",
        "a .py file that registers mechanisms or testers; may be given more than once",
    )
    program.switch(
        "overwrite", False, "write into output_dir although another program's report is there"
    )
    program.switch(
        "allow_failures", False, "exit with status 0 although cells ended without a result"
    )
    return program.values


def main(argv: Sequence[str]) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: program name and flags, as in sys.argv.
    """
    return run_command(_NAME, __doc__ or "", define_flags(), _compare, argv)


def run() -> None:
    """Entry point of the console script: runs on sys.argv and exits."""
    end_process(main(sys.argv))


def _compare(values: flags.FlagValues) -> Outcome:
    modules = list(values.extra_module)
    if values.dp_auditorium and importlib.util.find_spec("dp_auditorium") is not None:
        modules.insert(0, _DP_AUDITORIUM_MODULE)
    config = settings_from(
        values,
        ComparisonConfig,
        leave_out=_SCOPE,
        output_dir=values.output_dir or "",
        modules=tuple(modules),
        **_scope(values, modules),
    )
    if not values.overwrite:
        refuse_other_results(config.output_dir, marker="rows.jsonl")
    # What draws up the report is slow to load: not before the flags are known to be good.
    from dvrenyi_plugin.comparison.files import to_json, write_comparison_files
    from dvrenyi_plugin.comparison.render import verdict_lines
    from dvrenyi_plugin.comparison.run import run_comparison

    try:
        comparison = run_comparison(config, on_progress=None if values.quiet else _report)
    except KeyboardInterrupt as interrupt:
        interrupt.args = ("finished cells are kept, run the same command to go on",)
        raise
    write_comparison_files(comparison, config.output_dir)
    lines = [escape(line) for line in verdict_lines(comparison)]
    lines.append(f"page  {escape(config.output_dir)}/comparison.html")
    failed = comparison.num_failed and not values.allow_failures
    if failed:
        print(
            f"{_NAME}: {comparison.num_failed} of {len(comparison.rows)} cells ended without a"
            " result: --retry_failed runs them again, --allow_failures accepts them",
            file=sys.stderr,
        )
    return Outcome("\n".join(lines), to_json(comparison), EXIT_ERROR if failed else EXIT_OK)


def _scope(values: flags.FlagValues, modules: Sequence[str]) -> dict[str, Any]:
    """Returns what is compared and how often: as the flags say, and where they say nothing, by
    --quick."""
    from dvrenyi_plugin.comparison.registry import (
        find_mechanism,
        find_tester,
        load_modules,
        mechanism_names,
        tester_names,
    )

    load_modules((*BUILT_IN_MODULES, *modules))
    scope: dict[str, Any] = {
        "mechanisms": tuple(values.mechanisms),
        "testers": tuple(values.testers),
        "sample_sizes": numbers("sample_sizes", int, values.sample_sizes),
        "repeats": values.repeats,
        "slow_repeats": values.slow_repeats,
    }
    if values.quick:
        quick = {
            "mechanisms": tuple(n for n in mechanism_names() if find_mechanism(n).quick),
            "testers": tuple(n for n in tester_names() if find_tester(n).quick),
            "sample_sizes": _QUICK_SIZES,
            "repeats": _QUICK_REPEATS,
        }
        scope |= {name: value for name, value in quick.items() if scope[name] in ((), None)}
    return {name: value for name, value in scope.items() if value not in ((), None)}


def _report(done: int, planned: int, result: Any) -> None:
    key = result.key
    state = result.status if not result.message else f"{result.status}: {result.message}"
    print(
        f"[{done}/{planned}] {key.mechanism} {key.variant} n={key.num_samples} {key.tester}:"
        f" {escape(state)}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    run()
