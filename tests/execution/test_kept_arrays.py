"""What takes minutes before an audit begins: it shows signs of life, is bounded, and is kept for
the next run.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvrenyi_plugin._internal import progress as _progress
from dvrenyi_plugin.audits.dp_sgd import experiment as dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.experiment import DpSgdExperiment, build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.initial_weights import PretrainingConfig, pretrain_weights
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig
from dvrenyi_plugin.data.labelled import LabelledDataset, load_dataset, split_for_audit
from dvrenyi_plugin.mechanisms import EnsembleDpSgdMechanism

CONFIG = DpSgdExperimentConfig(dataset="digits", model="logistic", num_records=10, steps=3)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was computed, in order."""
    calls: list[str] = []
    pretrain, train = dp_sgd_experiment.pretrain_weights, EnsembleDpSgdMechanism.train_models

    def noted_pretrain(*arguments: Any, **options: Any) -> Any:
        calls.append("weights")
        return pretrain(*arguments, **options)

    def noted_train(self: Any, dataset: Any, world: int, indices: Any) -> Any:
        calls.append("model")
        return train(self, dataset, world, indices)

    monkeypatch.setattr(dp_sgd_experiment, "pretrain_weights", noted_pretrain)
    monkeypatch.setattr(EnsembleDpSgdMechanism, "train_models", noted_train)
    return calls


def same(first: DpSgdExperiment, second: DpSgdExperiment) -> bool:
    weights, others = (one.mechanism.config.initial_weights for one in (first, second))
    return (
        list(weights) == list(others)
        and all(weights[name].tobytes() == others[name].tobytes() for name in weights)
        and first.noise_free_shift == second.noise_free_shift
        and first.settings == second.settings
    )


def test_f16_weights_and_shift_are_kept_and_used_again(tmp_path: Path, computed: list[str]) -> None:
    unkept = build_dp_sgd_experiment(CONFIG)
    first = build_dp_sgd_experiment(CONFIG, keep_in=tmp_path)
    assert computed == ["weights", "model", "model"] * 2
    computed.clear()
    again = build_dp_sgd_experiment(CONFIG, keep_in=tmp_path)
    assert computed == []
    assert same(unkept, first) and same(first, again)
    # Other models on the same initial weights.
    build_dp_sgd_experiment(dataclasses.replace(CONFIG, steps=4), keep_in=tmp_path)
    assert computed == ["model", "model"]
    computed.clear()
    build_dp_sgd_experiment(CONFIG, keep_in=tmp_path, resume=False)
    assert computed == ["weights", "model", "model"]
    computed.clear()
    build_dp_sgd_experiment(dataclasses.replace(CONFIG, seed=1), keep_in=tmp_path)
    assert computed == ["weights", "model", "model"]


def test_f16_a_damaged_kept_file_is_refused(tmp_path: Path) -> None:
    build_dp_sgd_experiment(CONFIG, keep_in=tmp_path)
    for path in tmp_path.iterdir():
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=f"{path.name} is damaged: .*delete it"):
            build_dp_sgd_experiment(CONFIG, keep_in=tmp_path)
        path.write_bytes(whole)


def test_f16_nothing_is_written_for_settings_that_do_not_fit(tmp_path: Path) -> None:
    for changes in ({"canary_label": 10}, {"device": "meta"}, {"learning_rate": 1e300}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            build_dp_sgd_experiment(dataclasses.replace(CONFIG, **changes), keep_in=tmp_path)
    assert os.listdir(tmp_path) == []


def make_records(count: int) -> LabelledDataset:
    rng = np.random.default_rng(0)
    features = rng.random((count, 1, 4, 4)).astype(np.float32)
    return LabelledDataset("random", features, rng.integers(0, 3, count), 3)


def test_f16_pretraining_is_capped_and_leaves_smaller_datasets_alone() -> None:
    records = make_records(50)
    config = PretrainingConfig(max_records=20)
    capped = pretrain_weights("logistic", records, config)
    first = pretrain_weights("logistic", records.take(slice(0, 20)), PretrainingConfig())
    assert all(capped[name].tobytes() == first[name].tobytes() for name in first)
    whole = pretrain_weights("logistic", records, PretrainingConfig())
    assert any(whole[name].tobytes() != first[name].tobytes() for name in first)
    # The default bites on full-size MNIST, Fashion-MNIST and CIFAR-10 only.
    mnist5k = split_for_audit(load_dataset("mnist5k"), 100).pretraining
    assert len(mnist5k) < PretrainingConfig.max_records == CONFIG.max_pretraining_records == 10_000
    experiment = build_dp_sgd_experiment(dataclasses.replace(CONFIG, max_pretraining_records=7))
    assert experiment.settings["pretraining_records"] == 7
    with pytest.raises(ValueError, match="max_records must be an integer >= 1, got 0"):
        PretrainingConfig(max_records=0)


def test_f16_progress_is_shown_once_it_takes_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_dp_sgd_experiment(CONFIG, show_progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_progress, "_SECONDS_BEFORE_IT_IS_SHOWN", 0.0)
    build_dp_sgd_experiment(CONFIG)
    assert capsys.readouterr().err == ""
    build_dp_sgd_experiment(CONFIG, show_progress=True)
    shown = capsys.readouterr().err
    assert "pretraining" in shown and "training without noise" in shown
    assert "\n" not in shown
