"""DP-Auditorium's protocols and property dataclasses: same names, same shape, no import of it.

An object of the real DP-Auditorium is accepted wherever one of these is, because nothing here tests
for a
class: a property is read by the names of its fields (`read_claim`), a tester, mechanism or
generator is anything that can be called the right way.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Protocol, TypeVar

from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import CheckedSettings, Count, Int, Positive
from dvrenyi_plugin._internal.validation import (
    check_int,
)
from dvrenyi_plugin.privacy.properties import (
    ApproximateDp,
    BoundedRangeDp,
    Claim,
    GaussianDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    as_privacy_property,
    claim_level,
    default_order,
    read_claim,
    renyi_threshold,
)

DatasetT = TypeVar("DatasetT")

NeighboringDatasets = tuple[DatasetT, DatasetT]


class Mechanism(Protocol):
    """Something to audit: a randomised function of a dataset."""

    def __call__(self, dataset: Any, num_samples: int) -> NDArray[Any]:
        """Returns `num_samples` independent outputs on `dataset`, shape (num_samples, k)."""


class DatasetGenerator(Protocol):
    """Proposes pairs of neighbouring datasets."""

    def __call__(self, divergence: float | None) -> NeighboringDatasets[Any]:
        """Returns the next pair, given the last trial's estimate (None before the first trial)."""


class PropertyTester(Protocol):
    """Tests one privacy property from two samples of a mechanism's outputs."""

    @property
    def privacy_property(self) -> Any:
        """The property under test, as it was given."""

    def estimate_lower_bound(
        self, samples1: NDArray[Any], samples2: NDArray[Any], failure_probability: float
    ) -> float:
        """Returns a one-sided lower confidence bound on the divergence of law 1 from law 2.

        It exceeds the true divergence with probability at most `failure_probability`.
        """

    def reject_property(self, lower_bound: float) -> bool:
        """Returns True when `lower_bound` is more than the property allows."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig(CheckedSettings):
    """How a tester trains its critic. Field names are DP-Auditorium's.

    Attributes:
      training_epochs: passes over the fitting samples, >= 1.
      batch_size: samples a minibatch and side, >= 1.
      optimizer_learning_rate: Adam's step size, > 0.
      model_output_coordinate_bound: largest absolute critic value, > 0; None lets the tester
        choose.
      verbose: 0 for silence.
    """

    training_epochs: Count = 200
    batch_size: Count = 400
    optimizer_learning_rate: Positive = 1e-3
    model_output_coordinate_bound: Positive | None = None
    verbose: Annotated[int, Int(at_least=0)] = 0


def read_training_config(config: Any) -> TrainingConfig:
    """Returns our validated copy of a training config, ours or DP-Auditorium's, leaving it
    unchanged.
    """
    try:
        values = {f.name: getattr(config, f.name) for f in dataclasses.fields(TrainingConfig)}
    except AttributeError as error:
        raise ValueError(
            f"training_config must have the fields of TrainingConfig, got {config!r}: {error}"
        ) from None
    return TrainingConfig(**values)


def check_num_samples(num_samples: Any) -> int:
    """Returns the number of outputs a mechanism is asked for, >= 1."""
    return check_int("num_samples", num_samples, at_least=1)


__all__ = [
    "ApproximateDp",
    "BoundedRangeDp",
    "Claim",
    "DatasetGenerator",
    "GaussianDp",
    "Mechanism",
    "NeighboringDatasets",
    "PrivacyProperty",
    "PropertyTester",
    "PureDp",
    "RenyiDp",
    "SubsampledGaussianDp",
    "TrainingConfig",
    "ZeroConcentratedDp",
    "as_privacy_property",
    "check_num_samples",
    "claim_level",
    "default_order",
    "read_claim",
    "read_training_config",
    "renyi_threshold",
]
