"""Files that are odd or hostile: each is an error that names it, at once, and what only looks odd
is read.
"""

import gzip
import io
import os
import socket
import struct
import zipfile

import numpy as np
import pytest
import torch

from dvrenyi_plugin.audits.dp_sgd.initial_weights import read_weights_file
from dvrenyi_plugin.data import file_formats as dataset_files
from dvrenyi_plugin.data.file_formats import read_cifar10_batch, read_idx, read_npy, read_npz
from dvrenyi_plugin.data.labelled import load_dataset

READERS = {
    "npz": read_npz,
    "npy": read_npy,
    "idx": lambda path: read_idx(path, rank=3),
    "idx.gz": lambda path: read_idx(f"{path}.gz", rank=3),
    "cifar10": read_cifar10_batch,
    "weights": read_weights_file,
}


def make_folder(path):
    os.mkdir(path)


def make_socket(path):
    # An address may have a hundred characters: fewer than a temporary folder's path.
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)


def make_link_to(target):
    return lambda path: os.symlink(target, path)


KINDS = {
    "a folder": make_folder,
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": make_link_to("/dev/zero"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_f4_what_is_no_regular_file_is_refused_at_once(tmp_path, reader, kind):
    path = str(tmp_path / "file")
    KINDS[kind](path + (".gz" if reader == "idx.gz" else ""))
    with pytest.raises(ValueError, match=f"file.* must be a regular file, got {kind}"):
        READERS[reader](path)


@pytest.mark.timeout(20)
def test_f4_pipes_where_a_dataset_of_a_folder_is_looked_for(tmp_path):
    os.mkfifo(tmp_path / "train-images-idx3-ubyte")
    os.mkfifo(tmp_path / "train-labels-idx1-ubyte")
    for number in range(1, 6):
        os.mkfifo(tmp_path / f"data_batch_{number}.bin")
    for name in ("mnist", "cifar10", "torchvision:SVHN"):
        with pytest.raises((ValueError, ImportError), match=r"got a pipe|torchvision"):
            load_dataset(name, data_dir=str(tmp_path))


@pytest.mark.parametrize("reader", READERS)
def test_f4_missing_files_and_impossible_names(tmp_path, reader):
    with pytest.raises(FileNotFoundError):
        READERS[reader](str(tmp_path / "none"))
    with pytest.raises(ValueError, match="is no path"):
        READERS[reader](str(tmp_path / "a\0b"))


def npz_with(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if isinstance(content, np.ndarray):
                buffer = io.BytesIO()
                np.save(buffer, content)
                content = buffer.getvalue()
            archive.writestr(f"{name}.npy", content)


LABELS = np.array([0, 1, 2])


@pytest.mark.parametrize("text", [b"no array", b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00" + b"{" * 90])
def test_f4_a_member_that_is_no_array(tmp_path, text):
    path = str(tmp_path / "own.npz")
    npz_with(path, features=text, labels=LABELS)
    with pytest.raises(ValueError, match=r"own\.npz"):
        load_dataset(path)
    npz_with(path, features=np.zeros((3, 2)), labels=text)
    with pytest.raises(ValueError, match=r"own\.npz"):
        load_dataset(path)


def npy_header(shape, dtype="|u1"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


@pytest.fixture
def low_limit(monkeypatch):
    """Two thousandths of the limit: files that unpack to that much are made in no time."""
    monkeypatch.setattr(dataset_files, "MOST_BYTES", 2**22, raising=False)


@pytest.mark.usefixtures("low_limit")
def test_f4_a_small_archive_that_unpacks_to_a_huge_one_is_refused_before_it_is_unpacked(tmp_path):
    path = str(tmp_path / "own.npz")
    npz_with(path, features=np.zeros((2**11, 2**12), np.uint8), labels=np.zeros(2**11, int))
    assert os.path.getsize(path) < 2**14
    # A checksum that is wrong would be noticed first if anything had been unpacked.
    with open(path, "r+b") as file:
        content = file.read()
        position = content.index(b"PK\x01\x02") + 16
        file.seek(position)
        file.write(bytes(4))
    with pytest.raises(ValueError, match=r"features\.npy in .*own\.npz must hold at most 4194304"):
        load_dataset(path)


def test_f4_a_header_that_announces_more_than_there_is(tmp_path):
    path = str(tmp_path / "own.npz")
    npz_with(path, features=npy_header((10**6, 10**6)) + bytes(9), labels=LABELS)
    with pytest.raises(ValueError, match=r"must hold 1000000000000 bytes after its header.* got 9"):
        load_dataset(path)
    (tmp_path / "own.npy").write_bytes(npy_header((2, 2)) + bytes(5))
    with pytest.raises(ValueError, match=r"own\.npy must hold 4 bytes after its header.* got 5"):
        read_npy(tmp_path / "own.npy")
    images = tmp_path / "images.gz"
    images.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**12, 2**10, 2**10)))
    with pytest.raises(ValueError, match=r"images\.gz, which announces .* must hold at most"):
        read_idx(images, rank=3)


def test_f4_large_files_are_refused_by_their_size(tmp_path):
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.truncate(dataset_files.MOST_BYTES + 1)
    for reader in ("npz", "npy", "idx", "cifar10", "weights"):
        with pytest.raises(ValueError, match="file must hold at most 2147483648 bytes, got"):
            READERS[reader](str(path))


def test_f4_weights_that_repeat_one_number_are_refused(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"0.weight": torch.zeros(1).expand(2**40)}, path)
    assert os.path.getsize(path) < 2**12
    with pytest.raises(ValueError, match=r"weights\.pt must hold at most"):
        read_weights_file(path)


@pytest.mark.usefixtures("low_limit")
def test_f4_weights_packed_small_are_refused_before_they_are_unpacked(tmp_path):
    path = str(tmp_path / "weights.pt")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(2**22 + 1))
    with pytest.raises(ValueError, match=r"weights\.pt must hold at most 4194304"):
        read_weights_file(path)


def test_f4_any_damaged_byte_of_a_weights_file_is_an_error_that_names_it_or_harmless(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "weights.pt"
    torch.save({"0.weight": torch.arange(6.0).reshape(2, 3)}, path)
    whole = path.read_bytes()
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= rng.integers(1, 256)
        path.write_bytes(damaged)
        try:
            weights = read_weights_file(path)
        except ValueError as error:
            assert "weights.pt" in str(error)
        else:
            assert list(weights) == ["0.weight"]
            np.testing.assert_array_equal(weights["0.weight"], np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.astype(np.float64),
        LABELS.astype(np.float16),
        LABELS[:, np.newaxis],
        LABELS[:, np.newaxis].astype(np.float32),
        LABELS.astype(np.uint64),
        np.asfortranarray(LABELS[:, np.newaxis]),
        LABELS.astype(">i4"),
    ],
)
@pytest.mark.parametrize("name", ["own.npz", "OWN.NPZ"])
def test_f4_labels_and_names_that_only_look_odd_are_read(tmp_path, labels, name):
    features = np.arange(6, dtype=np.float32).reshape(3, 2)
    path = str(tmp_path / name)
    with open(path, "wb") as file:
        np.savez(file, features=features, labels=labels)
    dataset = load_dataset(path, seed=1)
    found = {tuple(record): label for record, label in zip(*dataset.records, strict=True)}
    assert found == {(0.0, 1.0): 0, (2.0, 3.0): 1, (4.0, 5.0): 2}
    assert dataset.labels.dtype == np.int64


def test_f4_features_that_cannot_be_used_name_the_file(tmp_path):
    path = str(tmp_path / "own.npz")
    np.savez(path, features=np.full((3, 2), np.nan), labels=LABELS)
    with pytest.raises(ValueError, match=r"own\.npz: features must be finite"):
        load_dataset(path)


def test_f4_every_dtype_and_order_of_numpy_is_read_back(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "own.npy"
    for dtype in ("u1", "<i2", ">f4", "f8", "?", "<U3"):
        for shape in ((), (0,), (3,), (2, 3, 4)):
            for order in "CF":
                array = np.asarray(rng.integers(0, 100, shape).astype(dtype), order=order)
                np.save(path, array)
                found = read_npy(path)
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(found, array)


def test_f4_any_damaged_byte_of_an_array_file_is_an_error_that_names_it_or_harmless(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "own.npz"
    np.savez(path, features=np.ones((4, 3), np.float32), labels=np.array([0, 1, 2, 1]))
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= rng.integers(1, 256)
        path.write_bytes(damaged)
        try:
            dataset = load_dataset(str(path))
        except ValueError as error:
            assert "own.npz" in str(error)
        else:
            np.testing.assert_array_equal(dataset.features, 1.0)
            np.testing.assert_array_equal(np.sort(dataset.labels), [0, 1, 1, 2])
