"""An output directory that holds a whole result or is left as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator

# Everything that the report of an audit may consist of, whichever program wrote it.
REPORT_PARTS = (
    *("report.json", "report.md", "observations.npz", "losses.png", "bound.png", "evidence.png"),
    *("densities.png", "log_ratio.png", "kl.png"),
)


@contextlib.contextmanager
def staged_output(
    output_dir: str, marker: str, parts: Collection[str] = REPORT_PARTS
) -> Iterator[str]:
    """Gives a fresh folder whose files move into `output_dir` when the block ends without an exception.

    The folder lies on the same file system, beside `output_dir` or, when that exists, inside it, so
    that an output directory that cannot be written is noticed before any work is done. A new directory appears
    in one step. In an existing one, files of the same names are replaced. Where there is a `marker`, and so an
    earlier result, those of `parts` that the new result does not have are removed: an old picture would pass
    for one of the new result's. Others are left alone. `marker` is removed first and moved last: whoever sees
    it sees a complete result.

    Args:
      output_dir: may exist or not; missing parents are made at the end.
      marker: name of the file that completes the result.
      parts: names of all files that such a result may consist of.

    Raises:
      ValueError: output_dir is empty, or is a file.
      OSError: it cannot be written.
    """
    if not output_dir:
        raise ValueError("output_dir must be a folder to write to, got ''")
    target = os.path.abspath(output_dir)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise ValueError(f"output_dir must be a folder, got the file {output_dir!r}")
    exists = os.path.isdir(target)
    try:
        staging = tempfile.mkdtemp(
            prefix=".dvrenyi-", dir=target if exists else _existing_ancestor(target)
        )
    except OSError as error:
        raise OSError(f"output_dir {output_dir!r} cannot be written: {error.strerror}") from error
    try:
        yield staging
        if os.path.isdir(target):  # It may have been made while the block ran.
            _move_files(staging, target, marker, parts)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.chmod(staging, 0o777 & ~_umask())
            os.rename(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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
    # There is no way to read it but to set it. mkdtemp makes private folders; a result is an ordinary one.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
