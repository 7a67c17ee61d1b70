"""Datasets as torchvision reads them from files that are already on this machine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.extras import missing_extra
from dvrenyi_plugin.data.file_formats import check_data_file

# Those that torchvision reads without unpickling (its CIFAR classes unpickle) and that need no
# setting but their folder, the training part where there are parts.
TORCHVISION_NAMES = ("MNIST", "FashionMNIST", "KMNIST", "USPS", "SVHN", "STL10", "ImageFolder")


def read_torchvision(name: str, data_dir: str) -> tuple[NDArray[Any], NDArray[np.int64], int]:
    """Returns images, labels and the number of classes of a dataset that torchvision knows.

    Args:
      name: one of `TORCHVISION_NAMES`.
      data_dir: torchvision's `root`; nothing is downloaded into it.

    Returns:
      uint8 images of shape (n, channels, height, width), int64 labels of shape (n,), and how many
      classes there are.

    Raises:
      ValueError: unknown name, files that torchvision cannot find or read, images of several
        shapes.
      ImportError: torchvision is not installed, or does not fit the torch that is.
    """
    if name not in TORCHVISION_NAMES:
        raise ValueError(
            "dataset must be one of"
            f" {', '.join(f'torchvision:{known}' for known in TORCHVISION_NAMES)}, got"
            f" 'torchvision:{name}' (others unpickle or need more than a folder; CIFAR-10 is read"
            " as dataset cifar10)"
        )
    legacy = os.path.join(data_dir, name, "processed")
    if os.path.exists(legacy):
        raise ValueError(
            f"data_dir must not hold {legacy!r}: torchvision would unpickle it. The IDX files"
            f" belong into {os.path.join(data_dir, name, 'raw')!r}"
        )
    reader = _reader(name)
    for folder, _, files in os.walk(data_dir):
        for file in files:
            # A pipe or a device would keep torchvision's readers waiting.
            path = os.path.join(folder, file)
            if os.path.exists(path):
                check_data_file(path)
    try:
        records = reader(root=data_dir)
        # Each record is asked for once: a folder's image is decoded whenever it is.
        pairs = [
            (np.asarray(image), int(label))
            for image, label in map(records.__getitem__, range(len(records)))
        ]
    except Exception as error:
        # A damaged file makes torchvision's readers fail in any way there is.
        raise ValueError(
            f"data_dir must hold the files of torchvision's {name}, got {data_dir!r}: {error}"
        ) from None
    images = [_channels_first(image) for image, _ in pairs]
    labels = np.array([label for _, label in pairs], dtype=np.int64)
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise ValueError(
            f"images in {data_dir} must all have one shape, got {sorted(shapes)[:3] or 'no image'}"
        )
    return np.stack(images), labels, _num_classes(records, labels)


def _reader(name: str) -> Any:
    """Returns torchvision's class of this name."""
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise missing_extra(
            f"dataset torchvision:{name}", "a torchvision that fits torch", "torchvision", error
        ) from error
    return getattr(datasets, name)


def _channels_first(image: NDArray[Any]) -> NDArray[Any]:
    return image[np.newaxis] if image.ndim == 2 else image.transpose(2, 0, 1)


def _num_classes(records: Any, labels: NDArray[np.int64]) -> int:
    """The classes that the dataset names, or, where it names none, those that occur."""
    named = len(getattr(records, "classes", ()))
    return max(named, int(labels.max()) + 1, 2)
