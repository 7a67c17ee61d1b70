"""Without TensorFlow Privacy its engine is named, refused in one line, and in nobody's way."""

import sys

import pytest

from dvrenyi_plugin import mechanisms
from dvrenyi_plugin.binaries import audit_dpsgd

HINT = "TfPrivacyDpSgdMechanism needs TensorFlow Privacy: pip install dvrenyi_plugin[tensorflow]"


@pytest.fixture(autouse=True)
def _absent(monkeypatch):
    for name in ("tensorflow", "tensorflow_privacy"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises ImportError
    monkeypatch.delitem(
        sys.modules, "dvrenyi_plugin.mechanisms.tf_privacy_dp_sgd_mechanism", raising=False
    )


def test_the_mechanism_names_the_extra():
    assert "TfPrivacyDpSgdMechanism" in mechanisms.__all__
    with pytest.raises(ImportError) as error:
        _ = mechanisms.TfPrivacyDpSgdMechanism
    assert str(error.value) == HINT


def test_the_program_says_so_in_one_line_and_writes_nothing(tmp_path, capsys):
    folder = tmp_path / "report"
    status = audit_dpsgd.main(
        [
            "audit_dpsgd",
            "--engine=tf_privacy",
            "--dataset=digits",
            "--model=logistic",
            "--num_records=10",
            f"--output_dir={folder}",
        ]
    )
    assert status == 1
    assert capsys.readouterr().err == f"audit_dpsgd: {HINT}\n"
    assert not folder.exists()
