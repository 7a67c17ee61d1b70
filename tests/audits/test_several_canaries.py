"""Audits with several canaries: the claim for groups, the check of the datasets, and the report."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvrenyi_plugin.audits.dp_sgd.audit import audit_dp_sgd
from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdAuditConfig, DpSgdExperimentConfig
from dvrenyi_plugin.binaries import audit_dpsgd
from dvrenyi_plugin.data.neighbours import add_canary, check_neighbours
from dvrenyi_plugin.privacy.conversions import dp_sgd_renyi
from dvrenyi_plugin.privacy.dp_sgd_accounting import audited_claim

RECORDS = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([0, 1, 2])
CANARY = np.full(4, 9.0, np.float32)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_datasets_differ_in_exactly_that_many_copies(count):
    without, with_canary = add_canary(RECORDS, CANARY, 2, count)
    assert [len(part) for part in with_canary] == [3 + count, 3 + count]
    np.testing.assert_array_equal(with_canary[0][3:], np.tile(CANARY, (count, 1)))
    np.testing.assert_array_equal(with_canary[1][3:], np.full(count, 2))
    np.testing.assert_array_equal(with_canary[0][:3], without[0])
    check_neighbours(without, with_canary, num_canaries=count)
    for wrong in (count - 1, count + 1):
        with pytest.raises(ValueError, match=f"got {3 + count} and 3 records"):
            check_neighbours(without, with_canary, num_canaries=wrong)


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_a_number_of_canaries_is_a_positive_integer(count):
    with pytest.raises(ValueError, match="num_canaries"):
        add_canary(RECORDS, CANARY, 2, count)
    with pytest.raises(ValueError, match="num_canaries"):
        audited_claim(2.0, 10, mu=1.0, num_canaries=count)
    with pytest.raises(ValueError, match="num_canaries"):
        DpSgdAuditConfig(num_canaries=count)


def test_full_batch_groups_have_exactly_that_multiple_of_mu():
    one, four = (audited_claim(2.0, 100, mu=0.5, num_canaries=count) for count in (1, 4))
    assert one.mu == 0.5 and four.mu == 2.0
    assert one.renyi.epsilon == pytest.approx(0.25)  # alpha mu^2 / 2
    assert four.renyi.epsilon == pytest.approx(4.0)
    # The noise is that of the claim for one record.
    assert four.noise_multiplier == one.noise_multiplier == 20.0
    # Any count will do where nothing is converted.
    assert audited_claim(1.25, 100, mu=0.5, num_canaries=3).mu == 1.5


def test_poisson_groups_follow_by_the_conversion_at_a_higher_order():
    settings = {"num_steps": 7, "sample_rate": 0.1, "noise_multiplier": 1.5}
    group = audited_claim(3.0, **settings, num_canaries=4)
    assert group.mu is None and group.renyi.alpha == 3.0
    assert group.renyi.epsilon == pytest.approx(9.0 * dp_sgd_renyi(12.0, 7, 1.5, 0.1), rel=1e-12)
    with pytest.raises(ValueError, match="power of two with Poisson batches, got 3"):
        audited_claim(3.0, **settings, num_canaries=3)
    with pytest.raises(ValueError, match="alpha must be at least 2 for 2 canaries"):
        audited_claim(1.5, **settings, num_canaries=2)
    # One record needs no conversion, at any order.
    assert audited_claim(1.5, **settings).renyi.alpha == 1.5


@given(st.floats(2.0, 20.0), st.integers(0, 4), st.floats(0.1, 3.0))
def test_the_exact_claim_of_a_full_batch_group_is_never_above_the_converted_one(alpha, c, mu):
    exact = audited_claim(alpha, 100, mu=mu, num_canaries=2**c).renyi.epsilon
    converted = 3.0**c * dp_sgd_renyi(alpha * 2**c, 100, 10.0 / mu)
    assert exact <= converted * (1.0 + 1e-12)


def test_a_converted_claim_holds_for_the_mixture_that_a_group_makes():
    # One step, 2 records each drawn at rate q, noise s: N(K, s^2) with K binomial over N(0, s^2),
    # by quadrature.
    q, s, alpha = 0.3, 1.2, 2.5
    x = np.linspace(-15.0, 25.0, 40_001)
    log_ratio = np.logaddexp.reduce(
        [
            math.log(weight) + (2.0 * k * x - k * k) / (2.0 * s * s)
            for k, weight in enumerate(((1 - q) ** 2, 2 * q * (1 - q), q * q))
        ],
        axis=0,
    )
    base = np.exp(-(x**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
    exact = math.log(np.sum(base * np.exp(alpha * log_ratio)) * (x[1] - x[0])) / (alpha - 1.0)
    claim = audited_claim(alpha, 1, q, noise_multiplier=s, num_canaries=2).renyi.epsilon
    assert 0.0 < exact <= claim


def test_copies_shift_the_weights_by_as_many_clipping_norms():
    settings = {"dataset": "digits", "model": "mlp", "num_records": 5, "steps": 4}
    one, four = (
        build_dp_sgd_experiment(DpSgdExperimentConfig(**settings, num_canaries=count))
        for count in (1, 4)
    )
    assert one.settings["canary_initial_gradient_norm"] > 1.0
    assert four.noise_free_shift / one.noise_free_shift == pytest.approx(4.0, rel=0.05)
    assert four.claimed_mu == pytest.approx(4.0)
    curve, renyi = (claim.tester.privacy_property for claim in four.claims)
    assert curve.gaussian_dp.mu == pytest.approx(4.0)
    assert renyi.renyi_dp.epsilon == pytest.approx(16.0)
    assert one.notes == ()
    assert len(four.notes) == 1 and "differ in 4 records" in four.notes[0]


def test_an_audit_refuses_more_records_than_it_was_told_of():
    settings = {"dataset": "digits", "model": "logistic", "num_records": 5, "steps": 2}
    experiment = build_dp_sgd_experiment(DpSgdExperimentConfig(**settings, num_canaries=2))
    with pytest.raises(ValueError, match="exactly one record more"):
        audit_dp_sgd(
            experiment.mechanism,
            experiment.claims,
            experiment.pair,
            DpSgdAuditConfig(num_models=10),
        )


def test_a_broken_group_is_refuted_at_its_converted_claim_and_an_honest_one_is_not(tmp_path):
    common = ["audit_dpsgd", "--dataset=digits", "--model=mlp", "--num_records=5", "--steps=4"]
    common += ["--num_workers=1", "--num_models=60", "--num_canaries=2", "--mu=0.5"]
    reports = {}
    for name, scale in (("honest", 1.0), ("broken", 0.1)):
        folder = tmp_path / name
        flags = [*common, f"--noise_scale={scale}", f"--output_dir={folder}"]
        assert audit_dpsgd.main(flags) == 0
        reports[name] = json.loads((folder / "report.json").read_text())
        assert "what the claim for one record implies" in (folder / "report.md").read_text()
    for report in reports.values():
        assert report["claim"]["parameter"] == "mu"
        assert [claim["epsilon"] for claim in report["claims"]] == pytest.approx([1.0, 1.0])
        assert report["settings"]["num_canaries"] == 2
    # Two records at mu = 0.5 each leak as much as one at 1.
    assert reports["honest"]["noise_free_d_prime"] == pytest.approx(1.0, abs=0.25)
    assert reports["broken"]["refuted"] and not reports["honest"]["refuted"]
