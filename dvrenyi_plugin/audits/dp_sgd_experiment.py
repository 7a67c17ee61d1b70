"""From a handful of plain settings to everything an audit of DP-SGD needs."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np

from dvrenyi_plugin._validation import check_choice, check_int, check_order, check_real, check_seed
from dvrenyi_plugin.audits.canaries import CANARY_NAMES, Canary, make_canary
from dvrenyi_plugin.audits.datasets import Records, load_dataset, split_for_audit
from dvrenyi_plugin.audits.dp_sgd_audit import ModelTrainer
from dvrenyi_plugin.audits.initial_weights import (
    PretrainingConfig,
    Weights,
    accuracy,
    model_with_weights,
    pretrain_weights,
    read_weights_file,
)
from dvrenyi_plugin.audits.neighbours import add_canary
from dvrenyi_plugin.conversions import dp_sgd_noise_multiplier
from dvrenyi_plugin.divergences import renyi_gaussian_dp
from dvrenyi_plugin.interfaces import NeighboringDatasets, PrivacyProperty, RenyiDp
from dvrenyi_plugin.mechanisms.dp_sgd_models import MODEL_NAMES

# engine -> (module, mechanism, its config) in dvrenyi_plugin.mechanisms
_ENGINES = {
    "ensemble": (
        "ensemble_dp_sgd_mechanism",
        "EnsembleDpSgdMechanism",
        "EnsembleDpSgdMechanismConfig",
    ),
    "opacus": (
        "opacus_dp_sgd_mechanism",
        "OpacusDpSgdMechanism",
        "OpacusDpSgdMechanismConfig",
    ),
}
ENGINE_NAMES = tuple(_ENGINES)


@dataclasses.dataclass(frozen=True)
class DpSgdExperimentConfig:
    """Which training run is audited, and on which neighbouring datasets.

    Attributes:
      dataset: name or `.npz` path, see `load_dataset`.
      data_dir: folder of datasets that are read from files.
      model: a name known to `build_model`.
      num_records: size of D, >= 1; taken from the half that pretraining does not see.
      steps: full-batch steps of DP-SGD, >= 1.
      mu: claimed Gaussian DP parameter, > 0; it sets the noise multiplier sqrt(steps) / mu.
      noise_scale: multiplies the noise that is really added; below 1 the claim is false.
      alpha: Rényi order at which the claim is tested, > 1.
      learning_rate: of DP-SGD on summed gradients, > 0. Small enough that the canary's loss stays linear in
        the weights over the range of the noise.
      canary: a name known to `make_canary`.
      canary_label: class of the canary; None for the initial model's least likely one.
      initial_weights: "worst_case" (pretrained on the half that is not audited), "random", or the path of a
        file of weights.
      engine: what trains the models: "ensemble" (many at once) or "opacus" (one after another).
      seed: root of every random stream, >= 0.
    """

    dataset: str = "mnist5k"
    data_dir: str | None = None
    model: str = "mlp"
    num_records: int = 100
    steps: int = 100
    mu: float = 1.0
    noise_scale: float = 1.0
    alpha: float = 2.0
    learning_rate: float = 4.0 / 30_000.0
    canary: str = "blank"
    canary_label: int | None = None
    initial_weights: str = "worst_case"
    engine: str = "ensemble"
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("num_records", self.num_records, at_least=1)
        check_int("steps", self.steps, at_least=1)
        check_real("mu", self.mu, above=0.0)
        check_real("noise_scale", self.noise_scale, at_least=0.0)
        check_order(self.alpha)
        check_real("learning_rate", self.learning_rate, above=0.0)
        check_choice("canary", self.canary, CANARY_NAMES)
        check_choice("model", self.model, MODEL_NAMES)
        check_choice("engine", self.engine, ENGINE_NAMES)
        check_seed(self.seed)


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
    """An audit, ready to run but for the tester.

    Attributes:
      mechanism: trains and observes models.
      pair: (D, D + canary).
      canary: the record in which they differ.
      privacy_property: the claim to test, (alpha, alpha mu^2 / 2)-Rényi DP.
      seeds: of all parts.
      settings: what decided the above, for the report.
    """

    mechanism: ModelTrainer
    pair: NeighboringDatasets[Records]
    canary: Canary
    privacy_property: PrivacyProperty
    seeds: ExperimentSeeds
    settings: dict[str, Any]


def build_dp_sgd_experiment(config: DpSgdExperimentConfig) -> DpSgdExperiment:
    """Returns the neighbouring datasets and the mechanism for a config; trains the initial model.

    Raises:
      ValueError: a setting that is unknown, out of range or does not fit the dataset.
      ImportError: an optional package is missing; the message names the extra.
      OSError: a file cannot be read.
    """
    seeds = ExperimentSeeds.of(config.seed)
    dataset = load_dataset(config.dataset, data_dir=config.data_dir, seed=seeds.dataset)
    split = split_for_audit(dataset, config.num_records)
    pretraining = PretrainingConfig(seed=seeds.initial_weights)
    weights: Weights
    if config.initial_weights == "worst_case":
        weights = pretrain_weights(config.model, split.pretraining, pretraining)
    elif config.initial_weights == "random":
        pretraining = dataclasses.replace(pretraining, epochs=0)
        weights = pretrain_weights(config.model, split.pretraining, pretraining)
    else:
        weights = read_weights_file(config.initial_weights)
    network = model_with_weights(config.model, dataset, weights)
    canary = make_canary(
        config.canary, network, split, label=config.canary_label, seed=seeds.canary
    )
    noise_multiplier = dp_sgd_noise_multiplier(config.steps, config.mu)
    module_name, mechanism_name, mechanism_config_name = _ENGINES[config.engine]
    module = importlib.import_module(f"dvrenyi_plugin.mechanisms.{module_name}")
    mechanism_config = getattr(module, mechanism_config_name)(
        model=config.model,
        initial_weights=weights,
        canary=(canary.features, canary.label),
        num_classes=dataset.num_classes,
        noise_multiplier=noise_multiplier,
        num_steps=config.steps,
        learning_rate=config.learning_rate,
        noise_scale=config.noise_scale,
        seed=seeds.mechanism,
    )
    settings = {
        **{name: value for name, value in dataclasses.asdict(config).items() if name != "seed"},
        "noise_multiplier": noise_multiplier,
        "clip_norm": mechanism_config.clip_norm,
        "pretraining_records": len(split.pretraining),
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
    return DpSgdExperiment(
        mechanism=getattr(module, mechanism_name)(mechanism_config),
        pair=add_canary(split.audited.records, canary.features, canary.label),
        canary=canary,
        privacy_property=PrivacyProperty(
            renyi_dp=RenyiDp(config.alpha, renyi_gaussian_dp(config.alpha, config.mu))
        ),
        seeds=seeds,
        settings=settings,
    )
