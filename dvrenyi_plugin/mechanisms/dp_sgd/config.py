"""What a DP-SGD run is, whichever engine trains it: settings, claim, random streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Int,
    NotNegative,
    OneOf,
    Positive,
    Real,
    Seed,
)
from dvrenyi_plugin._internal.validation import (
    check_int,
    check_labels,
    check_order,
    check_real,
)
from dvrenyi_plugin.interfaces import (
    GaussianDp,
    PrivacyProperty,
    RenyiDp,
    SubsampledGaussianDp,
    as_privacy_property,
)
from dvrenyi_plugin.mechanisms.dp_sgd.names import TRAINING_DEFECTS
from dvrenyi_plugin.privacy.conversions import dp_sgd_mu, dp_sgd_renyi

OBSERVATIONS = ("loss", "logits", "loss_and_logits", "weights", "white_box")
ACCOUNTING_ORDERS = (1.25, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DpSgdConfig(CheckedSettings):
    """A DP-SGD run with a canary to observe.

    One step takes every record (or a Poisson sample of them), clips each record's gradient of the
    cross-entropy to `clip_norm` over all parameters together, adds them up, adds Gaussian noise to
    every coordinate once, divides by `gradient_denominator`, and moves against the result by
    `learning_rate`.

    Attributes:
      model: a name known to `build_model`, or a function without arguments that returns a
        torch.nn.Sequential.
      initial_weights: parameter name -> array, the start of every run. The claim allows any fixed
        value that does not depend on the audited records.
      canary: (features, label): the record whose loss is observed. Its features' shape is the input
        shape.
      num_classes: outputs of the model, >= 2.
      num_steps: logical steps, >= 0.
      noise_multiplier: claimed standard deviation of the noise over clip_norm, > 0.
      learning_rate: > 0.
      clip_norm: L2 norm a record's gradient is clipped to, > 0.
      gradient_denominator: public number the noisy sum is divided by, > 0; never the number of
        records.
      sample_rate: 1.0 for full batches, else the probability with which a record joins a batch, in
        (0, 1]. An empty batch is a step of noise alone.
      noise_scale: multiplies the noise that is really added and leaves the claim alone, >= 0.
      defect: a deliberate breakage for audits: "none", "no_clipping", "noise_every_fourth_step"
        (three of four steps add none), or "mean_by_private_count" (divides by the batch's number of
        records).
      observe: "loss", the canary's cross-entropy under the trained model; "logits", its logits;
        "loss_and_logits", both, the loss first; "weights", all trained parameters, flattened and
        joined in the order of `initial_weights`; or "white_box", the canary's loss linearised at
        the initial weights, see `linearised_losses`.
      seed: where all randomness comes from, >= 0.
    """

    model: str | Callable[[], Any]
    initial_weights: Mapping[str, NDArray[Any]]
    canary: tuple[Any, int]
    noise_multiplier: Positive
    num_steps: Annotated[int, Int(at_least=0)] = 100
    num_classes: Annotated[int, Int(at_least=2)] = 10
    learning_rate: Positive = 4.0 / 30_000.0
    clip_norm: Positive = 1.0
    gradient_denominator: Positive = 1.0
    sample_rate: Annotated[float, Real(above=0.0, at_most=1.0)] = 1.0
    noise_scale: NotNegative = 1.0
    defect: Annotated[str, OneOf(TRAINING_DEFECTS)] = "none"
    observe: Annotated[str, OneOf(OBSERVATIONS)] = "loss"
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, str) and not callable(self.model):
            raise ValueError(
                f"model must be a name or a function without arguments, got {self.model!r}"
            )
        # Training is in float32, which holds numbers up to 3e38, and noise is many standard
        # deviations at times.
        check_real(
            "noise_scale * noise_multiplier * clip_norm",
            self.noise_scale * self.noise_multiplier * self.clip_norm,
            at_most=1e30,
        )
        check_real(
            "learning_rate / gradient_denominator",
            self.learning_rate / self.gradient_denominator,
            at_most=1e38,
        )
        object.__setattr__(self, "initial_weights", _read_only_weights(self.initial_weights))
        object.__setattr__(self, "canary", _checked_canary(self.canary, self.num_classes))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record's features."""
        return tuple(self.canary[0].shape)

    @property
    def observation_width(self) -> int:
        """Numbers observed per trained model."""
        match self.observe:
            case "weights":
                return sum(np.size(weight) for weight in self.initial_weights.values())
            case "logits":
                return self.num_classes
            case "loss_and_logits":
                return 1 + self.num_classes
            case _:
                return 1

    @property
    def observes_weights(self) -> bool:
        """True when an engine must hand over the trained parameters, not the canary's logits."""
        return self.observe in ("weights", "white_box")

    @property
    def effective_clip_norm(self) -> float:
        """The clipping that is really done: infinite when the defect removes it."""
        return float("inf") if self.defect == "no_clipping" else self.clip_norm

    def noise_std(self, step: int) -> float:
        """Returns the standard deviation of the noise that step `step` (from 0) really adds to the
        sum.
        """
        if self.defect == "noise_every_fourth_step" and step % 4 != 0:
            return 0.0
        return self.noise_scale * self.noise_multiplier * self.clip_norm

    def denominator(self, batch_size: int) -> float:
        """Returns what the noisy sum of this batch is really divided by."""
        if self.defect == "mean_by_private_count":
            return float(max(1, check_int("batch_size", batch_size, at_least=0)))
        return self.gradient_denominator

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """What the noise multiplier claims, for neighbours by adding or removing one record.

        Full batches: exactly mu-Gaussian DP, mu = sqrt(num_steps) / noise_multiplier, and the Rényi
        DP it implies at each of `ACCOUNTING_ORDERS`. Poisson batches: subsampled Gaussian DP, and
        Rényi DP at these orders, composed over the steps (Mironov, Talwar and Zhang 2019).
        `noise_scale` and `defect` do not enter: they break the training on purpose and leave the
        claim alone.
        """
        return claimed_properties(self.num_steps, self.noise_multiplier, self.sample_rate)


def claimed_properties(
    num_steps: int, noise_multiplier: float, sample_rate: float = 1.0
) -> list[PrivacyProperty]:
    """Returns the properties that DP-SGD with this noise claims; see
    `DpSgdConfig.claimed_privacy`.
    """
    claims: list[PrivacyProperty] = []
    num_steps = check_int("num_steps", num_steps, at_least=0)
    sample_rate = check_real("sample_rate", sample_rate, above=0.0, at_most=1.0)
    if sample_rate == 1.0:
        claims.append(as_privacy_property(GaussianDp(dp_sgd_mu(num_steps, noise_multiplier))))
    elif num_steps > 0:
        claim = SubsampledGaussianDp(noise_multiplier, sample_rate, num_steps)
        claims.append(as_privacy_property(claim))
    for alpha in ACCOUNTING_ORDERS:
        epsilon = dp_sgd_renyi(check_order(alpha), num_steps, noise_multiplier, sample_rate)
        claims.append(as_privacy_property(RenyiDp(alpha, epsilon)))
    return claims


def model_seed(seed: int, world: int, index: int) -> np.random.SeedSequence:
    """Returns the one source of randomness of model `index` on the dataset numbered `world`.

    It depends on nothing else, so a model is the same in whatever group, order, process or resumed
    run it is trained.
    """
    return np.random.SeedSequence(seed, spawn_key=(world, index))


@dataclasses.dataclass(frozen=True)
class ModelStreams:
    """The two independent streams of one model.

    Attributes:
      noise: seeds the Gaussian noise.
      sampling: seeds the Poisson batches.
    """

    noise: np.random.SeedSequence
    sampling: np.random.SeedSequence

    @staticmethod
    def of(seed: np.random.SeedSequence) -> ModelStreams:
        """Returns the streams below a model's seed, without changing the seed's own spawn
        counter.
        """
        noise, sampling = (
            np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, child))
            for child in range(2)
        )
        return ModelStreams(noise, sampling)

    def sampling_generator(self) -> np.random.Generator:
        """Returns the generator that draws one uniform number per record and step."""
        return np.random.Generator(np.random.SFC64(self.sampling))


def check_training_dataset(
    dataset: Any, input_shape: tuple[int, ...], num_classes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns (features, labels) as new float32 and int64 arrays of shapes (n, *input_shape) and
    (n,).

    Args:
      dataset: (features, labels); features of any float or integer dtype, n >= 0 records; labels
        integers, or whole numbers in floats, as DP-Auditorium's classification generator makes
        them, of shape (n,) or (n, 1).
      input_shape: the shape each record must have.
      num_classes: labels must lie in 0, ..., num_classes - 1.

    Raises:
      ValueError: wrong shapes or dtypes, different counts, NaN or infinite features (after rounding
        to float32, in which training runs), a record whose float32 norm overflows, a label out of
        range.
    """
    if not isinstance(dataset, (tuple, list)) or len(dataset) != 2:
        raise ValueError(f"dataset must be a pair (features, labels), got {type(dataset).__name__}")
    features = _float32("dataset features", dataset[0])
    if features.ndim == 0 or features.shape[1:] != input_shape:
        raise ValueError(
            f"dataset features must have shape (n, {', '.join(map(str, input_shape))}), got shape"
            f" {features.shape}"
        )
    labels = check_labels("dataset labels", dataset[1], features.shape[0], num_classes)
    return features, labels


def _float32(name: str, values: Any, *, one_record: bool = False) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold floats or integers, got dtype {array.dtype}")
    with np.errstate(over="ignore"):
        array32 = np.array(array, dtype=np.float32, order="C")
        count = 1 if one_record or array32.ndim == 0 else len(array32)
        rows = array32.reshape(count, array32.size // max(1, count))
        bad = np.flatnonzero(~np.isfinite(np.einsum("ij,ij->i", rows, rows)))
    if bad.size:
        raise ValueError(
            f"{name} must be finite with a finite float32 norm, got {bad.size} of {len(rows)}"
            f" records that are not, the first at index {bad[0]}"
        )
    return array32


def _checked_canary(canary: Any, num_classes: int) -> tuple[NDArray[np.float32], int]:
    if not isinstance(canary, (tuple, list)) or len(canary) != 2:
        raise ValueError(f"canary must be a pair (features, label), got {type(canary).__name__}")
    features = _float32("canary features", canary[0], one_record=True)
    if features.size == 0 or features.ndim == 0:
        raise ValueError(f"canary features must be a non-empty array, got shape {features.shape}")
    features.setflags(write=False)
    return features, check_int("canary label", canary[1], at_least=0, at_most=num_classes - 1)


def _read_only_weights(weights: Any) -> dict[str, NDArray[np.float32]]:
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(
            f"initial_weights must be a non-empty mapping from parameter names to arrays, got"
            f" {weights!r}"
        )
    copies = {}
    for name, value in weights.items():
        array = np.array(value, dtype=np.float32)
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"initial_weights[{name!r}] must be finite, got NaN or infinite entries"
            )
        array.setflags(write=False)
        copies[str(name)] = array
    return copies
