"""Without TensorFlow Privacy its engine is there by name, refused in one line where it is built,
and in nobody's way.
"""

import sys

import numpy as np
import pytest

from dvrenyi_plugin import mechanisms
from dvrenyi_plugin.binaries import audit_dpsgd

HINT = (
    'TfPrivacyDpSgdMechanism needs TensorFlow Privacy: pip install ".[tensorflow]" in a checkout of'
    " dvrenyi_plugin"
)


@pytest.fixture(autouse=True)
def _absent(monkeypatch):
    for name in ("tensorflow", "tensorflow_privacy"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises ImportError
    for name in ("keras_network", "tf_privacy_training"):
        monkeypatch.delitem(sys.modules, f"dvrenyi_plugin.mechanisms.{name}", raising=False)


def test_f10_the_mechanism_is_there_and_names_the_extra_where_it_is_built():
    config = mechanisms.TfPrivacyDpSgdMechanismConfig(
        model="logistic",
        initial_weights=mechanisms.random_weights("logistic", (3,), 2),
        canary=(np.ones(3), 1),
        num_classes=2,
        noise_multiplier=1.0,
    )
    with pytest.raises(ImportError) as error:
        mechanisms.TfPrivacyDpSgdMechanism(config)
    assert str(error.value).startswith(HINT)
    assert "\n" not in str(error.value)


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
    message = capsys.readouterr().err
    assert message.startswith(f"audit_dpsgd: {HINT}") and message.count("\n") == 1
    assert not folder.exists()
