"""What every tester does alike: comparing bounds with the claim, and refusing what is no sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dvrenyi_plugin.interfaces import (
    GaussianDp,
    PrivacyProperty,
    RenyiDp,
    TrainingConfig,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    LikelihoodRatioTester,
    LikelihoodRatioTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

CLAIM = PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.5))


def _first_column(samples):
    return np.clip(samples[:, 0], -3.0, 3.0)


TESTERS = (
    SequentialRenyiPropertyTester(SequentialRenyiPropertyTesterConfig(CLAIM, warm_up=4)),
    DvRenyiPropertyTester(
        DvRenyiPropertyTesterConfig(
            CLAIM, TrainingConfig(training_epochs=1), bound_method="betting"
        )
    ),
    ThresholdAttackTester(ThresholdAttackTesterConfig(CLAIM)),
    GdpBaselineTester(GdpBaselineTesterConfig(CLAIM)),
    LikelihoodRatioTester(LikelihoodRatioTesterConfig(CLAIM, log_ratio=_first_column)),
)
every_tester = pytest.mark.parametrize("tester", TESTERS, ids=lambda t: type(t).__name__)
NORMAL = np.random.default_rng(0).normal(size=16)


@every_tester
def test_property_is_rejected_by_more_than_the_claim_only(tester):
    assert tester.privacy_property is CLAIM
    assert tester.reject_property(0.5) is False
    assert tester.reject_property(np.float64(0.5000001)) is True
    assert tester.reject_property(math.inf) is True


@every_tester
@pytest.mark.parametrize(
    "bound", [math.nan, -math.inf, None, "1", True, 1j, [1.0], np.array([0.1, 0.9]), torch.ones(2)]
)
def test_what_is_no_bound_is_neither_kept_nor_refuted(tester, bound):
    with pytest.raises(ValueError, match="lower_bound"):
        tester.reject_property(bound)


@every_tester
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize(
    "samples",
    [
        np.ma.masked_array(np.ones(16), [True] + [False] * 15),
        np.array(list(NORMAL), dtype=object),
        NORMAL + 1j,
        NORMAL > 0.0,
        [str(value) for value in NORMAL],
        [[1.0], [1.0, 2.0]] * 8,
        [10**400] * 16,
        torch.ones(16, requires_grad=True),
        torch.ones(16, dtype=torch.bfloat16),
        None,
    ],
    ids=lambda samples: type(samples).__name__,
)
def test_what_is_no_sample_is_named(tester, position, samples):
    pair = [NORMAL, NORMAL]
    pair[position] = samples
    with pytest.raises(ValueError, match=f"samples{position + 1} must"):
        tester.audit(*pair, 0.05)


@every_tester
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "samples",
    [
        np.where(NORMAL > 0.0, 1.7e308, -1.7e308),
        np.r_[NORMAL[:14], 1.7e308, -1.7e308],
        np.r_[np.full(15, 1.7e308), -1.7e308],
        NORMAL * 1e-320,
    ],
    ids=["all huge", "two huge", "huge constant", "denormal"],
)
def test_samples_at_the_ends_of_the_floats(tester, samples):
    for pair in ((NORMAL, samples), (samples, NORMAL), (samples, samples)):
        assert tester.audit(*pair, 0.05).lower_bound >= 0.0


@every_tester
@pytest.mark.parametrize("failure_probability", [1e-99, 1.0 - 1e-16])
def test_failure_probabilities_at_the_ends(tester, failure_probability):
    assert tester.audit(NORMAL, -NORMAL, failure_probability).lower_bound >= 0.0
    with pytest.raises(ValueError, match="failure_probability must be"):
        tester.audit(NORMAL, -NORMAL, 1e-150)  # scipy's inverse fails there


@pytest.mark.parametrize("orders", [0, 2.0, None, True, "23", b"23", np.array(2.0)])
@pytest.mark.parametrize(
    "config", [SequentialRenyiPropertyTesterConfig, ThresholdAttackTesterConfig]
)
def test_orders_that_are_no_sequence_are_named(config, orders):
    with pytest.raises(ValueError, match="orders must be"):
        config(PrivacyProperty(zero_concentrated_dp=ZeroConcentratedDp(0.1)), orders=orders)


def test_several_orders_have_no_single_limit():
    claim = PrivacyProperty(gaussian_dp=GaussianDp(1.0))
    tester = SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(claim, orders=np.array([1.25, 8.0]))
    )
    # A bound of 1 breaks the claim at order 1.25 and is far below what it allows at order 8.
    with pytest.raises(ValueError, match="orders must hold one order for reject_property"):
        tester.reject_property(1.0)
    with pytest.raises(ValueError, match="orders must hold one order for start"):
        tester.start(0.05)


@pytest.mark.parametrize(
    "claim",
    [{"gaussian_dp": GaussianDp(1e200)}, {"zero_concentrated_dp": ZeroConcentratedDp(1e308)}],
)
@pytest.mark.parametrize(
    "config", [SequentialRenyiPropertyTesterConfig, DvRenyiPropertyTesterConfig]
)
def test_claims_beyond_the_floats_are_refused(config, claim):
    with pytest.raises(ValueError, match="privacy_property must allow less than"):
        config(PrivacyProperty(**claim))
