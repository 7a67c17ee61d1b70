"""Too few samples: the result and the report say how many it would take."""

import json
import math

import numpy as np
import pytest

from dvrenyi_plugin.binaries import audit_dpsgd, audit_shk
from dvrenyi_plugin.bounds.grid_pairs import discrete_pair
from dvrenyi_plugin.bounds.information_limit import closest_null, largest_rate
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP
from dvrenyi_plugin.interfaces import GaussianDp, PrivacyProperty, PureDp, RenyiDp
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

CLAIM = PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0))
TESTERS = {
    "sequential": lambda claim: SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(claim)
    ),
    "threshold": lambda claim: ThresholdAttackTester(ThresholdAttackTesterConfig(claim)),
    "dv": lambda claim: DvRenyiPropertyTester(DvRenyiPropertyTesterConfig(claim)),
}


def audit_far_apart(tester, count, failure_probability=0.025):
    samples = np.arange(count, dtype=float)
    return tester.audit(samples + 1e3, samples, failure_probability)


@pytest.mark.parametrize("name", TESTERS)
def test_messages_the_fewest_samples_are_just_enough(name):
    """Laws that share no point, which is the most a claim can be broken: one sample fewer never
    refutes."""
    tester = TESTERS[name](CLAIM)
    few = audit_far_apart(tester, 12)
    assert not few.refuted
    fewest = few.fewest_samples
    assert 12 < fewest < 50
    below = audit_far_apart(tester, int(fewest) - 1)
    assert (below.refuted, below.fewest_samples) == (False, fewest)
    enough = audit_far_apart(tester, int(fewest))
    assert enough.fewest_samples is None
    # Bets and thresholds are learned: a few samples more than at the very best are needed, not
    # many.
    assert audit_far_apart(tester, 2 * int(fewest)).refuted


@pytest.mark.parametrize("alpha", [1.01, 1.25, 2.0, 4.0, 16.0])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0])
def test_messages_the_largest_rate_is_that_of_laws_without_a_common_point(alpha, epsilon):
    rate = closest_null(discrete_pair([1.0, 0.0], [0.0, 1.0]), alpha, epsilon).rate
    assert rate <= largest_rate(alpha, epsilon) <= 1.003 * rate


@pytest.mark.parametrize("alpha", [1.0 + 1e-9, 2.0, 1e3, 1e12])
@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-6, 1.0, 700.0, 1e300])
@pytest.mark.filterwarnings("error")
def test_messages_the_largest_rate_is_a_number_at_any_claim(alpha, epsilon):
    assert 0.0 <= largest_rate(alpha, epsilon) <= 2.0 * math.log(2.0)


@pytest.mark.parametrize(
    "claim",
    [
        PrivacyProperty(pure_dp=PureDp(30.0)),
        PrivacyProperty(gaussian_dp=GaussianDp(9.0)),
        PrivacyProperty(renyi_dp=RenyiDp(64.0, 40.0)),
    ],
)
def test_messages_a_claim_that_no_number_refutes_says_so(claim):
    assert audit_far_apart(TESTERS["sequential"](claim), 12).fewest_samples == math.inf


def test_messages_reports_say_how_many_models_it_takes(tmp_path, capsys):
    flags = ("--dataset=digits", "--model=logistic", "--num_records=10", "--num_models=12")
    flags += ("--steps=4", "--num_workers=1", "--noise_scale=0.01")
    for name, more in (("fixed", ()), ("batches", ("--sequential", "--batch_models=6"))):
        out = tmp_path / name
        assert audit_dpsgd.main(["x", *flags, *more, f"--output_dir={out}"]) == 0
        least = {"fixed": 15, "batches": TRADE_OFF_WARM_UP + 5}[name]
        note = (
            "12 models per dataset are too few: whatever the mechanism does, they cannot refute"
            " this claim. At the failure probability 0.045 of this bound it takes at least"
            f" {least}."
        )
        assert note in (out / "report.md").read_text()
        assert note in json.loads((out / "report.json").read_text())["notes"]
        assert note in capsys.readouterr().out


def test_messages_reports_of_samplers_say_how_many_releases_it_takes(tmp_path, capsys):
    flags = ("--num_samples=12", "--cells=64", f"--output_dir={tmp_path}")
    assert audit_shk.main(["x", *flags]) == 0
    (note,) = json.loads((tmp_path / "report.json").read_text())["notes"]
    assert note.startswith("12 releases per dataset are too few")
    assert note in capsys.readouterr().out
    assert note in (tmp_path / "report.md").read_text()
