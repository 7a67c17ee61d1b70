"""An output directory that holds a whole result or is left as it was."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dvrenyi_plugin._internal.files import scratch_folder
from dvrenyi_plugin._internal.sealed_json import seal, unseal

# What a result was made with: another one does not replace it silently.
SETTINGS_FILE = "settings.json"
# The file by which each kind of result is known, and whose result it is.
_MARKERS = {
    "report.json": "an audit",
    "plan.json": "plan_audit",
    "rows.jsonl": "compare_testers",
}
# What a refusal lists before it only counts.
_MOST_DIFFERENCES = 5
# Everything that the report of an audit may consist of, whichever program wrote it.
REPORT_PARTS = (
    *("report.json", "report.md", "report.html", "observations.npz", SETTINGS_FILE),
    *("bound.png", "trade_off.png", "evidence.png", "losses.png", "observations.png"),
    *("densities.png", "log_ratio.png", "kl.png"),
)


@contextlib.contextmanager
def staged_output(
    output_dir: str,
    marker: str,
    parts: Collection[str] = REPORT_PARTS,
    *,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Iterator[str]:
    """Gives a fresh folder whose files move into `output_dir` when the block ends without an
    exception.

    The folder lies on the same file system, beside `output_dir` or, when that exists, inside it, so
    that an output directory that cannot be written is noticed before any work is done. A new
    directory appears in one step. In an existing one, files of the same names are replaced. Where
    there is a `marker`, and so an earlier result, those of `parts` that the new result does not
    have are removed: an old picture would pass for one of the new result's. Others are left alone.
    `marker` is removed first and moved last: whoever sees it sees a complete result. What a killed
    process left of such folders is removed.

    Args:
      output_dir: may exist or not; missing parents are made at the end.
      marker: name of the file that completes the result.
      parts: names of all files that such a result may consist of.
      settings: plain values that decide the result, kept beside it in `SETTINGS_FILE`. None keeps
        nothing.
      overwrite: replace a result of other settings, or of unknown ones.

    Raises:
      ValueError: output_dir is empty, is a file, or holds a result of other settings or of another
        program.
      OSError: it cannot be written.
    """
    target = _folder(output_dir)
    if not overwrite:
        refuse_other_results(output_dir, marker)
        if settings is not None and os.path.lexists(os.path.join(target, marker)):
            _check_settings(output_dir, settings)
    exists = os.path.isdir(target)
    with contextlib.ExitStack() as stack:
        try:
            staging = stack.enter_context(
                scratch_folder(target if exists else _existing_ancestor(target))
            )
        except OSError as error:
            raise OSError(
                f"output_dir {output_dir!r} cannot be written: {error.strerror}"
            ) from error
        yield staging
        if settings is not None:
            with open(os.path.join(staging, SETTINGS_FILE), "w", encoding="utf-8") as file:
                file.write(json.dumps(seal(settings), indent=1) + "\n")
        if os.path.isdir(target):  # It may have been made while the block ran.
            _move_files(staging, target, marker, parts)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.chmod(staging, 0o777 & ~_umask())
            os.rename(staging, target)


def _folder(output_dir: str) -> str:
    if not output_dir:
        raise ValueError("output_dir is required: name a folder to write to with --output_dir")
    target = os.path.abspath(output_dir)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise ValueError(f"output_dir must be a folder, got the file {output_dir!r}")
    return target


def refuse_other_results(output_dir: str, marker: str) -> None:
    """Raises ValueError if a folder holds a result of another kind, and none that `marker`
    completes."""
    if os.path.lexists(os.path.join(output_dir, marker)):
        return
    for other, program in _MARKERS.items():
        if other != marker and os.path.lexists(os.path.join(output_dir, other)):
            raise ValueError(
                f"output_dir {output_dir!r} holds the result of another program, {program};"
                " choose another folder, or write there all the same with --overwrite"
            )


def _check_settings(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Raises ValueError unless the result in a folder is one of these settings."""
    try:
        with open(os.path.join(output_dir, SETTINGS_FILE), encoding="utf-8") as file:
            before = unseal(file.read())
    except (OSError, ValueError):
        differences = "of settings that are not known"
    else:
        names = [n for n in {**before, **settings} if before.get(n) != settings.get(n)]
        if not names:
            return
        differences = _differences(before, settings, names)
    raise ValueError(
        f"output_dir {output_dir!r} holds a report {differences}; choose another folder, or replace"
        f" it with"
        " --overwrite"
    )


def _differences(
    before: Mapping[str, Any], settings: Mapping[str, Any], names: Sequence[str]
) -> str:
    """Returns in a few words how two results' settings differ; those of two programs have nothing
    to compare."""
    if before.get("program") != settings.get("program"):
        return f"of another program, {before.get('program')}, and not of {settings.get('program')}"
    shown = [
        f"{name} {before.get(name)!r} and not {settings.get(name)!r}"
        for name in names[:_MOST_DIFFERENCES]
    ]
    left = len(names) - len(shown)
    more = f", and {left} more" if left else ""
    return f"of other settings: {', '.join(shown)}{more}"


def _existing_ancestor(path: str) -> str:
    parent = os.path.dirname(path)
    return parent if os.path.lexists(parent) or parent == path else _existing_ancestor(parent)


def _move_files(staging: str, target: str, marker: str, parts: Collection[str]) -> None:
    new = sorted(os.listdir(staging), key=lambda name: (name == marker, name))
    if os.path.lexists(os.path.join(target, marker)):
        for name in (marker, *sorted(set(parts) - {marker, *new})):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(target, name))
    for name in new:
        os.replace(os.path.join(staging, name), os.path.join(target, name))


def _umask() -> int:
    # There is no way to read it but to set it. mkdtemp makes private folders; a result is an
    # ordinary one.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
