"""What the command-line programs share: flags, one-line errors, exit status."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import math
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from absl import flags

from dvrenyi_plugin import __version__
from dvrenyi_plugin._internal.text import escape
from dvrenyi_plugin.binaries._config_file import apply_config
from dvrenyi_plugin.binaries._output_directory import REPORT_PARTS, staged_output

EXIT_OK, EXIT_ERROR, EXIT_REFUTED, EXIT_INTERRUPTED = 0, 1, 2, 130
# Flags that say where and how something is computed and shown, and not what.
_NOT_SETTINGS = (
    *("help", "version", "quiet", "json", "output_dir", "overwrite", "fail_on_violation"),
    *("num_workers", "workers", "backend", "scheduler", "store", "resume", "config"),
)
_PLACEHOLDERS = {"float": "NUMBER", "int": "INTEGER", "string": "TEXT"}
# What absl appends to the meaning of a flag that may be given several times.
_ABSL_NOTE = "repeat this option"
# What stands between the meaning and that note.
_JOINTS = " ;\n"
_ABSL_FLAGS = ("flagfile", "undefok")
_ALIAS = "Alias for"


class StoppedBySignal(KeyboardInterrupt):
    """The system asked this program to end; all that handles Ctrl-C handles this."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a program has to say when it is done.

    Attributes:
      summary: for the terminal, of escaped lines.
      document: the same and more as one JSON document.
      exit_status: of the program.
    """

    summary: str
    document: str
    exit_status: int = EXIT_OK


def run_command(
    name: str,
    description: str,
    flag_values: flags.FlagValues,
    body: Callable[[flags.FlagValues], Outcome],
    argv: Sequence[str],
    *,
    positional: str | None = None,
) -> int:
    """Returns a program's exit status: the body's, 0 after --help and --version, 1 after an error
    in what was asked.

    Such an error (a bad flag, ValueError, ImportError, OSError or too little memory) becomes one
    line on standard error. Any other exception is a fault of ours and keeps its traceback. SIGTERM
    and SIGHUP end the body as Ctrl-C does, with status 128 and the signal's number. Standard output
    holds what --help, --version, the summary or, with --json, the document says, and nothing else.

    Args:
      name: of the program, for messages.
      description: what --help begins with.
      flag_values: the program's own flags; absl's global ones are left alone.
      body: does the work with the parsed flags.
      argv: program name and arguments.
      positional: the flag whose value may be given without its name.
    """
    _define_common_flags(flag_values)
    try:
        words = _parse(flag_values, argv, positional)
        if flag_values["help"].value:
            print("\n".join([description.rstrip("\n"), "", *_help_lines(flag_values)]))
            return EXIT_OK
        if flag_values["version"].value:
            print(f"{name} {__version__}")
            return EXIT_OK
        if words:
            raise flags.Error(f"only flags are taken, got {' '.join(words)!r}")
        if flag_values["config"].value is not None:
            apply_config(flag_values["config"].value, flag_values)
        with contextlib.redirect_stdout(sys.stderr), _signals_as_interrupts():
            outcome = body(flag_values)
        if flag_values["json"].value:
            print(outcome.document.rstrip("\n"))
        elif not flag_values["quiet"].value:
            print(outcome.summary)
        return outcome.exit_status
    except (flags.Error, ValueError, ImportError, OSError) as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return EXIT_ERROR
    except MemoryError as error:
        print(f"{name}: not enough memory for this: {one_line(error)}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt as interrupt:
        ended, status = "interrupted", EXIT_INTERRUPTED
        if isinstance(interrupt, StoppedBySignal):
            ended = f"stopped by {signal.Signals(interrupt.number).name}"
            status = 128 + interrupt.number
        kept = escape(interrupt)
        message = f"{ended}, no report was written{'; ' if kept else ''}{kept}"
        print(f"{name}: {message}", file=sys.stderr)
        return status


def _parse(flag_values: flags.FlagValues, argv: Sequence[str], positional: str | None) -> list[str]:
    """Returns the words that are no flags, but for one that is the value of a flag."""
    words: list[str] = flag_values(list(argv))[1:]
    if positional is not None and len(words) == 1 and not flag_values[positional].present:
        flag_values[positional].parse(words.pop())
    return words


def staged_report(
    name: str,
    values: flags.FlagValues,
    marker: str = "report.json",
    parts: Collection[str] = REPORT_PARTS,
) -> contextlib.AbstractContextManager[str]:
    """Returns a fresh folder for a report, whose files move into --output_dir when all went well;
    see `staged_output`."""
    return staged_output(
        values.output_dir or "",
        marker,
        parts,
        settings=settings_of(name, values),
        overwrite=values.overwrite,
    )


def audit_outcome(report: Any, values: flags.FlagValues) -> Outcome:
    """Returns what an audit's program has to say: the report's summary, and with
    --fail_on_violation its verdict."""
    return Outcome(
        f"{report.summary()}\nreport                 {escape(values.output_dir)}/report.md",
        report.to_json(),
        EXIT_REFUTED if report.refuted and values.fail_on_violation else EXIT_OK,
    )


def end_process(status: int) -> NoReturn:
    """Ends this process with an exit status, after an error or an interruption without waiting for
    anything.

    Threads that are still training then cannot be stopped, and the interpreter would abort on them.
    """
    if status not in (EXIT_OK, EXIT_REFUTED):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def settings_of(program: str, flag_values: flags.FlagValues) -> dict[str, Any]:
    """Returns a program's name and those of its flags that decide its result, as plain JSON
    values."""
    settings: dict[str, Any] = {"program": program}
    for name in _own_names(flag_values):
        if name not in _NOT_SETTINGS:
            value = flag_values[name].value
            is_text = isinstance(value, float) and not math.isfinite(value)
            settings[name] = str(value) if is_text else value
    return settings


def _own_names(flag_values: flags.FlagValues) -> list[str]:
    """Returns the flags' names, without absl's own flags and without other names of the same."""
    return [
        name
        for name in sorted(flag_values)
        if name == flag_values[name].name
        and name not in _ABSL_FLAGS
        and not flag_values[name].help.startswith(_ALIAS)
    ]


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    # What is ignored (nohup) or handled by the program around this one is left to it.
    caught = [
        number
        for number in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        if number is not None and signal.getsignal(number) is signal.SIG_DFL
    ]
    if threading.current_thread() is not threading.main_thread():
        caught = []

    def stop(number: int, frame: object) -> None:
        # What follows is the cleaning up, which a second signal must not interrupt.
        for other in caught:
            signal.signal(other, signal.SIG_IGN)
        raise StoppedBySignal(number)

    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def one_line(error: BaseException) -> str:
    """Returns an error's message on one line, or its class if it has none."""
    return escape(error) or type(error).__name__


def _define_common_flags(flag_values: flags.FlagValues) -> None:
    for name, short_name, meaning in (
        ("help", "h", "print this text and exit"),
        ("version", None, "print the version and exit"),
        ("quiet", "q", "print nothing but errors and what --json asks for"),
        ("json", None, "print the result as one JSON document in place of the summary"),
    ):
        flags.DEFINE_bool(name, False, meaning, short_name=short_name, flag_values=flag_values)
    flags.DEFINE_string(
        "config",
        None,
        "YAML file of flags, a line 'name: value' each; what the command line says comes first",
        flag_values=flag_values,
    )


def _help_lines(flag_values: flags.FlagValues) -> list[str]:
    """Returns what each flag takes, means, and is when unset; flags of absl itself and other names
    are left out."""
    lines = []
    for name in _own_names(flag_values):
        flag = flag_values[name]
        kind = flag.flag_type()
        left = f"-{flag.short_name}, --{name}" if flag.short_name else f"--{name}"
        if kind == "bool" and flag.default:
            left = f"--[no]{name}"
        elif kind != "bool":
            left += f"={_PLACEHOLDERS.get(kind, 'LIST')}"
        value = str(flag.default_as_str or "").strip("'[]")
        default = f" ({value})" if value and kind != "bool" else ""
        lines += textwrap.wrap(
            f"{left:<30} {flag.help.partition(_ABSL_NOTE)[0].rstrip(_JOINTS)}{default}",
            100,
            initial_indent="  ",
            subsequent_indent=" " * 33,
            break_on_hyphens=False,
        )
    return lines
