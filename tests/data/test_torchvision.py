"""Datasets as torchvision reads them: the records of our readers, and files it cannot read."""

import os
import sys
import types
from typing import Any, ClassVar

import numpy as np
import pytest
from image_files import idx_bytes, made_images

from dvrenyi_plugin.data.labelled import (
    load_dataset,
)


def torchvision_or_skip():
    try:
        import torchvision.datasets  # noqa: F401
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs a torchvision that fits torch ({error})")


def write_torchvision_mnist(root, images, labels):
    """Writes the four files that torchvision looks for before it reads two of them."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))


def test_torchvision_reads_the_same_records_as_the_idx_reader(tmp_path):
    torchvision_or_skip()
    images, labels = made_images()
    write_torchvision_mnist(tmp_path, images, labels)
    theirs = load_dataset("torchvision:MNIST", data_dir=str(tmp_path), seed=5)
    ours = load_dataset("mnist", data_dir=str(tmp_path / "MNIST" / "raw"), seed=5)
    np.testing.assert_array_equal(theirs.features, ours.features)
    np.testing.assert_array_equal(theirs.labels, ours.labels)
    assert (theirs.num_classes, theirs.name) == (10, "torchvision:MNIST")


def test_torchvision_folder_of_colour_images(tmp_path):
    torchvision_or_skip()
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    for index, image in enumerate(pixels):
        folder = tmp_path / "abc"[index % 3]
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{index}.png")
    dataset = load_dataset("torchvision:ImageFolder", data_dir=str(tmp_path), seed=1)
    assert (dataset.record_shape, dataset.num_classes, len(dataset)) == ((3, 4, 5), 3, 6)
    expected = {
        (pixels[index].transpose(2, 0, 1) / np.float32(255)).tobytes(): index % 3
        for index in range(6)
    }
    assert {
        record.tobytes(): label
        for record, label in zip(dataset.features, dataset.labels, strict=True)
    } == expected
    Image.fromarray(pixels[0, :2]).save(tmp_path / "a" / "small.png")
    with pytest.raises(ValueError, match="must all have one shape"):
        load_dataset("torchvision:ImageFolder", data_dir=str(tmp_path))


def test_torchvision_without_its_files_names_the_folder(tmp_path):
    torchvision_or_skip()
    with pytest.raises(ValueError, match="data_dir must hold the files of torchvision's MNIST"):
        load_dataset("torchvision:MNIST", data_dir=str(tmp_path))
    write_torchvision_mnist(tmp_path, *made_images())
    images = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(ValueError, match="data_dir must hold the files of torchvision's MNIST"):
        load_dataset("torchvision:MNIST", data_dir=str(tmp_path))


@pytest.mark.parametrize("name", ["CIFAR10", "", "mnist", "MNIST.raw", "datasets"])
def test_torchvision_datasets_that_unpickle_or_do_not_exist_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"torchvision:FashionMNIST.*CIFAR-10 is read as dataset"):
        load_dataset(f"torchvision:{name}", data_dir=str(tmp_path))


def test_what_an_old_torchvision_pickled_is_refused(tmp_path):
    (tmp_path / "KMNIST" / "processed").mkdir(parents=True)
    with pytest.raises(ValueError, match="torchvision would unpickle it"):
        load_dataset("torchvision:KMNIST", data_dir=str(tmp_path))


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a module in torchvision's place whose SVHN holds the records that the test sets."""

    class Svhn:
        records: ClassVar[list[Any]] = []

        def __init__(self, root):
            if not os.path.exists(os.path.join(root, "train_32x32.mat")):
                raise RuntimeError("Dataset not found or corrupted.")

        def __len__(self):
            return len(self.records)

        def __getitem__(self, index):
            return self.records[index]

    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(SVHN=Svhn)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    return Svhn


def test_images_of_torchvision_become_channels_first_in_unit_range(tmp_path, stand_in):
    (tmp_path / "train_32x32.mat").touch()
    pixels = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)
    stand_in.records = [(image, index % 3) for index, image in enumerate(pixels)]
    dataset = load_dataset("torchvision:SVHN", data_dir=str(tmp_path), seed=1)
    assert (dataset.record_shape, dataset.num_classes) == ((3, 4, 5), 3)
    found = {
        (record.tobytes(), int(label))
        for record, label in zip(dataset.features, dataset.labels, strict=True)
    }
    assert found == {
        ((image.transpose(2, 0, 1) / np.float32(255)).tobytes(), index % 3)
        for index, image in enumerate(pixels)
    }
    stand_in.records = [(pixels[0], 0), (pixels[1, :2], 1)]
    with pytest.raises(ValueError, match="must all have one shape"):
        load_dataset("torchvision:SVHN", data_dir=str(tmp_path))
    stand_in.records = []
    with pytest.raises(ValueError, match="got no image"):
        load_dataset("torchvision:SVHN", data_dir=str(tmp_path))


def test_an_image_that_torchvision_cannot_decode_is_an_error_that_names_the_folder(
    tmp_path, stand_in, monkeypatch
):
    (tmp_path / "train_32x32.mat").touch()
    stand_in.records = [None]

    def broken(self, index):
        raise SyntaxError("broken PNG file")

    monkeypatch.setattr(stand_in, "__getitem__", broken)
    with pytest.raises(ValueError, match=r"data_dir must hold .*broken PNG file"):
        load_dataset("torchvision:SVHN", data_dir=str(tmp_path))


def test_what_torchvision_cannot_find_is_a_wrong_folder(tmp_path, stand_in):
    with pytest.raises(ValueError, match=r"torchvision's SVHN, got .*: Dataset not found"):
        load_dataset("torchvision:SVHN", data_dir=str(tmp_path))


def test_torchvision_missing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[torchvision\]" in a checkout'):
        load_dataset("torchvision:MNIST", data_dir=str(tmp_path))
