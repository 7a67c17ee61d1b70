"""A few extreme calls of every public function of these rooms; benchmarks/fuzz_public_functions.py
makes many more.
"""

from __future__ import annotations

import math
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
from fuzz_calls import run_case
from fuzz_rooms import ROOMS

from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig, ModelTrainingConfig
from dvrenyi_plugin.audits.planner import plan_refutation
from dvrenyi_plugin.audits.samplers.settings import ShkAuditConfig, ShkExperimentConfig
from dvrenyi_plugin.audits.settings import AuditPlanConfig
from dvrenyi_plugin.bounds.grid_pairs import discrete_pair, gaussian_pair
from dvrenyi_plugin.bounds.information_limit import closest_null
from dvrenyi_plugin.bounds.trade_off_eprocess import TradeOffEProcess
from dvrenyi_plugin.comparison.settings import ComparisonConfig
from dvrenyi_plugin.critics.donsker_varadhan import donsker_varadhan_value
from dvrenyi_plugin.flows.grid import Axis, Grid
from dvrenyi_plugin.flows.grid_flow import FlowConfig
from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.flows.particles.kernel_density import KernelDensity
from dvrenyi_plugin.generators.dataset_generators import (
    CanaryDatasetGenerator,
    ReplaceOneDatasetGenerator,
)
from dvrenyi_plugin.mechanisms import NoisyMaxMechanism, NoisyMaxMechanismConfig
from dvrenyi_plugin.mechanisms.dp_sgd.config import claimed_properties
from dvrenyi_plugin.mechanisms.exponential.losses import LogisticLoss, MeanLoss
from dvrenyi_plugin.mechanisms.training import TrainingMechanismConfig
from dvrenyi_plugin.privacy.conversions import dp_sgd_renyi, gaussian_dp_epsilon
from dvrenyi_plugin.privacy.trade_off_families import GaussianFamily

SEED = 5
# Programs take a second a call: benchmarks/fuzz_public_functions.py runs them.
CASES = {
    "numbers": 6,
    "mechanisms": 15,
    "testers": 15,
    "training": 100,
    "planning": 50,
    "flows": 12,
}
CASES |= {"samplers": 12, "audits": 30}


@pytest.mark.parametrize(
    "room", [room for room in ROOMS if room.name in CASES], ids=lambda r: r.name
)
def test_f7_every_public_function_answers_or_refuses(room):
    failures = []
    for subject in room.subjects():
        for case in range(CASES[room.name]):
            # A function whose parameters have no examples raises here: add them, or leave it out
            # with a reason.
            failure = run_case(subject, case, SEED, room.all_examples, room.sizes, 60.0)
            failures += [] if failure is None else [failure.line(SEED)]
    assert not failures, "\n".join(failures)


GRID = Grid((Axis(-1.0, 1.0, 8, "periodic"),))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: AuditPlanConfig(1.0, 2.0, alphas=2.0), "alphas must be a tuple of finite numbers"),
        (lambda: AuditPlanConfig(1.0, 2.0, num_models=200), "num_models must be a tuple"),
        (
            lambda: AuditPlanConfig(1.0, 2.0, sequential=math.nan),
            "sequential must be True or False",
        ),
        (lambda: AuditPlanConfig(1.0, 1e90), "true_mu must be"),
        (lambda: DpSgdExperimentConfig(data_dir=math.nan), "data_dir must be text"),
        (lambda: DpSgdExperimentConfig(dataset=np.ones(2)), "dataset must be text"),
        (lambda: gaussian_pair(1e90), r"mu\^2 \* largest_alpha must be"),
        (
            lambda: plan_refutation(gaussian_pair(1.0), 2.0, 0.1, 0.05, known_log_ratio="no"),
            "known_log_ratio must be True or False, got 'no'",
        ),
        (lambda: ShkAuditConfig(alphas=(1.25, math.nan)), "alphas must be"),
        (lambda: ShkAuditConfig(alphas=([2.0],)), "alphas must be"),
        (lambda: ShkExperimentConfig(cells=math.nan), "cells must be an integer"),
        (lambda: ShkExperimentConfig(pair=np.array(2)), "pair must be one of"),
        (
            lambda: ComparisonConfig(output_dir="x", testers=1.0),
            "testers must be a tuple of values, each text",
        ),
        (lambda: ComparisonConfig(output_dir=np.ones(2)), "output_dir must be text"),
        (
            lambda: ModelTrainingConfig(show_progress=math.nan),
            "show_progress must be True or False",
        ),
        (lambda: ReplaceOneDatasetGenerator(np.zeros(3), 1.0), "replacements must be a tuple"),
        (lambda: CanaryDatasetGenerator(np.zeros(3), ["a"]), "a record must hold values"),
        (lambda: FlowConfig(max_jump=np.ones(2)), "max_jump must be"),
        (lambda: MeanLoss(num_records=2)([[math.inf]], [0.5]), "points must be finite"),
        (lambda: MeanLoss(num_records=2)(np.zeros((3, 2)), [0.5]), "points must have 1 columns"),
        (lambda: LogisticLoss(num_records=2)(None, np.zeros((2, 3))), "points must hold floats"),
        (
            lambda: ParticleDomain("box", (0.0,), (1.0,)).confine(np.array([[math.inf]])),
            "points must",
        ),
        (
            lambda: KernelDensity(ParticleDomain("box", (0.0,), (1.0,)), (0.1,)).log_density("x"),
            "particles must hold floats",
        ),
        (
            lambda: GRID.draw(np.zeros(5), 2, np.random.default_rng(0)),
            "log_masses must have shape",
        ),
        (
            lambda: TrainingMechanismConfig(
                train=np.sum, observe=np.sum, claimed_privacy=np.array(1j)
            ),
            "array",
        ),
    ],
)
def test_f7_odd_values_are_refused_by_name(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def test_f7_values_at_the_edge_of_floats():
    assert gaussian_dp_epsilon(1e50, 1.0 - 1e-12) == pytest.approx(5e99)
    assert dp_sgd_renyi(2.0, 10, 1e-310) == math.inf
    pair = gaussian_pair(1.0)
    assert closest_null(pair, 1.001, 5e-324).rate == closest_null(pair, 1.001, 0.0).rate > 0.2
    assert closest_null(pair, 1.001, 1e-30).rate == pytest.approx(
        closest_null(pair, 1.001, 0.0).rate
    )
    with pytest.raises((ValueError, TypeError), match="num_steps must be an integer"):
        claimed_properties("x", 1.0, 0.01)
    mechanism = NoisyMaxMechanism(
        NoisyMaxMechanismConfig(num_candidates=2, noise="laplace", noise_scale=2.4e-110)
    )
    far, near = np.array([[6e307, 2e307], [8e307, 8e307]]), np.array([[0.05, 0.1], [0.9, 0.2]])
    assert mechanism.exact_renyi_divergence(far, near, 2.0) >= 0.0
    unbounded = discrete_pair([0.5, 0.5], [1.0, 0.0])
    assert closest_null(unbounded, 1.25, sys.float_info.max).rate == 0.0
    with pytest.raises(ValueError, match="critic_q must hold"):
        donsker_varadhan_value(["x"], [1.0], 2.0)
    assert donsker_varadhan_value([0.0, 0.0], [0.0], 2.0) == 0.0


def test_f7_an_endless_pause_between_fits_is_one():
    process = TradeOffEProcess(
        GaussianFamily(), failure_probability=0.05, warm_up=10, refit_ratio=sys.float_info.max
    )
    rng = np.random.default_rng(0)
    process.update(rng.normal(2.0, 1.0, (60, 1)), rng.normal(0.0, 1.0, (60, 1)))
    assert process.num_pairs == 60
