"""From a handful of plain settings to everything an audit of DP-SGD needs."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
from typing import Annotated, Any

import numpy as np

from dvrenyi_plugin._internal.files import errors_that_name_argument
from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    Int,
    NotNegative,
    OneOf,
    Positive,
    Real,
    Seed,
    Widths,
)
from dvrenyi_plugin._internal.progress import progress_bar
from dvrenyi_plugin.audits.dp_sgd.audit import BoundTester
from dvrenyi_plugin.audits.dp_sgd.initial_weights import (
    PretrainingConfig,
    Weights,
    accuracy,
    model_with_weights,
    pretrain_weights,
    read_weights_file,
)
from dvrenyi_plugin.audits.dp_sgd.training import ModelTrainer
from dvrenyi_plugin.data.canaries import Canary, check_canary_name, make_canary
from dvrenyi_plugin.data.labelled import Records, load_dataset, split_for_audit
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
from dvrenyi_plugin.execution.kept_arrays import KeptArrays
from dvrenyi_plugin.interfaces import NeighboringDatasets, PrivacyProperty
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism
from dvrenyi_plugin.mechanisms.dp_sgd.config import DEFECTS
from dvrenyi_plugin.mechanisms.dp_sgd.networks import MODEL_NAMES
from dvrenyi_plugin.privacy.dp_sgd_accounting import DpSgdClaim, dp_sgd_claim_at
from dvrenyi_plugin.testers.registry import make

# engine -> (mechanism, its config) in dvrenyi_plugin.mechanisms
_ENGINES = {
    "ensemble": ("EnsembleDpSgdMechanism", "EnsembleDpSgdMechanismConfig"),
    "opacus": ("OpacusDpSgdMechanism", "OpacusDpSgdMechanismConfig"),
    "tf_privacy": ("TfPrivacyDpSgdMechanism", "TfPrivacyDpSgdMechanismConfig"),
}
# what the auditor sees -> what the mechanism is told to observe: the report needs the loss first
_OBSERVED = {"loss": "loss", "logits": "loss_and_logits", "white_box": "white_box"}
ENGINE_NAMES = tuple(_ENGINES)
OBSERVATION_NAMES = tuple(_OBSERVED)
# what the reader of a report must know about each
_SEEN = {
    "loss": (),
    "logits": (
        "The tester saw the canary's logits beside its loss; the losses below are part of that.",
    ),
    "white_box": (
        "White box: the losses below are the canary's loss linearised at the initial weights, which takes the"
        " trained weights to know.",
    ),
}
TESTER_NAMES = ("sequential", "dv")


@dataclasses.dataclass(frozen=True)
class DpSgdExperimentConfig(CheckedSettings):
    """Which training run is audited, and on which neighbouring datasets.

    Attributes:
      dataset: name or `.npz` path, see `load_dataset`.
      data_dir: folder of datasets that are read from files.
      model: a name known to `build_model`.
      num_records: size of D, >= 1; taken from the half that pretraining does not see.
      steps: steps of DP-SGD, >= 1.
      sample_rate: 1.0 for full batches, else the Poisson rate, in (0, 1).
      mu: claimed Gaussian DP parameter, > 0; it sets the noise multiplier sqrt(steps) / mu. The claim is
        given once: as mu, noise_multiplier, or epsilon and delta; mu = 1 if not at all.
      noise_multiplier: claimed standard deviation of the noise over the clipping norm, > 0.
      epsilon: of a claimed (epsilon, delta)-DP; it sets the noise, whose Rényi DP is what is tested.
      delta: beside epsilon, in (0, 1).
      noise_scale: multiplies the noise that is really added; below 1 the claim is false.
      defect: a deliberate breakage of the training, a name in `DEFECTS`; the claim stays as it is.
      alpha: Rényi order at which the claim is tested, > 1.
      learning_rate: of DP-SGD on summed gradients, > 0. Small enough that the canary's loss stays linear in
        the weights over the range of the noise.
      clip_norm: L2 norm to which DP-SGD clips each record's gradient, > 0. The noise is in its units, so it changes no
        claim; canary and records whose gradients are longer move the weights in proportion to it.
      canary: a name or path known to `make_canary`.
      canary_label: class of the canary; None for the initial model's least likely one.
      num_canaries: copies of the canary in which the datasets differ, >= 1; the claim under test is then the one
        that follows for groups of that many, see `dp_sgd_claim_at`.
      observe: what the tester sees of a trained model: "loss" of the canary; "logits" of the canary beside its
        loss; or "white_box", the updates' inner product with its gradient, see `linearised_losses`.
      initial_weights: "worst_case" (pretrained on the half that is not audited), "random", or the path of a
        file of weights.
      max_pretraining_records: of the half that is not audited, no more than this many are used to pretrain, >= 1.
      pretraining_epochs: passes over the half that is not audited, for worst-case weights, >= 0.
      pretraining_learning_rate: of that training, > 0.
      engine: what trains the models: "ensemble" (many at once), "opacus" or "tf_privacy" (one after another;
        TensorFlow Privacy needs the extra `tensorflow`).
      device: where the ensemble trains, as torch names it ("cpu", "cuda", "cuda:1"); the other engines know "cpu".
      tester: what certifies: "sequential" (e-process, the stronger one) or "dv" (neural critic on a split).
      critic_widths: widths of the hidden layers of the dv tester's critic.
      ema_rate: of the moving average in the dv tester's training, in [0, 1).
      num_critics: critics that the dv tester trains, with as many seeds, for its point estimate, >= 1.
      seed: root of every random stream, >= 0.
    """

    dataset: str = "mnist5k"
    data_dir: str | None = None
    model: Annotated[str, OneOf(MODEL_NAMES)] = "mlp"
    num_records: Count = 100
    steps: int = 100
    sample_rate: float = 1.0
    mu: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_scale: NotNegative = 1.0
    defect: Annotated[str, OneOf(DEFECTS)] = "none"
    alpha: float = 2.0
    learning_rate: Positive = 4.0 / 30_000.0
    clip_norm: Positive = 1.0
    canary: str = "blank"
    canary_label: int | None = None
    num_canaries: int = 1
    observe: Annotated[str, OneOf(OBSERVATION_NAMES)] = "loss"
    initial_weights: str = "worst_case"
    max_pretraining_records: int = PretrainingConfig.max_records
    pretraining_epochs: Annotated[int, Int(at_least=0)] = 5
    pretraining_learning_rate: Positive = 0.1
    engine: Annotated[str, OneOf(ENGINE_NAMES)] = "ensemble"
    device: str = "cpu"
    tester: Annotated[str, OneOf(TESTER_NAMES)] = "sequential"
    critic_widths: Widths = (100, 100)
    ema_rate: Annotated[float, Real(at_least=0.0, below=1.0)] = 0.99
    num_critics: Count = 1
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_canary_name(self.canary)
        if self.engine != "ensemble" and self.device != "cpu":
            raise ValueError(f"device must be cpu with engine {self.engine}, got {self.device!r}")
        # Before the initial model is trained, too.
        self.claim()

    def claim(self) -> DpSgdClaim:
        """Returns the claim and the noise it needs."""
        return dp_sgd_claim_at(
            self.alpha,
            self.steps,
            self.sample_rate,
            mu=self.mu,
            noise_multiplier=self.noise_multiplier,
            epsilon=self.epsilon,
            delta=self.delta,
            num_canaries=self.num_canaries,
        )


@dataclasses.dataclass(frozen=True)
class ExperimentSeeds:
    """Seeds of the parts of an experiment, so that no two of them share a random stream.

    Attributes:
      dataset: shuffles the records, and so decides which are audited.
      initial_weights: of the pretraining.
      canary: of the random canary's candidates.
      mechanism: of the noise of every trained model.
      tester: of the tester's critic.
    """

    dataset: int
    initial_weights: int
    canary: int
    mechanism: int
    tester: int

    @classmethod
    def of(cls, seed: int) -> ExperimentSeeds:
        """Returns the seeds that belong to one root seed."""
        children = np.random.SeedSequence(seed).spawn(len(dataclasses.fields(cls)))
        return cls(*(int(child.generate_state(1)[0]) for child in children))


@dataclasses.dataclass(frozen=True)
class DpSgdExperiment:
    """An audit, ready to run.

    Attributes:
      mechanism: trains and observes models.
      tester: of the claim.
      pair: (D, D + canary), or (D, D + num_canaries copies of it).
      canary: the record in which they differ.
      privacy_property: the claim, Rényi DP at the order of the audit.
      claimed_mu: the Gaussian DP parameter it follows from; None with Poisson batches.
      noise_free_shift: by how much the canary lowers its own loss when no noise is added, in nats; None with
        Poisson batches, where it is random, and where that training diverges.
      notes: what the reader should know: what makes the audit weaker than it could be, a claim for groups, what
        was seen besides the loss, in sentences; empty when there is nothing to say.
      seeds: of all parts.
      settings: what decided the above, for the report.
    """

    mechanism: DpSgdMechanism
    tester: BoundTester
    pair: NeighboringDatasets[Records]
    canary: Canary
    privacy_property: PrivacyProperty
    claimed_mu: float | None
    noise_free_shift: float | None
    notes: tuple[str, ...]
    seeds: ExperimentSeeds
    settings: dict[str, Any]

    def recording(self) -> tuple[ModelTrainer, int]:
        """Returns a mechanism that trains the same models, and how many columns of it are this one's.

        Where the audit sees the canary's loss alone, it gives the logits too, for a store to keep.
        """
        config = self.mechanism.config
        if config.observe != "loss":
            return self.mechanism, config.observation_width
        mechanism_class: Any = type(self.mechanism)
        return mechanism_class(dataclasses.replace(config, observe="loss_and_logits")), 1


def build_dp_sgd_experiment(
    config: DpSgdExperimentConfig,
    *,
    keep_in: str | os.PathLike[str] | None = None,
    resume: bool = True,
    show_progress: bool = False,
) -> DpSgdExperiment:
    """Returns the neighbouring datasets and the mechanism for a config; trains the initial model.

    Args:
      config: see `DpSgdExperimentConfig`.
      keep_in: folder that keeps what takes long, the initial weights and the noise-free shift; nothing is written before
        all settings are known to fit. None keeps nothing.
      resume: use what is kept there; if not, it is computed again.
      show_progress: draw progress bars on standard error.

    Raises:
      ValueError: a setting that is unknown, out of range or does not fit the dataset, or a kept file that is damaged.
      ImportError: an optional package is missing; the message names the extra.
      OSError: a file cannot be read.
    """
    seeds = ExperimentSeeds.of(config.seed)
    dataset = load_dataset(config.dataset, data_dir=config.data_dir, seed=seeds.dataset)
    split = split_for_audit(dataset, config.num_records)
    pretraining = PretrainingConfig(
        epochs=config.pretraining_epochs,
        learning_rate=config.pretraining_learning_rate,
        max_records=config.max_pretraining_records,
        seed=seeds.initial_weights,
    )
    kept = KeptArrays(keep_in, resume=resume)
    weights: Weights
    if config.initial_weights == "worst_case":
        weights = kept.get(
            "initial-weights",
            ExperimentFingerprint.of(pretraining, (config.model, split.pretraining)),
            lambda: pretrain_weights(
                config.model, split.pretraining, pretraining, show_progress=show_progress
            ),
        )
    elif config.initial_weights == "random":
        pretraining = dataclasses.replace(pretraining, epochs=0)
        weights = pretrain_weights(config.model, split.pretraining, pretraining)
    else:
        with errors_that_name_argument("initial_weights", config.initial_weights):
            weights = read_weights_file(config.initial_weights)
    network = model_with_weights(config.model, dataset, weights)
    canary = make_canary(
        config.canary,
        network,
        split,
        label=config.canary_label,
        seed=seeds.canary,
        clip_norm=config.clip_norm,
    )
    claim = config.claim()
    mechanism_class, mechanism_config_class = _load(_ENGINES[config.engine])
    mechanism_config = mechanism_config_class(
        model=config.model,
        initial_weights=weights,
        canary=(canary.features, canary.label),
        num_classes=dataset.num_classes,
        noise_multiplier=claim.noise_multiplier,
        num_steps=config.steps,
        sample_rate=config.sample_rate,
        learning_rate=config.learning_rate,
        clip_norm=config.clip_norm,
        noise_scale=config.noise_scale,
        defect=config.defect,
        observe=_OBSERVED[config.observe],
        seed=seeds.mechanism,
        **({"device": config.device} if config.engine == "ensemble" else {}),
    )
    privacy_property = PrivacyProperty(renyi_dp=claim.renyi)
    settings = {
        **{
            name: value
            for name, value in dataclasses.asdict(config).items()
            if name != "seed" and value is not None
        },
        "noise_multiplier": claim.noise_multiplier,
        "pretraining_records": min(len(split.pretraining), pretraining.max_records),
        "pretraining_epochs": pretraining.epochs,
        "initial_accuracy_on_audited_records": accuracy(network, split.audited),
        "canary_label": canary.label,
        "canary_label_chosen_by": (
            "initial model (least likely class)" if config.canary_label is None else "user"
        ),
        "canary_initial_loss": canary.initial_loss,
        "canary_initial_gradient_norm": canary.initial_gradient_norm,
        "seeds": dataclasses.asdict(seeds),
    }
    pair = add_canary(split.audited.records, canary.features, canary.label, config.num_canaries)
    mechanism = mechanism_class(mechanism_config)
    critic = (
        {
            "hidden_sizes": config.critic_widths,
            "ema_rate": config.ema_rate,
            "num_critics": config.num_critics,
        }
        if config.tester == "dv"
        else {}
    )
    tester = make(config.tester, privacy_property, seeds.tester, **critic)
    # All settings fit: from here on there is something to keep.
    kept.save()
    shift = None
    if config.sample_rate == 1.0:
        noise_free = mechanism_class(dataclasses.replace(mechanism_config, noise_scale=0.0))
        shift = _shift(noise_free, pair, kept, show_progress)
    return DpSgdExperiment(
        mechanism=mechanism,
        tester=tester,
        pair=pair,
        canary=canary,
        claimed_mu=claim.mu,
        privacy_property=privacy_property,
        noise_free_shift=shift,
        notes=(
            *_weaknesses(canary, mechanism_config.clip_norm),
            *([claim.describe_group()] if config.num_canaries > 1 else []),
            *_SEEN[config.observe],
        ),
        seeds=seeds,
        settings=settings,
    )


def _load(names: tuple[str, str]) -> tuple[Any, Any]:
    """Returns the two classes; only the libraries of what is used are imported."""
    module = importlib.import_module("dvrenyi_plugin.mechanisms")
    class_name, config_name = names
    return getattr(module, class_name), getattr(module, config_name)


def _shift(
    noise_free: ModelTrainer,
    pair: NeighboringDatasets[Records],
    kept: KeptArrays,
    show_progress: bool,
) -> float | None:
    def train() -> dict[str, Any]:
        losses = []
        with progress_bar("training without noise", "model", len(pair), show_progress) as progress:
            for world, dataset in enumerate(pair):
                losses.append(noise_free.train_models(dataset, world, [0])[0, 0])
                progress.update()
        return {"losses": np.array(losses, dtype=np.float64)}

    losses = kept.get("noise-free-losses", ExperimentFingerprint.of(noise_free, pair), train)
    kept.save()
    without, with_canary = losses["losses"]
    with np.errstate(invalid="ignore"):  # training without noise may diverge
        shift = float(without - with_canary)
    return shift if math.isfinite(shift) else None


def _weaknesses(canary: Canary, clip_norm: float) -> tuple[str, ...]:
    if canary.initial_gradient_norm >= clip_norm:
        return ()
    return (
        f"The canary's gradient in the initial model has norm {canary.initial_gradient_norm:.3g}, below the"
        f" clipping norm {clip_norm:g}: it moves the weights by less than the claim allows for, so the"
        " audit sees less than it could.",
    )
