"""A report never waits for a picture."""

import json
import os
import warnings

import numpy as np
import pytest
import torch

from dvrenyi_plugin.audits.samplers import files as sampler_files
from dvrenyi_plugin.audits.training import files as training_files
from dvrenyi_plugin.binaries import audit_dpsgd, audit_shk
from dvrenyi_plugin.mechanisms.dp_sgd.networks import build_model
from dvrenyi_plugin.reports import files as report_files
from dvrenyi_plugin.reports.figures import new_figure
from dvrenyi_plugin.reports.pictures import Picture, draw_pictures

TINY = ("--dataset=digits", "--model=logistic", "--num_records=10", "--num_models=60", "--steps=4")


def fail(*_args, **_kwargs):
    raise RuntimeError("no <ink> left")


def test_f5_a_picture_that_fails_leaves_a_line_and_no_file(tmp_path):
    (tmp_path / "bad.png").write_text("of an earlier result")

    def overflows():
        figure, (axis,) = new_figure(1, 2.0)
        axis.plot(np.array([1e300]) * 1e300, [0.0])
        return figure

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gallery = draw_pictures(
            [Picture("bad.png", "Bad", fail), Picture("good.png", "Good", overflows)], str(tmp_path)
        )
    assert os.listdir(tmp_path) == ["good.png"]
    assert [picture.name for picture in gallery.drawn] == ["good.png"]
    assert gallery.drawn[0].png == (tmp_path / "good.png").read_bytes()
    assert gallery.undrawn == {"bad.png": "RuntimeError: no <ink> left"}


def test_f5_losses_near_the_end_of_float32_are_audited_to_a_report(tmp_path, capsys):
    weights = build_model("logistic", (1, 8, 8), 10).state_dict()
    weights = {
        name: torch.full_like(value, 1e37) * torch.randn_like(value)
        for name, value in weights.items()
    }
    torch.save(weights, tmp_path / "weights.pt")
    out = tmp_path / "out"
    flags = (f"--initial_weights={tmp_path / 'weights.pt'}", f"--output_dir={out}")
    status = audit_dpsgd.main(["audit_dpsgd", *TINY, "--num_workers=1", "--quiet", *flags])
    assert status == 0, capsys.readouterr().err
    assert json.loads((out / "report.json").read_text())["refuted"] is False
    assert "not refuted" in (out / "report.md").read_text()


def test_f5_no_picture_decides_on_the_report_of_dp_sgd(tmp_path, monkeypatch):
    monkeypatch.setattr(training_files, "plot_losses", fail)
    for plot in ("plot_bound", "plot_evidence"):
        monkeypatch.setattr(report_files, plot, fail)
    flags = ("--num_workers=1", "--noise_scale=0.05", "--sequential", f"--output_dir={tmp_path}")
    assert audit_dpsgd.main(["audit_dpsgd", *TINY, *flags, "--fail_on_violation"]) == 2
    for report in ("report.md", "report.html"):
        text = (tmp_path / report).read_text()
        for name in ("losses.png", "bound.png", "evidence.png"):
            assert f"{name} could not be drawn: RuntimeError: no &lt;ink&gt; left." in text
            assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("module", "plot", "undrawn"),
    [
        (report_files, "plot_bound", 1),
        (sampler_files, "plot_densities", 1),
        (sampler_files, "flow_curves", 3),
    ],
)
def test_f5_no_picture_decides_on_the_report_of_a_sampler(
    module, plot, undrawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, plot, fail)
    flags = ("--num_samples=200", "--tester=threshold", "--cells=64", f"--output_dir={tmp_path}")
    assert audit_shk.main(["audit_shk", *flags]) == 0
    report = (tmp_path / "report.md").read_text()
    assert report.count("could not be drawn") == undrawn
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".png")]) == 4 - undrawn
