"""Arrays in a file that carries their digest, so that a file that was damaged or exchanged is not
used silently.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.files import scratch_folder

_DIGEST = "digest"


def write_arrays(path: str, arrays: Mapping[str, NDArray[Any]], context: str) -> None:
    """Writes an `.npz` file in one step; missing folders are made.

    Args:
      path: replaced if it exists.
      arrays: by name, in the order in which they are to be read; of numbers or text.
      context: what they belong to; it must be given again to read them.

    Raises:
      OSError: it cannot be written.
    """
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    contents: dict[str, Any] = {**arrays, _DIGEST: np.array(_digest(arrays, context))}
    with scratch_folder(folder) as scratch:
        draft = os.path.join(scratch, "arrays.npz")
        np.savez_compressed(draft, **contents)
        os.replace(draft, path)


def read_arrays(path: str, context: str) -> dict[str, NDArray[Any]]:
    """Returns what was written, in its order.

    Raises:
      ValueError: the file is damaged, or belongs to something else.
      OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        stored = str(arrays.pop(_DIGEST))
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged: {error}") from None
    except Exception as error:
        # A damaged archive makes its readers fail in any way there is.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is damaged: {reason}") from None
    if stored != _digest(arrays, context):
        raise ValueError(f"{path} is damaged: it does not have the digest it was written with")
    return arrays


def _digest(arrays: Mapping[str, NDArray[Any]], context: str) -> str:
    total = hashlib.sha256(context.encode())
    for name, array in arrays.items():
        total.update(repr((name, array.dtype.str, array.shape)).encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
