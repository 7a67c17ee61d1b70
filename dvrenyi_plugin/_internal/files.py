"""Files that are whole or absent: scratch folders that the next run clears away, one-step writes,
creating once.

What a killed process leaves behind is told from what a running one needs by a lock: the system
gives a lock back when its process ends, however it ends, so that a number of a process that is in
use again does not matter.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from typing import IO, Any

_PREFIX, _LOCK = ".dvrenyi-", ".lock"
# What os.link says where a file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EACCES)


@contextlib.contextmanager
def scratch_folder(directory: str) -> Iterator[str]:
    """Gives a fresh private folder in an existing directory, and removes it with all that is left
    in it.

    If this process is killed, the next process that asks for a scratch folder in this directory
    removes it. Those of running processes and of other machines are left alone, and so are all
    where the file system has no locks.

    Raises:
      OSError: the directory cannot be written.
    """
    _remove_abandoned(os.path.abspath(directory))
    with _new_lock(directory) as stem:
        folder = os.path.join(directory, stem)
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file beside its place and moves it there: readers see the old content or the new
    one.

    A symbolic link at the path is replaced and not followed.

    Raises:
      OSError: it cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with scratch_folder(os.path.dirname(os.path.abspath(path))) as folder:
        draft = os.path.join(folder, "draft")
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)


def create_once(draft: str, path: str) -> bool:
    """Moves a finished file to a path that has none, in one step; returns False if there is one by
    now.

    Args:
      draft: in the same file system; may be gone afterwards.
      path: never replaced.

    Raises:
      OSError: it cannot be moved.
    """
    try:
        # Unlike a rename, a link never replaces what another process has just put there.
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with _turn(path):
            if os.path.lexists(path):
                return False
            os.rename(draft, path)
    return True


def open_for_appending(path: str) -> IO[bytes]:
    """Opens a file to read and to append to, made where there is none.

    Raises:
      OSError: it cannot be opened, or is a symbolic link, behind which may be anybody's file.
    """
    return open(path, "a+b", opener=_open_unlinked)


def refuse_link(name: str, path: str) -> None:
    """Raises ValueError if something that this program writes is a symbolic link, behind which may
    be anybody's file.

    Args:
      name: of the argument that named the path or its folder.
      path: may exist or not.
    """
    if os.path.islink(path):
        raise ValueError(
            f"{name} must not hold a symbolic link where a result is to be, got {path!r}"
        )


def lock_file(file: IO[Any] | int) -> bool:
    """Takes a file for this process until it is closed; returns False if another process has it.

    Where there are no locks (Windows, some network file systems), every process gets the file.
    """
    try:
        return _try_lock(file)
    except OSError:
        return True


def _open_unlinked(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(error.errno, "must not be a symbolic link", path) from None


def _try_lock(file: IO[Any] | int) -> bool:
    """Returns whether this process has the lock now; raises OSError where there are no locks."""
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "no locks on this system") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _new_lock(directory: str) -> Iterator[str]:
    """Gives a name in the directory that is this process's own while its lock file is locked."""
    while True:
        stem = _PREFIX + secrets.token_hex(8)
        path = os.path.join(directory, stem + _LOCK)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # Whoever clears up may have taken it for an abandoned one before it was locked.
            if not (lock_file(handle) and _is_at(handle, path)):
                continue
            os.write(handle, socket.gethostname().encode())
            try:
                yield stem
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
            return
        finally:
            os.close(handle)


@contextlib.contextmanager
def _turn(path: str) -> Iterator[None]:
    """Lets one process at a time into a block for this path."""
    import fcntl

    directory, name = os.path.split(os.path.abspath(path))
    lock = os.path.join(directory, f"{_PREFIX}{name}{_LOCK}")
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, lock):
                continue
            try:
                yield
            finally:
                os.remove(lock)
            return
        finally:
            os.close(handle)


@functools.cache
def _remove_abandoned(directory: str) -> None:
    """Removes what dead processes of this machine left in a directory. Once a process: it is asked
    for every write.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.startswith(_PREFIX) and name.endswith(_LOCK):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(os.path.join(directory, name))


def _remove_if_abandoned(lock: str) -> None:
    handle = os.open(lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        # Locks of network file systems may hold on one machine only.
        if os.read(handle, 256).decode(errors="replace") not in ("", socket.gethostname()):
            return
        if _try_lock(handle) and _is_at(handle, lock):
            shutil.rmtree(lock[: -len(_LOCK)], ignore_errors=True)
            os.remove(lock)
    finally:
        os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def errors_that_name_argument(name: str, value: object) -> Iterator[None]:
    """Gives the system's errors within the name of the argument whose path the user chose."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = f": {error.filename}" if error.filename not in (None, value) else ""
        raise type(error)(f"{name} {str(value)!r} cannot be used: {reason}{where}") from error
