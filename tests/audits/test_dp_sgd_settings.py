"""Settings of the DP-SGD experiment by which the published protocols differ: each reaches what it
is for.
"""

import numpy as np
import pytest

from dvrenyi_plugin.audits import DpSgdExperimentConfig, build_dp_sgd_experiment
from dvrenyi_plugin.binaries import audit_dpsgd

TINY = {"dataset": "digits", "model": "mlp", "num_records": 4, "steps": 3, "learning_rate": 1e-3}


@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 10.0])
def test_g10_the_clipping_norm_changes_no_claim_and_means_the_same_in_every_engine(clip_norm):
    usual = build_dp_sgd_experiment(DpSgdExperimentConfig(**TINY))
    built = [
        build_dp_sgd_experiment(DpSgdExperimentConfig(**TINY, clip_norm=clip_norm, engine=engine))
        for engine in ("ensemble", "opacus")
    ]
    for experiment in built:
        for claim, usual_claim in zip(experiment.claims, usual.claims, strict=True):
            assert claim.tester.privacy_property == usual_claim.tester.privacy_property
        assert experiment.claimed_mu == usual.claimed_mu == 1.0
        assert experiment.mechanism.claimed_privacy == usual.mechanism.claimed_privacy
        assert experiment.settings["clip_norm"] == clip_norm
        noise = experiment.mechanism.config.noise_std(0)
        assert noise == pytest.approx(clip_norm * usual.mechanism.config.noise_std(0))
        short = experiment.canary.initial_gradient_norm < clip_norm
        assert any("below the clipping norm" in note for note in experiment.notes) == short
    assert built[0].noise_free_shift == pytest.approx(built[1].noise_free_shift, rel=1e-3)
    if clip_norm < 1.0:  # clipped in both, so the weights move by a tenth
        assert built[0].noise_free_shift == pytest.approx(0.1 * usual.noise_free_shift, rel=0.05)


def test_g10_pretraining_and_critic_are_settings():
    config = DpSgdExperimentConfig(
        **TINY, tester="dv", pretraining_epochs=0, critic_widths=(7,), ema_rate=0.5, num_critics=2
    )
    experiment = build_dp_sgd_experiment(config)
    assert experiment.settings["pretraining_epochs"] == 0
    (claim,) = experiment.claims
    assert claim.tester._estimator.config.hidden_sizes == (7,)
    assert claim.tester._estimator.config.ema_rate == 0.5
    assert len(claim.tester._further_estimators) == 1
    random = build_dp_sgd_experiment(DpSgdExperimentConfig(**TINY, initial_weights="random"))
    for name, value in random.mechanism.config.initial_weights.items():
        np.testing.assert_array_equal(value, experiment.mechanism.config.initial_weights[name])
    moved = []
    for rate in (1e-6, 0.5):
        config = DpSgdExperimentConfig(**TINY, pretraining_epochs=1, pretraining_learning_rate=rate)
        weights = build_dp_sgd_experiment(config).mechanism.config.initial_weights
        start = random.mechanism.config.initial_weights
        moved.append(max(float(np.abs(weights[name] - start[name]).max()) for name in start))
    assert moved[0] < 1e-3 < 0.1 < moved[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip_norm", 0.0),
        ("pretraining_epochs", -1),
        ("pretraining_learning_rate", 0.0),
        ("critic_widths", ()),
        ("ema_rate", 1.0),
        ("num_critics", 0),
    ],
)
def test_g10_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=name):
        DpSgdExperimentConfig(**{name: value})


def test_g10_the_command_has_them_all(tmp_path, capsys):
    flags = [
        "--clip_norm=0",
        "--pretraining_epochs=-1",
        "--critic_widths=a",
        "--ema_rate=2",
        "--num_critics=0",
    ]
    for flag in (*flags, "--pretraining_learning_rate=0"):
        assert audit_dpsgd.main(["audit_dpsgd", flag, f"--output_dir={tmp_path / 'out'}"]) == 1
        assert flag[2:].split("=")[0] in capsys.readouterr().err
