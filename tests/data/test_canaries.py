"""Canaries and the initial weights they are chosen by."""

import dataclasses

import numpy as np
import pytest
import torch

from dvrenyi_plugin.audits.dp_sgd.initial_weights import (
    PretrainingConfig,
    accuracy,
    model_with_weights,
    pretrain_weights,
    read_weights_file,
)
from dvrenyi_plugin.data.canaries import least_likely_label, make_canary
from dvrenyi_plugin.data.canary_names import CANARY_NAMES
from dvrenyi_plugin.data.labelled import AuditSplit, LabelledDataset, split_for_audit
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model


def made_dataset(n=120, seed=0):
    """Three classes, told apart by which row of a 3 x 3 image is bright."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    features = 0.1 * rng.random((n, 1, 3, 3), dtype=np.float32)
    features[np.arange(n), 0, labels] += np.float32(0.8)
    return LabelledDataset("made", features, labels.astype(np.int64), 3)


@pytest.fixture(scope="module")
def dataset():
    return made_dataset()


@pytest.fixture(scope="module")
def split(dataset):
    return split_for_audit(dataset, 40)


@pytest.fixture(scope="module")
def network(dataset, split):
    config = PretrainingConfig(epochs=20, batch_size=8, seed=1)
    return model_with_weights("mlp", dataset, pretrain_weights("mlp", split.pretraining, config))


def with_output_bias(dataset, bias):
    """The linear model whose output for a blank image is `bias`."""
    weights = {"1.weight": np.zeros((3, 9), np.float32), "1.bias": np.array(bias, np.float32)}
    return model_with_weights("logistic", dataset, weights)


@pytest.mark.parametrize(
    ("bias", "label"), [((-1, 0, 2), 0), ((3, -2, 1), 1), ((0.5, 0.4, 0.3), 2)]
)
def test_blank_canary_takes_the_label_the_initial_model_finds_least_likely(
    dataset, split, bias, label
):
    network = with_output_bias(dataset, bias)
    canary = make_canary("blank", network, split)
    assert canary.label == label
    assert not canary.features.any()
    probabilities = np.exp(bias) / np.exp(bias).sum()
    assert canary.initial_loss == pytest.approx(-np.log(probabilities[label]), rel=1e-5)
    # Only the bias sees a blank image: the gradient is softmax minus one-hot.
    gradient = probabilities - np.eye(3)[label]
    assert canary.initial_gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)


@pytest.mark.parametrize("name", CANARY_NAMES)
def test_every_canary_has_the_least_likely_label_of_its_own_features(network, split, name):
    canary = make_canary(name, network, split, seed=3)
    assert canary.features.shape == (1, 3, 3)
    assert canary.features.dtype == np.float32
    assert canary.label == least_likely_label(network, canary.features)
    # A label that the model finds least likely surprises it more than chance would.
    assert canary.initial_loss > np.log(3)


@pytest.mark.parametrize("name", CANARY_NAMES)
def test_the_label_may_be_fixed_instead(network, split, name):
    for label in range(3):
        assert make_canary(name, network, split, label=label).label == label
    for label in (3, -1, 1.0):
        with pytest.raises(ValueError, match="canary_label must be an integer"):
            make_canary(name, network, split, label=label)


def test_least_likely_label_gives_at_least_the_loss_of_any_fixed_one(network, split):
    chosen = make_canary("blank", network, split).initial_loss
    fixed = [make_canary("blank", network, split, label=label).initial_loss for label in range(3)]
    assert chosen == pytest.approx(max(fixed))


def test_clipbkd_is_a_direction_the_records_hardly_use_at_their_mean_norm(network, split):
    canary = make_canary("clipbkd", network, split)
    flat = split.audited.features.reshape(40, -1).astype(np.float64)
    assert np.linalg.norm(canary.features) == pytest.approx(
        np.linalg.norm(flat, axis=1).mean(), rel=1e-5
    )
    direction = canary.features.reshape(-1) / np.linalg.norm(canary.features)
    centred = flat - flat.mean(axis=0)
    least = np.linalg.eigvalsh(centred.T @ centred)[0]
    assert np.square(centred @ direction).sum() == pytest.approx(least, rel=1e-3)


def test_g9_clipbkd_does_not_depend_on_the_order_of_records():
    """Fewer records than pixels, and pixels that are black in all of them: no last component is the
    only one.
    """
    rng = np.random.default_rng(0)
    for num_records in (20, 200):
        features = rng.random((num_records, 1, 6, 6), dtype=np.float32)
        features[:, :, 0] = 0.0
        records = LabelledDataset("made", features, rng.integers(0, 3, num_records), 3)
        network = build_model("logistic", (1, 6, 6), 3)
        canaries = [
            make_canary(
                "clipbkd", network, AuditSplit(records, records.take(order)), label=0
            ).features
            for order in (np.arange(num_records), *(rng.permutation(num_records) for _ in range(3)))
        ]
        assert len({canary.tobytes() for canary in canaries}) == 1
        # The unused direction nearest to equal entries: along the black pixels it is constant.
        flat = features.reshape(num_records, -1).astype(np.float64)
        centred = flat - flat.mean(axis=0)
        projector = np.eye(36) - np.linalg.pinv(centred) @ centred
        expected = projector @ np.ones(36)
        expected *= np.linalg.norm(flat, axis=1).mean() / np.linalg.norm(expected)
        expected *= np.sign(expected[np.argmax(np.abs(expected))])
        np.testing.assert_allclose(canaries[0].ravel(), expected, atol=1e-6)


def test_g9_clipbkd_where_equal_entries_are_in_use():
    """The records vary along equal entries alone, so the first coordinate's unused part
    is taken.
    """
    features = np.linspace(0.0, 1.0, 8, dtype=np.float32)[:, np.newaxis] * np.ones(4, np.float32)
    records = LabelledDataset("made", features, np.arange(8) % 2, 2)
    canary = make_canary(
        "clipbkd", build_model("logistic", (4,), 2), AuditSplit(records, records), label=0
    )
    np.testing.assert_allclose(canary.features / canary.features[0], [1, -1 / 3, -1 / 3, -1 / 3])


def test_mislabelled_canary_is_a_real_record_under_a_wrong_label(network, split):
    for label in (None, 1):
        canary = make_canary("mislabelled", network, split, label=label)
        source = np.flatnonzero(
            (split.pretraining.features == canary.features)
            .reshape(len(split.pretraining), -1)
            .all(axis=1)
        )
        assert source.size == 1
        assert split.pretraining.labels[source[0]] != canary.label


def test_random_canary_depends_on_its_seed_alone(network, split):
    first, again, other = (make_canary("random", network, split, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.features, again.features)
    assert not np.array_equal(first.features, other.features)


def test_random_canary_is_less_aligned_with_the_records_than_most(network, split):
    def gradient(features, label):
        network.zero_grad()
        torch.nn.functional.cross_entropy(
            network(torch.tensor(features[np.newaxis])), torch.tensor([int(label)])
        ).backward()
        parts = [weight.grad.flatten() for weight in network.parameters()]
        vector = torch.cat(parts).numpy().astype(np.float64)
        return vector / max(1.0, np.linalg.norm(vector))

    pull = sum(gradient(*record) for record in zip(*split.audited.records, strict=True))

    def alignment(features):
        own = gradient(features, least_likely_label(network, features))
        return abs(own @ pull) / np.linalg.norm(own)

    canary = make_canary("random", network, split, seed=5)
    rng = np.random.default_rng(0)
    others = [alignment(rng.random((1, 3, 3), dtype=np.float32)) for _ in range(50)]
    assert alignment(canary.features) <= np.quantile(others, 0.2)


def test_unknown_canary_lists_the_known_ones(network, split):
    with pytest.raises(
        ValueError, match=r"blank, clipbkd, mislabelled, random, PATH\.npy, got 'white'"
    ):
        make_canary("white", network, split)


def test_own_canary_from_a_file(tmp_path, network, split):
    path = str(tmp_path / "own.npy")
    own = np.linspace(0.0, 1.0, 9).reshape(1, 3, 3)
    np.save(path, own)
    canary = make_canary(path, network, split)
    np.testing.assert_array_equal(canary.features, own.astype(np.float32))
    assert canary.label == least_likely_label(network, canary.features)
    for bad, message in (
        (own[0], r"shape \(1, 3, 3\), got float64 of shape \(3, 3\)"),
        (own * np.nan, "must be finite"),
        (own * 1e300, "must be finite in float32"),
        (np.array([[["a"] * 3] * 3]), "must hold numbers"),
        (np.array([None] * 9).reshape(1, 3, 3), "without unpickling"),
    ):
        np.save(path, bad)
        with pytest.raises(ValueError, match=message):
            make_canary(path, network, split)
    np.save(path, own)
    with open(path, "r+b") as file:
        # A header that asks for nine terabytes.
        header = file.read(128).replace(b"(1, 3, 3), }", b"(999999999999,), }")[:127] + b"\n"
        file.seek(0)
        file.write(header)
    with pytest.raises(ValueError, match=r"own\.npy must hold 7999999999992 bytes"):
        make_canary(path, network, split)
    with open(path, "wb") as file:
        np.savez(file, own)
    with pytest.raises(
        ValueError, match=r"own\.npy cannot be read: the magic string is not correct"
    ):
        make_canary(path, network, split)
    with pytest.raises(FileNotFoundError):
        make_canary(str(tmp_path / "none.npy"), network, split)


def test_pretraining_learns_and_is_deterministic(dataset, split):
    config = PretrainingConfig(epochs=20, batch_size=8, seed=4)
    before = torch.random.get_rng_state()
    first, again = (pretrain_weights("mlp", split.pretraining, config) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    other = pretrain_weights("mlp", split.pretraining, dataclasses.replace(config, seed=5))
    assert first.keys() == again.keys() == other.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert any(not np.array_equal(first[name], other[name]) for name in first)
    assert accuracy(model_with_weights("mlp", dataset, first), split.audited) > 0.9
    untrained = pretrain_weights("mlp", split.pretraining, dataclasses.replace(config, epochs=0))
    assert accuracy(model_with_weights("mlp", dataset, untrained), split.audited) < 0.8


@pytest.mark.parametrize(
    "settings", [{"epochs": -1}, {"batch_size": 0}, {"learning_rate": 0.0}, {"seed": -1}]
)
def test_pretraining_settings_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        PretrainingConfig(**settings)


def test_weights_come_from_a_file_without_unpickling_code(tmp_path, dataset, network):
    path = tmp_path / "weights.pt"
    torch.save(network.state_dict(), path)
    weights = read_weights_file(path)
    same = model_with_weights("mlp", dataset, weights)
    inputs = torch.tensor(dataset.features[:5])
    assert torch.equal(same(inputs), network(inputs))
    with pytest.raises(ValueError, match="initial_weights must name the model's parameters"):
        model_with_weights("logistic", dataset, weights)
    torch.save(network, path)
    with pytest.raises(ValueError, match="not a file of plain weights"):
        read_weights_file(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="must map parameter names to tensors"):
        read_weights_file(path)
    for damaged in (b"no weights at all", b"hello world" * 9, b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"weights\.pt is not a file of plain weights"):
            read_weights_file(path)


@pytest.mark.parametrize(
    "weight",
    [torch.zeros((2, 2)).to_sparse(), torch.zeros(2, device="meta"), torch.zeros(2) * 1j],
    ids=["sparse", "meta", "complex"],
)
def test_weights_must_be_ordinary_floats(tmp_path, weight):
    torch.save({"0.weight": weight}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"dense tensors of floats, got '0\.weight'"):
        read_weights_file(tmp_path / "weights.pt")
