"""Privacy properties and protocols: ours, and objects that only look like DP-Auditorium's."""

import dataclasses
import math

import numpy as np
import pytest

from dvrenyi_plugin import interfaces
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    BoundedRangeDp,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    TrainingConfig,
    ZeroConcentratedDp,
    as_privacy_property,
    check_num_samples,
    claim_level,
    default_order,
    read_claim,
    read_training_config,
    renyi_threshold,
)
from dvrenyi_plugin.privacy.bounded_range import renyi_of_range
from dvrenyi_plugin.privacy.divergences import renyi_pure_dp
from dvrenyi_plugin.testers.base import BoundResult
from dvrenyi_plugin.testers.threshold_attack_tester import (
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)


# Mutable dataclasses with DP-Auditorium's field names and nothing else in common with ours.
@dataclasses.dataclass
class ForeignPureDp:
    epsilon: float


@dataclasses.dataclass
class ForeignRenyiDp:
    alpha: float
    epsilon: float


@dataclasses.dataclass
class ForeignApproximateDp:
    epsilon: float
    delta: float


@dataclasses.dataclass
class ForeignPrivacyProperty:
    pure_dp: ForeignPureDp | None = None
    renyi_dp: ForeignRenyiDp | None = None
    approximate_dp: ForeignApproximateDp | None = None


@dataclasses.dataclass
class ForeignTrainingConfig:
    training_epochs: int
    batch_size: int
    optimizer_learning_rate: float
    model_output_coordinate_bound: float | None = None
    verbose: int = 0


OURS = [
    PureDp(0.5),
    RenyiDp(2.0, 0.5),
    ApproximateDp(1.0, 1e-5),
    GaussianDp(1.0),
    ZeroConcentratedDp(0.5),
    SubsampledGaussianDp(2.0, 0.1, 100),
    BoundedRangeDp(0.7),
]
FOREIGN = [
    (ForeignPrivacyProperty(pure_dp=ForeignPureDp(0.5)), PureDp(0.5)),
    (ForeignPrivacyProperty(renyi_dp=ForeignRenyiDp(2.0, 0.5)), RenyiDp(2.0, 0.5)),
    (
        ForeignPrivacyProperty(approximate_dp=ForeignApproximateDp(1.0, 1e-5)),
        ApproximateDp(1.0, 1e-5),
    ),
]


class TestClaims:
    @pytest.mark.parametrize("claim", OURS)
    def test_round_trip(self, claim):
        assert read_claim(as_privacy_property(claim)) == claim

    @pytest.mark.parametrize(("foreign", "claim"), FOREIGN)
    def test_foreign_property_is_read_by_its_fields_and_left_alone(self, foreign, claim):
        before = dataclasses.asdict(foreign)
        assert read_claim(foreign) == claim
        assert dataclasses.asdict(foreign) == before

    @pytest.mark.parametrize(("foreign", "claim"), FOREIGN)
    def test_tester_hands_back_the_very_object(self, foreign, claim):
        tester = ThresholdAttackTester(ThresholdAttackTesterConfig(privacy_property=foreign))
        assert tester.privacy_property is foreign
        rng = np.random.default_rng(0)
        bound = tester.estimate_lower_bound(
            rng.normal(3.0, 1.0, 500), rng.normal(0.0, 1.0, 500), 0.05
        )
        assert tester.reject_property(bound)
        assert not tester.reject_property(claim_level(claim))

    @pytest.mark.parametrize(
        "nothing", [None, 3, "renyi", object(), ForeignPrivacyProperty(), ForeignRenyiDp(2.0, 1.0)]
    )
    def test_no_property_inside(self, nothing):
        with pytest.raises(ValueError, match="privacy_property must hold exactly one of"):
            read_claim(nothing)

    def test_two_properties_inside(self):
        two = ForeignPrivacyProperty(ForeignPureDp(1.0), ForeignRenyiDp(2.0, 1.0))
        with pytest.raises(ValueError, match="exactly one"):
            read_claim(two)
        with pytest.raises(ValueError, match="pure_dp, renyi_dp"):
            PrivacyProperty(pure_dp=PureDp(1.0), renyi_dp=RenyiDp(2.0, 1.0))
        with pytest.raises(ValueError, match="got none"):
            PrivacyProperty()

    def test_foreign_values_are_checked_too(self):
        with pytest.raises(ValueError, match="alpha"):
            read_claim(ForeignPrivacyProperty(renyi_dp=ForeignRenyiDp(1.0, 0.5)))
        with pytest.raises(ValueError, match="epsilon"):
            read_claim(ForeignPrivacyProperty(pure_dp=ForeignPureDp(math.nan)))
        with pytest.raises(ValueError, match=r"renyi_dp must have \['alpha', 'epsilon'\]"):
            read_claim(ForeignPrivacyProperty(renyi_dp=ForeignPureDp(1.0)))

    @pytest.mark.parametrize(
        ("build", "name"),
        [
            (lambda: PureDp(-0.1), "epsilon"),
            (lambda: PureDp(math.inf), "epsilon"),
            (lambda: RenyiDp(1.0, 1.0), "alpha"),
            (lambda: RenyiDp(math.nan, 1.0), "alpha"),
            (lambda: RenyiDp(2.0, math.nan), "epsilon"),
            (lambda: ApproximateDp(1.0, 1.5), "delta"),
            (lambda: ApproximateDp(-1.0, 0.1), "epsilon"),
            (lambda: GaussianDp(-1.0), "mu"),
            (lambda: ZeroConcentratedDp(math.nan), "rho"),
        ],
    )
    def test_parameters_out_of_range(self, build, name):
        with pytest.raises(ValueError, match=f"{name} must be"):
            build()

    def test_epsilon_zero_is_a_legal_claim(self):
        assert PureDp(0.0).epsilon == 0.0
        assert RenyiDp(2.0, 0).epsilon == 0
        assert GaussianDp(0.0).mu == 0.0

    @pytest.mark.parametrize("claim", OURS)
    def test_frozen(self, claim):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(claim, dataclasses.fields(claim)[0].name, 3.0)

    def test_levels(self):
        assert [claim_level(claim) for claim in OURS] == [0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 0.7]


class TestRenyiThreshold:
    def test_what_each_claim_allows(self):
        assert renyi_threshold(RenyiDp(1.25, 0.7), 1.25) == 0.7
        assert renyi_threshold(PureDp(0.1), 2.0) == pytest.approx(0.0099586, rel=1e-5)
        assert renyi_threshold(GaussianDp(1.5), 2.0) == pytest.approx(2.25)
        assert renyi_threshold(ZeroConcentratedDp(0.3), 4.0) == pytest.approx(1.2)
        assert renyi_threshold(BoundedRangeDp(1.0), 2.0) == renyi_of_range(2.0, 1.0)
        # At order 2, one step allows log(1 + rate^2 (exp(1 / noise^2) - 1)) (Mironov et al. 2019).
        step = math.log1p(0.01 * math.expm1(0.25))
        subsampled = SubsampledGaussianDp(2.0, 0.1, 100)
        assert renyi_threshold(subsampled, 2.0) == pytest.approx(100 * step)

    def test_pure_threshold_is_tight_where_the_loose_one_is_twice_or_four_times_it(self):
        assert renyi_threshold(PureDp(0.1), 2.0) < 0.04 / 4.0
        assert renyi_threshold(PureDp(0.1), 2.0) == renyi_pure_dp(2.0, 0.1)

    def test_a_renyi_claim_speaks_of_its_own_order_only(self):
        with pytest.raises(ValueError, match=r"own order 2\.0, got 3"):
            renyi_threshold(RenyiDp(2.0, 1.0), 3.0)

    def test_no_renyi_bound_refutes_approximate_dp(self):
        with pytest.raises(ValueError, match="approximate_dp, which no Rényi bound can refute"):
            renyi_threshold(ApproximateDp(1.0, 1e-5), 2.0)

    @pytest.mark.parametrize("alpha", [1.0, math.nan, math.inf])
    def test_bad_order(self, alpha):
        with pytest.raises(ValueError, match="alpha"):
            renyi_threshold(GaussianDp(1.0), alpha)


class TestTrainingConfig:
    def test_foreign_config_is_copied_and_left_alone(self):
        foreign = ForeignTrainingConfig(10, 32, 1e-3, 2.0)
        before = dataclasses.asdict(foreign)
        assert read_training_config(foreign) == TrainingConfig(10, 32, 1e-3, 2.0)
        assert dataclasses.asdict(foreign) == before

    def test_fields_missing(self):
        with pytest.raises(ValueError, match=r"training_config must have the fields.*batch_size"):
            read_training_config(type("Partial", (), {"training_epochs": 3})())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("training_epochs", 0),
            ("training_epochs", 1.5),
            ("batch_size", 0),
            ("optimizer_learning_rate", 0.0),
            ("optimizer_learning_rate", math.nan),
            ("model_output_coordinate_bound", -1.0),
            ("verbose", -1),
        ],
    )
    def test_bad_values(self, name, value):
        with pytest.raises(ValueError, match=name):
            TrainingConfig(**{name: value})


RESULT_FIELDS = {
    "point_estimate": math.nan,
    "claimed_limit": 1.0,
    "refuted": False,
    "failure_probability": 0.05,
    "method": "test",
    "alpha": 2.0,
    "num_fit": (1, 1),
    "num_certify": (1, 1),
    "seed": 0,
}


class TestBoundResult:
    def test_nothing_certified_is_zero(self):
        assert BoundResult(lower_bound=0.0, **RESULT_FIELDS).lower_bound == 0.0
        for bad in (math.nan, -1e-9):
            with pytest.raises(ValueError, match="lower_bound must be >= 0 and not NaN"):
                BoundResult(lower_bound=bad, **RESULT_FIELDS)

    def test_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            BoundResult(lower_bound=0.0, **RESULT_FIELDS).lower_bound = 1.0


def test_num_samples():
    assert check_num_samples(3) == 3
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="num_samples"):
            check_num_samples(bad)


def test_everything_exported_exists():
    assert sorted(interfaces.__all__) == sorted(set(interfaces.__all__))
    for name in interfaces.__all__:
        assert hasattr(interfaces, name)


def test_default_order_is_the_claims_own_or_two():
    assert default_order(RenyiDp(1.25, 0.7)) == 1.25
    assert default_order(GaussianDp(1.0)) == default_order(PureDp(0.1)) == 2.0
