"""What the command-line programs share: flags, one-line errors, exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from absl import flags

EXIT_OK, EXIT_ERROR, EXIT_REFUTED, EXIT_INTERRUPTED = 0, 1, 2, 130


class ProgramFlags:
    """A program's own flags, made one after another; absl's global ones are left alone.

    Attributes:
      values: what has been defined so far, to parse a command line with.
    """

    def __init__(self) -> None:
        self.values = flags.FlagValues()  # type: ignore[no-untyped-call]

    def text(self, name: str, default: str | None, meaning: str) -> None:
        """Adds a flag that holds text."""
        flags.DEFINE_string(name, default, meaning, flag_values=self.values)

    def whole(self, name: str, default: int | None, meaning: str) -> None:
        """Adds a flag that holds an integer."""
        flags.DEFINE_integer(name, default, meaning, flag_values=self.values)

    def real(self, name: str, default: float | None, meaning: str) -> None:
        """Adds a flag that holds a float."""
        flags.DEFINE_float(name, default, meaning, flag_values=self.values)

    def switch(self, name: str, default: bool, meaning: str) -> None:
        """Adds a flag that is on or off."""
        flags.DEFINE_bool(name, default, meaning, flag_values=self.values)

    def words(self, name: str, default: Sequence[str], meaning: str) -> None:
        """Adds a flag that holds words with commas between."""
        flags.DEFINE_list(name, list(default), meaning, flag_values=self.values)


def run_command(
    name: str,
    description: str,
    flag_values: flags.FlagValues,
    body: Callable[[flags.FlagValues], int],
    argv: Sequence[str],
) -> int:
    """Returns a program's exit status: the body's, 0 after --help, 1 after an error in what was asked.

    Such an error (a bad flag, ValueError, ImportError, OSError or too little memory) becomes one line on standard error. Any
    other exception is a fault of ours and keeps its traceback.

    Args:
      name: of the program, for messages.
      description: what --help begins with.
      flag_values: the program's own flags; absl's global ones are left alone.
      body: does the work with the parsed flags.
      argv: program name and arguments.
    """
    flags.DEFINE_bool("help", False, "print this text and exit", flag_values=flag_values)
    try:
        positional = flag_values(list(argv))[1:]
        if flag_values["help"].value:
            # absl heads the list with the path of the file that defines the flags: indented lines are the flags.
            flag_lines = [
                line for line in flag_values.get_help().splitlines() if line.startswith(" ")
            ]
            print("\n".join([description, *flag_lines]))
            return EXIT_OK
        if positional:
            raise flags.Error(f"only flags are taken, got {' '.join(positional)!r}")
        return body(flag_values)
    except (flags.Error, ValueError, ImportError, OSError) as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return EXIT_ERROR
    except MemoryError as error:
        print(f"{name}: not enough memory for this: {one_line(error)}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(f"{name}: interrupted, no report was written", file=sys.stderr)
        return EXIT_INTERRUPTED


def one_line(error: BaseException) -> str:
    """Returns an error's message on one line, or its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
