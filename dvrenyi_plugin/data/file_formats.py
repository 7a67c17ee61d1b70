"""Readers for image files in the formats of MNIST (IDX), CIFAR-10 (binary version) and NumPy
(`.npy`, `.npz`).

Nothing here unpickles: a data file cannot run code. Only regular files are opened, so that no pipe
or device can keep a reader waiting. Every header and length is checked before an array is made, so
a truncated, padded or mislabelled file is an error and never a shorter dataset, and a small file
that unpacks to a huge one is refused before it is unpacked.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

# What one file may hold when unpacked. CIFAR-10 has 2^27 bytes, and training makes several copies.
MOST_BYTES = 2**31

_IDX_UNSIGNED_BYTE = 0x08

_CIFAR10_IMAGE_SHAPE = (3, 32, 32)
_CIFAR10_RECORD_BYTES = 1 + math.prod(_CIFAR10_IMAGE_SHAPE)
_CIFAR10_CLASSES = 10

_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_FILE_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_data_file(path: str | os.PathLike[str]) -> str:
    """Returns the path of a regular file of at most `MOST_BYTES`, as text.

    Raises:
      ValueError: it is something else, or larger.
      OSError: there is no such file.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)
    except ValueError as error:  # a null character
        raise ValueError(f"{name!r} is no path: {error}") from None
    for is_kind, words in _FILE_KINDS:
        if is_kind(status.st_mode):
            raise ValueError(f"{name} must be a regular file, got {words}")
    check_unpacked_size(name, status.st_size)
    return name


def check_unpacked_size(name: str, size: int) -> None:
    """Raises ValueError if a file, or what it unpacks to, has more than `MOST_BYTES` bytes."""
    if size > MOST_BYTES:
        raise ValueError(f"{name} must hold at most {MOST_BYTES} bytes, got {size}")


def read_idx(path: str | os.PathLike[str], rank: int) -> NDArray[np.uint8]:
    """Returns the array of unsigned bytes in an IDX file, plain or gzipped.

    Args:
      path: the file; a name ending in `.gz` is decompressed.
      rank: number of dimensions it must have (3 for images, 1 for labels).

    Raises:
      ValueError: wrong magic number, or more or fewer bytes than the header announces.
      OSError: the file cannot be read.
    """
    name = check_data_file(path)
    try:
        with _open_binary(name) as file:
            return _read_idx_stream(file, name, rank)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is not a complete gzip file: {error}") from None


def _open_binary(name: str) -> IO[bytes]:
    if name.endswith(".gz"):
        return cast(IO[bytes], gzip.open(name, "rb"))
    return open(name, "rb")


def _read_idx_stream(file: IO[bytes], name: str, rank: int) -> NDArray[np.uint8]:
    header = file.read(4 + 4 * rank)
    expected = bytes([0, 0, _IDX_UNSIGNED_BYTE, rank])
    if header[:4] != expected:
        raise ValueError(
            f"{name} must start with the IDX magic number 0x{expected.hex()} (unsigned bytes,"
            f" {rank} dimensions), got 0x{header[:4].hex()}"
        )
    if len(header) < 4 + 4 * rank:
        raise ValueError(f"{name} ends inside its header, after {len(header)} bytes")
    shape = tuple(int(size) for size in np.frombuffer(header, dtype=">u4", offset=4))
    size = math.prod(shape)
    check_unpacked_size(f"{name}, which announces {shape},", size)
    # One byte more than announced is asked for, so that trailing data is noticed.
    data = file.read(size + 1)
    if len(data) != size:
        found = "more" if len(data) > size else str(len(data))
        raise ValueError(f"{name} must hold {size} bytes after its header {shape}, got {found}")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def find_idx_file(data_dir: str, stem: str) -> str:
    """Returns the path of `stem` or `stem.gz` in a folder, the plain file first.

    Raises:
      ValueError: neither is there.
    """
    for name in (stem, stem + ".gz"):
        path = os.path.join(data_dir, name)
        if os.path.exists(path):
            return path
    raise ValueError(f"data_dir must hold {stem} or {stem}.gz, got {data_dir!r} without them")


def read_cifar10_batch(path: str | os.PathLike[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns images, shape (n, 3, 32, 32), and labels, shape (n,), of one file of CIFAR-10's
    binary version.

    Raises:
      ValueError: the length is no multiple of a record's 3,073 bytes, or a label is above 9.
      OSError: the file cannot be read.
    """
    name = check_data_file(path)
    raw = np.fromfile(name, dtype=np.uint8)
    if raw.size == 0 or raw.size % _CIFAR10_RECORD_BYTES:
        raise ValueError(
            f"{name} must hold whole records of {_CIFAR10_RECORD_BYTES} bytes, got {raw.size} bytes"
        )
    records = raw.reshape(-1, _CIFAR10_RECORD_BYTES)
    labels = records[:, 0].copy()
    if labels.max() >= _CIFAR10_CLASSES:
        index = int(np.argmax(labels >= _CIFAR10_CLASSES))
        raise ValueError(
            f"{name} must have labels from 0 to 9, got {labels[index]} at index {index}"
        )
    return records[:, 1:].reshape(-1, *_CIFAR10_IMAGE_SHAPE).copy(), labels


def read_npz(path: str | os.PathLike[str]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Returns the arrays `features` and `labels` of an `.npz` file; pickled objects are refused.

    Raises:
      ValueError: not an `.npz`, an array is missing or is none, holds Python objects, or is too
        large.
      OSError: the file cannot be read.
    """
    features, labels = read_npz_arrays(path, ("features", "labels"))
    return features, labels


def read_npz_arrays(
    path: str | os.PathLike[str], *wanted: tuple[str, ...]
) -> tuple[NDArray[np.generic], ...]:
    """Returns arrays of an `.npz` file; pickled objects are refused.

    Args:
      path: the file.
      *wanted: names of the arrays; of several such tuples the first one that is there is taken.

    Raises:
      ValueError: not an `.npz`, an array is missing or is none, holds Python objects, or is too
        large.
      OSError: the file cannot be read.
    """
    name = check_data_file(path)
    with errors_that_name(name):
        if not zipfile.is_zipfile(name):
            raise ValueError(f"{name} must be an .npz archive, which is a zip file")
        with zipfile.ZipFile(name) as archive:
            found = archive.namelist()
            for names in wanted:
                members = [f"{array}.npy" for array in names]
                if set(members) <= set(found):
                    return tuple(_read_member(archive, member, name) for member in members)
    words = ", or ".join(" and ".join(names) for names in wanted)
    raise ValueError(f"{name} must hold arrays named {words}, got {sorted(found)[:10]}")


def _read_member(archive: zipfile.ZipFile, member: str, name: str) -> NDArray[np.generic]:
    size = archive.getinfo(member).file_size
    check_unpacked_size(f"{member} in {name}", size)
    with archive.open(member) as stream:
        return _read_array(stream, size, f"{member} in {name}")


def read_npy(path: str | os.PathLike[str]) -> NDArray[np.generic]:
    """Returns the array of an `.npy` file; pickled objects are refused.

    Raises:
      ValueError: not an `.npy` file, it holds Python objects, or it is too large.
      OSError: the file cannot be read.
    """
    name = check_data_file(path)
    with errors_that_name(name), open(name, "rb") as file:
        return _read_array(file, os.fstat(file.fileno()).st_size, name)


def _read_array(stream: IO[bytes], size: int, name: str) -> NDArray[np.generic]:
    """Returns the array in NumPy's format that a stream of `size` bytes holds from its start to its
    end.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _NPY_HEADERS:
        raise ValueError(f"{name} must be in version 1 or 2 of NumPy's format, got {version}")
    shape, fortran_order, dtype = _NPY_HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"{name} cannot be read without unpickling: it holds Python objects")
    expected = math.prod(shape) * dtype.itemsize
    found = size - stream.tell()
    if expected != found:
        raise ValueError(
            f"{name} must hold {expected} bytes after its header, which says {dtype} of shape"
            f" {shape}, got {found}"
        )
    # zipfile compares its checksum when it is asked for more than there is.
    flat = np.frombuffer(stream.read(expected + 1), dtype=dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C")


@contextlib.contextmanager
def errors_that_name(name: str, otherwise: str = "cannot be read") -> Iterator[None]:
    """Inside, whatever a reader complains of becomes a ValueError that names the file, if the
    complaint does not.

    Args:
      name: the file's.
      otherwise: what is then said of it, before the first line of the complaint.
    """
    try:
        yield
    except Exception as error:
        # A damaged file makes NumPy, zipfile, torch and the decompression fail in any way there is.
        if isinstance(error, (OSError, ValueError)) and name in str(error):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise ValueError(
                f"{name} must be text in UTF-8, got byte 0x{error.object[error.start]:02x} at"
                f" {error.start}"
            ) from None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{name} {otherwise}: {reason}") from None
