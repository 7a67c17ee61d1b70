"""From a handful of plain settings to everything an audit of DP-SGD needs."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.files import errors_that_name_argument
from dvrenyi_plugin._internal.progress import progress_bar
from dvrenyi_plugin.audits.audit import TestedClaim
from dvrenyi_plugin.audits.dp_sgd.initial_weights import (
    PretrainingConfig,
    Weights,
    accuracy,
    model_with_weights,
    pretrain_weights,
    read_weights_file,
)
from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig
from dvrenyi_plugin.audits.settings import CURVE_SHARE
from dvrenyi_plugin.audits.training.models import ModelTrainer
from dvrenyi_plugin.data.canaries import Canary, make_canary
from dvrenyi_plugin.data.labelled import AuditSplit, Records, load_dataset, split_for_audit
from dvrenyi_plugin.data.neighbours import add_canary
from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
from dvrenyi_plugin.execution.kept_arrays import KeptArrays
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism
from dvrenyi_plugin.privacy.dp_sgd_accounting import DpSgdClaim
from dvrenyi_plugin.testers.registry import make

# engine -> the mechanism in dvrenyi_plugin.mechanisms, whose config has the name with Config at its
# end
_ENGINES = {
    "ensemble": "EnsembleDpSgdMechanism",
    "opacus": "OpacusDpSgdMechanism",
    "tf_privacy": "TfPrivacyDpSgdMechanism",
}
# what the auditor sees -> what the mechanism is told to observe: the report needs the loss first
_OBSERVED = {"loss": "loss", "logits": "loss_and_logits", "white_box": "white_box"}
# what the reader of a report must know about each
_SEEN = {
    "loss": (),
    "logits": (
        "The tester saw the canary's logits beside its loss; the losses below are part of that.",
    ),
    "white_box": (
        "White box: the losses below are the canary's loss linearised at the initial weights, which"
        " takes the"
        " trained weights to know.",
    ),
}


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
      claims: what is tested, each with its tester: see `DpSgdExperimentConfig.tested_properties`.
      pair: (D, D + canary), or (D, D + num_canaries copies of it).
      canary: the record in which they differ.
      claimed_mu: the Gaussian DP parameter they follow from; None with Poisson batches.
      noise_free_shift: by how much the canary lowers its own loss when no noise is added, in nats;
        None with Poisson batches, where it is random, and where that training diverges.
      notes: what the reader should know: what makes the audit weaker than it could be, a claim for
        groups, what was seen besides the loss, in sentences; empty when there is nothing to say.
      seeds: of all parts.
      settings: what decided the above, for the report.
    """

    mechanism: DpSgdMechanism
    claims: tuple[TestedClaim, ...]
    pair: NeighboringDatasets[Records]
    canary: Canary
    claimed_mu: float | None
    noise_free_shift: float | None
    notes: tuple[str, ...]
    seeds: ExperimentSeeds
    settings: dict[str, Any]

    def with_logits_recorded(self) -> tuple[ModelTrainer, int]:
        """Returns a mechanism that trains the same models, and how many columns of it are this
        one's.

        Where the audit sees the canary's loss alone, it gives the logits too, for a store to keep.
        """
        config = self.mechanism.config
        if config.observe != "loss":
            return self.mechanism, config.observation_width
        return _with_settings(self.mechanism, observe="loss_and_logits"), 1


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
      keep_in: folder that keeps what takes long, the initial weights and the noise-free shift;
        nothing is written before all settings are known to fit. None keeps nothing.
      resume: use what is kept there; if not, it is computed again.
      show_progress: draw progress bars on standard error.

    Raises:
      ValueError: a setting that is unknown, out of range or does not fit the dataset, or a kept
        file that is damaged.
      ImportError: an optional package is missing; the message names the extra.
      OSError: a file cannot be read.
    """
    seeds = ExperimentSeeds.of(config.seed)
    dataset = load_dataset(config.dataset, data_dir=config.data_dir, seed=seeds.dataset)
    split = split_for_audit(dataset, config.num_records)
    kept = KeptArrays(keep_in, resume=resume)
    weights = _initial_weights(config, split, seeds, kept, show_progress=show_progress)
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
    mechanism = _mechanism(config, claim, canary, weights, dataset.num_classes, seeds)
    claims = _claims(config, seeds)
    pair = add_canary(split.audited.records, canary.features, canary.label, config.num_canaries)
    # All settings fit: from here on there is something to keep.
    kept.save()
    shift = None
    if config.sample_rate == 1.0:
        shift = _noise_free_shift(mechanism, pair, kept, show_progress)
    return DpSgdExperiment(
        mechanism=mechanism,
        claims=claims,
        pair=pair,
        canary=canary,
        claimed_mu=claim.mu,
        noise_free_shift=shift,
        notes=(
            *_weaknesses(canary, config.clip_norm),
            *([claim.describe_group()] if config.num_canaries > 1 else []),
            *_SEEN[config.observe],
        ),
        seeds=seeds,
        settings=_settings(config, claim, canary, split, accuracy(network, split.audited), seeds),
    )


def _initial_weights(
    config: DpSgdExperimentConfig,
    split: AuditSplit,
    seeds: ExperimentSeeds,
    kept: KeptArrays,
    *,
    show_progress: bool,
) -> Weights:
    if config.initial_weights not in ("worst_case", "random"):
        with errors_that_name_argument("initial_weights", config.initial_weights):
            return read_weights_file(config.initial_weights)
    pretraining = PretrainingConfig(
        epochs=config.pretraining_epochs if config.initial_weights == "worst_case" else 0,
        learning_rate=config.pretraining_learning_rate,
        max_records=config.max_pretraining_records,
        seed=seeds.initial_weights,
    )
    if config.initial_weights == "random":
        return pretrain_weights(config.model, split.pretraining, pretraining)
    return kept.get(
        "initial-weights",
        ExperimentFingerprint.of(pretraining, (config.model, split.pretraining)),
        lambda: pretrain_weights(
            config.model, split.pretraining, pretraining, show_progress=show_progress
        ),
    )


def _mechanism(
    config: DpSgdExperimentConfig,
    claim: DpSgdClaim,
    canary: Canary,
    weights: Weights,
    num_classes: int,
    seeds: ExperimentSeeds,
) -> DpSgdMechanism:
    # Only the libraries of this engine are imported.
    mechanisms, name = importlib.import_module("dvrenyi_plugin.mechanisms"), _ENGINES[config.engine]
    settings = getattr(mechanisms, f"{name}Config")(
        model=config.model,
        initial_weights=weights,
        canary=(canary.features, canary.label),
        num_classes=num_classes,
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
    mechanism: DpSgdMechanism = getattr(mechanisms, name)(settings)
    return mechanism


def _claims(config: DpSgdExperimentConfig, seeds: ExperimentSeeds) -> tuple[TestedClaim, ...]:
    settings: dict[str, dict[str, Any]] = {
        "dv": {
            "hidden_sizes": config.critic_widths,
            "ema_rate": config.ema_rate,
            "num_critics": config.num_critics,
        },
        # The outputs with the canary come first.
        "trade_off": {"direction": "remove"},
    }
    testers = {
        name: make(name, tested, seeds.tester, **settings.get(name, {}))
        for name, tested in config.tested_properties().items()
    }
    if len(testers) == 1:
        return tuple(map(TestedClaim, testers.values()))
    # A curve that is tested alone, in no family, has no bound to lead the report with.
    curve_leads = config.claim().mu is not None
    return (
        TestedClaim(testers["trade_off"], weight=CURVE_SHARE, is_beside=not curve_leads),
        TestedClaim(testers["sequential"], weight=1.0 - CURVE_SHARE, is_beside=curve_leads),
    )


def _settings(
    config: DpSgdExperimentConfig,
    claim: DpSgdClaim,
    canary: Canary,
    split: AuditSplit,
    initial_accuracy: float,
    seeds: ExperimentSeeds,
) -> dict[str, Any]:
    """Returns what decided the experiment: the settings that were given, and what was
    made of them.
    """
    given = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name != "seed" and value is not None
    }
    if config.tester == "trade_off":
        del given["alpha"]  # the whole curve is tested, at no order
    epochs = config.pretraining_epochs if config.initial_weights != "random" else 0
    return {
        **given,
        "noise_multiplier": claim.noise_multiplier,
        "pretraining_records": min(len(split.pretraining), config.max_pretraining_records),
        "pretraining_epochs": epochs,
        "initial_accuracy_on_audited_records": initial_accuracy,
        "canary_label": canary.label,
        "canary_label_chosen_by": (
            "initial model (least likely class)" if config.canary_label is None else "user"
        ),
        "canary_initial_loss": canary.initial_loss,
        "canary_initial_gradient_norm": canary.initial_gradient_norm,
        "seeds": dataclasses.asdict(seeds),
    }


def _noise_free_shift(
    mechanism: DpSgdMechanism,
    pair: NeighboringDatasets[Records],
    kept: KeptArrays,
    show_progress: bool,
) -> float | None:
    noise_free: ModelTrainer = _with_settings(mechanism, noise_scale=0.0)

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


def _with_settings(mechanism: DpSgdMechanism, **settings: Any) -> DpSgdMechanism:
    """Returns a mechanism of the same kind that differs in these settings."""
    kind: Any = type(mechanism)
    changed: DpSgdMechanism = kind(dataclasses.replace(mechanism.config, **settings))
    return changed


def _weaknesses(canary: Canary, clip_norm: float) -> tuple[str, ...]:
    if canary.initial_gradient_norm >= clip_norm:
        return ()
    return (
        f"The canary's gradient in the initial model has norm {canary.initial_gradient_norm:.3g},"
        f" below the"
        f" clipping norm {clip_norm:g}: it moves the weights by less than the claim allows for, so"
        f" the"
        " audit sees less than it could.",
    )
