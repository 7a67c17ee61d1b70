"""Readers for image files in the formats of MNIST (IDX), CIFAR-10 (binary version) and NumPy (`.npz`).

Nothing here unpickles: a data file cannot run code. Every header and length is checked before an array is
made, so a truncated, padded or mislabelled file is an error and never a shorter dataset.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

_IDX_UNSIGNED_BYTE = 0x08
_MOST_IDX_BYTES = 2**33

_CIFAR10_IMAGE_SHAPE = (3, 32, 32)
_CIFAR10_RECORD_BYTES = 1 + math.prod(_CIFAR10_IMAGE_SHAPE)
_CIFAR10_CLASSES = 10


def read_idx(path: str | os.PathLike[str], rank: int) -> NDArray[np.uint8]:
    """Returns the array of unsigned bytes in an IDX file, plain or gzipped.

    Args:
      path: the file; a name ending in `.gz` is decompressed.
      rank: number of dimensions it must have (3 for images, 1 for labels).

    Raises:
      ValueError: wrong magic number, or more or fewer bytes than the header announces.
      OSError: the file cannot be read.
    """
    try:
        with _open_binary(path) as file:
            return _read_idx_stream(file, os.fspath(path), rank)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)} is not a complete gzip file: {error}") from None


def _open_binary(path: str | os.PathLike[str]) -> IO[bytes]:
    if os.fspath(path).endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return open(path, "rb")


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
    if size > _MOST_IDX_BYTES:
        raise ValueError(f"{name} announces {shape}, {size} bytes: more than {_MOST_IDX_BYTES}")
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
        if os.path.isfile(path):
            return path
    raise ValueError(f"data_dir must hold {stem} or {stem}.gz, got {data_dir!r} without them")


def read_cifar10_batch(path: str | os.PathLike[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns images, shape (n, 3, 32, 32), and labels, shape (n,), of one file of CIFAR-10's binary version.

    Raises:
      ValueError: the length is no multiple of a record's 3,073 bytes, or a label is above 9.
      OSError: the file cannot be read.
    """
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size == 0 or raw.size % _CIFAR10_RECORD_BYTES:
        raise ValueError(
            f"{os.fspath(path)} must hold whole records of {_CIFAR10_RECORD_BYTES} bytes, got"
            f" {raw.size} bytes"
        )
    records = raw.reshape(-1, _CIFAR10_RECORD_BYTES)
    labels = records[:, 0].copy()
    if labels.max() >= _CIFAR10_CLASSES:
        index = int(np.argmax(labels >= _CIFAR10_CLASSES))
        raise ValueError(
            f"{os.fspath(path)} must have labels from 0 to 9, got {labels[index]} at index {index}"
        )
    return records[:, 1:].reshape(-1, *_CIFAR10_IMAGE_SHAPE).copy(), labels


def read_npz(path: str | os.PathLike[str]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Returns the arrays `features` and `labels` of an `.npz` file; pickled objects are refused.

    Raises:
      ValueError: not an `.npz`, an array is missing, or an array holds Python objects.
      OSError: the file cannot be read.
    """
    name = os.fspath(path)
    with _numpy_file(name) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError(f"{name} must be an .npz archive, got a single array")
        missing = {"features", "labels"} - set(archive.files)
        if missing:
            raise ValueError(
                f"{name} must hold arrays named features and labels, got {sorted(archive.files)}"
            )
        return archive["features"], archive["labels"]


def read_npy(path: str | os.PathLike[str]) -> NDArray[np.generic]:
    """Returns the array of an `.npy` file; pickled objects are refused.

    Raises:
      ValueError: not an `.npy` file, or it holds Python objects.
      OSError: the file cannot be read.
    """
    name = os.fspath(path)
    with _numpy_file(name) as array:
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} must hold a single array, got an archive")
        return array


@contextlib.contextmanager
def _numpy_file(name: str) -> Iterator[Any]:
    """Gives what NumPy finds in a file, without unpickling; its complaints name the file."""
    try:
        with contextlib.ExitStack() as stack:
            content = np.load(name, allow_pickle=False)
            if isinstance(content, np.lib.npyio.NpzFile):
                stack.enter_context(content)
            yield content
    except OSError:
        raise
    except Exception as error:
        # A damaged file makes NumPy's reader and the decompression below it fail in any way there is.
        if isinstance(error, ValueError) and name in str(error):
            raise
        reason = str(error) or type(error).__name__
        raise ValueError(f"{name} cannot be read without unpickling: {reason}") from None
