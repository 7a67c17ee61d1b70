"""What every tester does alike: on known pairs it keeps true claims and refutes false ones; it
compares bounds with the claim, leaves samples alone and refuses what is no sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tester_pairs import ORDER, PAIRS

from dvrenyi_plugin.interfaces import (
    GaussianDp,
    PrivacyProperty,
    RenyiDp,
    TrainingConfig,
    ZeroConcentratedDp,
)
from dvrenyi_plugin.testers import (
    TESTER_NAMES,
    DvRenyiPropertyTesterConfig,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTesterConfig,
    kind_of_tester,
    make,
)

CLAIM = PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.5))


def _first_column(samples):
    return np.clip(samples[:, 0], -3.0, 3.0)


_QUICK = {
    "sequential": {"warm_up": 4},
    "dv": {"training_config": TrainingConfig(training_epochs=1), "bound_method": "betting"},
    "likelihood_ratio": {"log_ratio": _first_column},
}
TESTERS = tuple(make(name, CLAIM, **_QUICK.get(name, {})) for name in TESTER_NAMES)
every_tester = pytest.mark.parametrize("tester", TESTERS, ids=lambda t: type(t).__name__)
NORMAL = np.random.default_rng(0).normal(size=16)


VALID = [name for name in TESTER_NAMES if kind_of_tester(name).valid_at_stated_level]
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)


def bounds_on(name, pair, claimed, seeds, n, m):
    known = {"log_ratio": pair.log_ratio} if name == "likelihood_ratio" else {}
    tester = make(name, PrivacyProperty(renyi_dp=RenyiDp(ORDER, claimed)), **known)
    return [
        tester.audit(*pair.draw(np.random.default_rng(seed), n, m), 0.05) for seed in range(seeds)
    ]


@pytest.mark.parametrize("name", VALID)
@every_pair
def test_a_claim_at_the_truth_is_kept(name, pair):
    found = bounds_on(name, pair, pair.divergence, 2 if name == "dv" else 10, 300, 200)
    # Of ten audits at most three are refuted, but for one run in a thousand.
    assert sum(result.refuted for result in found) <= (1 if name == "dv" else 3)
    assert all(0.0 <= result.lower_bound < math.inf for result in found)


# The theorem behind the known ratio needs laws farther apart: see its own tests.
@pytest.mark.parametrize("name", [name for name in TESTER_NAMES if name != "likelihood_ratio"])
@every_pair
def test_a_tenth_of_the_truth_is_refuted(name, pair):
    (result,) = bounds_on(name, pair, pair.divergence / 10.0, 1, 2_000, 2_000)
    assert result.refuted and result.lower_bound > pair.divergence / 10.0


@every_tester
def test_shapes_dtypes_and_lists_are_one_and_samples_are_left_alone(tester):
    rng = np.random.default_rng(1)
    first, second = (rng.normal(mean, 1.0, 200).astype(np.float32) for mean in (3.0, 0.0))
    kept = first.copy(), second.copy()
    expected = tester.audit(first, second, 0.05).lower_bound
    for one, other in (
        (first[:, np.newaxis], second),
        (first.tolist(), second.tolist()),
        (first.astype(np.float64), second.astype(np.float64)),
        (torch.from_numpy(first), torch.from_numpy(second)),
    ):
        assert tester.audit(one, other, 0.05).lower_bound == expected
    first.setflags(write=False)
    assert tester.audit(first, second[:120], 0.05).lower_bound >= 0.0
    assert np.array_equal(first, kept[0]) and np.array_equal(second, kept[1])


@every_tester
def test_constants_and_a_few_samples_certify_nothing(tester):
    assert tester.audit(np.ones(100), np.ones(100), 0.05).lower_bound == 0.0
    assert tester.audit(NORMAL[:8], NORMAL[8:], 0.05).refuted is False


@every_tester
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.zeros(0), np.zeros(20), "samples1 must have at least"),
        (np.zeros(20), np.zeros(1), "samples2 must have at least"),
        (np.zeros((20, 1)), np.zeros((20, 2)), r"columns.*\(20, 1\) and \(20, 2\)"),
        (np.zeros((20, 1, 1)), np.zeros(20), r"samples1 must have shape.*\(20, 1, 1\)"),
        (np.where(np.arange(10) < 5, 0.0, np.nan), np.zeros(20), r"samples1.*5 .*index 5"),
        (np.zeros(20), np.append(np.zeros(8), np.inf), r"samples2.*1 .*index 8"),
    ],
    ids=["empty", "one", "columns", "rank", "NaN", "infinite"],
)
def test_malformed_samples_are_named(tester, first, second, message):
    with pytest.raises(ValueError, match=message):
        tester.estimate_lower_bound(first, second, 0.05)


@every_tester
@pytest.mark.parametrize("failure_probability", [-1.0, 0.0, 1.0, math.nan, None])
def test_bad_failure_probabilities_are_named(tester, failure_probability):
    with pytest.raises(ValueError, match="failure_probability must be"):
        tester.audit(NORMAL, NORMAL, failure_probability)


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
    tester = make("sequential", claim, orders=np.array([1.25, 8.0]))
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
