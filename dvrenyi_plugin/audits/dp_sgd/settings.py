"""The plain settings of an audit of DP-SGD. They import no slow library, so that a command's flags
can be made of them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated

from dvrenyi_plugin._internal.limits import (
    Allowed,
    CheckedSettings,
    Count,
    FailureProbability,
    Int,
    NotNegative,
    OneOf,
    Positive,
    Real,
    Seed,
    Text,
    Widths,
)
from dvrenyi_plugin._internal.ranges import check_kind
from dvrenyi_plugin.audits.training.settings import MIN_MODELS, ModelTrainingConfig
from dvrenyi_plugin.data.canary_names import check_canary_name
from dvrenyi_plugin.mechanisms.dp_sgd.names import MODEL_NAMES, TRAINING_DEFECTS

if TYPE_CHECKING:
    from dvrenyi_plugin.interfaces import PrivacyProperty
    from dvrenyi_plugin.privacy.dp_sgd_accounting import DpSgdClaim

ENGINE_NAMES = ("ensemble", "opacus", "tf_privacy")
OBSERVATION_NAMES = ("loss", "logits", "white_box")
TESTER_NAMES = ("auto", "sequential", "trade_off", "dv")


@dataclasses.dataclass(frozen=True)
class DpSgdExperimentConfig(CheckedSettings):
    """Which training run is audited, and on which neighbouring datasets.

    Attributes:
      dataset: mnist5k, digits, mnist, fashion_mnist, cifar10, torchvision:NAME or a path ending in
        .npz.
      data_dir: folder of the files of mnist, fashion_mnist (IDX), cifar10 (binary) or
        torchvision:NAME.
      model: the network that is trained.
      num_records: size of D, >= 1; taken from the half that pretraining does not see.
      steps: steps of DP-SGD, >= 1.
      sample_rate: 1.0 for full batches, else the Poisson rate, in (0, 1).
      mu: claimed Gaussian DP parameter, > 0; it sets the noise multiplier sqrt(steps) / mu. The
        claim is given once: as mu, noise_multiplier, or epsilon and delta; mu = 1 if not at all.
      noise_multiplier: claimed standard deviation of the noise over the clipping norm, > 0.
      epsilon: of a claimed (epsilon, delta)-DP; it sets the noise, whose Rényi DP is what is
        tested.
      delta: beside epsilon, in (0, 1).
      noise_scale: multiplies the noise that is really added; below 1 the claim is false.
      defect: breaks the training on purpose; the claim stays as it is.
      alpha: Rényi order at which the claim is tested, > 1.
      learning_rate: of DP-SGD on summed gradients, > 0. Small enough that the canary's loss stays
        linear in the weights over the range of the noise.
      clip_norm: L2 norm to which DP-SGD clips each record's gradient, > 0. The noise is in its
        units, so it changes no claim; canary and records whose gradients are longer move the
        weights in proportion to it.
      canary: blank, clipbkd, mislabelled, random or the path of an .npy file.
      canary_label: class of the canary; unset: the initial model's least likely one.
      num_canaries: copies of the canary in which the datasets differ, >= 1; the claim under test is
        then the one that follows for groups of that many.
      observe: what the tester sees of a trained model: "loss" of the canary; "logits" of the canary
        beside its loss; or "white_box", the updates' inner product with its gradient.
      initial_weights: "worst_case" (pretrained on the half that is not audited), "random", or the
        path of a file of weights.
      max_pretraining_records: of the half that is not audited, no more than this many are used to
        pretrain, >= 1.
      pretraining_epochs: passes over the half that is not audited, for worst-case weights, >= 0.
      pretraining_learning_rate: of that training, > 0.
      engine: what trains the models: "ensemble" (many at once), "opacus" or "tf_privacy" (one after
        another; TensorFlow Privacy needs the extra `tensorflow`).
      device: where the ensemble trains, as torch names it ("cpu", "cuda", "cuda:1"); the other
        engines know "cpu".
      tester: what certifies: "trade_off" (e-process against the claim's whole trade-off curve),
        "sequential" (e-process at one Rényi order), "dv" (neural critic on a split), or "auto":
        the curve, with nine tenths of the failure probability, and D_alpha beside it.
      critic_widths: widths of the hidden layers of the dv tester's critic.
      ema_rate: of the moving average in the dv tester's training, in [0, 1).
      num_critics: critics that the dv tester trains, with as many seeds, for its point estimate, >=
        1.
      seed: root of every random stream, >= 0.
    """

    dataset: Text = "mnist5k"
    data_dir: Text | None = None
    model: Annotated[str, OneOf(MODEL_NAMES)] = "mlp"
    num_records: Count = 100
    steps: int = 100
    sample_rate: float = 1.0
    mu: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_scale: NotNegative = 1.0
    defect: Annotated[str, OneOf(TRAINING_DEFECTS)] = "none"
    alpha: float = 2.0
    learning_rate: Positive = 4.0 / 30_000.0
    clip_norm: Positive = 1.0
    canary: Annotated[str, Allowed(check_canary_name)] = "blank"
    canary_label: int | None = None
    num_canaries: int = 1
    observe: Annotated[str, OneOf(OBSERVATION_NAMES)] = "loss"
    initial_weights: Text = "worst_case"
    max_pretraining_records: Count = 10_000
    pretraining_epochs: Annotated[int, Int(at_least=0)] = 5
    pretraining_learning_rate: Positive = 0.1
    engine: Annotated[str, OneOf(ENGINE_NAMES)] = "ensemble"
    device: Text = "cpu"
    tester: Annotated[str, OneOf(TESTER_NAMES)] = "auto"
    critic_widths: Widths = (100, 100)
    ema_rate: Annotated[float, Real(at_least=0.0, below=1.0)] = 0.99
    num_critics: Count = 1
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine != "ensemble" and self.device != "cpu":
            raise ValueError(f"device must be cpu with engine {self.engine}, got {self.device!r}")
        # Before the initial model is trained, too.
        self.tested_properties()

    def tested_properties(self) -> dict[str, PrivacyProperty]:
        """Returns what each tester tests, by its name: Rényi DP at the audit's order; or, against a
        whole trade-off curve, Gaussian DP or what the accountant says of Poisson batches.
        """
        from dvrenyi_plugin.interfaces import PrivacyProperty

        claim = self.claim()
        renyi = PrivacyProperty(renyi_dp=claim.renyi)
        curve = claim.curve
        if self.tester == "trade_off" and curve is None:
            raise ValueError(
                "tester must not be trade_off with Poisson batches and several canaries, a claim"
                f" without a curve: got num_canaries {self.num_canaries}"
            )
        match self.tester:
            case "trade_off" if curve is not None:
                return {"trade_off": curve}
            case "auto" if curve is not None:
                return {"trade_off": curve, "sequential": renyi}
            case "auto":
                return {"sequential": renyi}
        return {self.tester: renyi}

    def claim(self) -> DpSgdClaim:
        """Returns the claim and the noise it needs."""
        # scipy, which the accounting needs, takes a second to load: not for --help.
        from dvrenyi_plugin.privacy.dp_sgd_accounting import audited_claim

        return audited_claim(
            self.alpha,
            self.steps,
            self.sample_rate,
            mu=self.mu,
            noise_multiplier=self.noise_multiplier,
            epsilon=self.epsilon,
            delta=self.delta,
            num_canaries=self.num_canaries,
        )


def settings_of_claim(text: str) -> dict[str, float | int]:
    """Returns the settings of `DpSgdExperimentConfig` that make a claim, by their names.

    Args:
      text: see `parse_claim`. Gaussian noise makes any but pure DP; what is claimed at one Rényi
        order or as zCDP sets the noise of full batches, and the whole claim of that noise is
        tested.

    Raises:
      ValueError: another text, or pure DP.
    """
    from dvrenyi_plugin import interfaces
    from dvrenyi_plugin.privacy.claim_text import parse_claim

    match interfaces.read_claim(parse_claim(text)):
        case interfaces.GaussianDp(mu=mu):
            return {"mu": mu}
        case interfaces.ApproximateDp(epsilon=epsilon, delta=delta):
            return {"epsilon": epsilon, "delta": delta}
        case interfaces.RenyiDp(alpha=alpha, epsilon=epsilon):
            return {"mu": math.sqrt(2.0 * epsilon / alpha), "alpha": alpha}
        case interfaces.ZeroConcentratedDp(rho=rho):
            return {"mu": math.sqrt(2.0 * rho)}
        case interfaces.SubsampledGaussianDp() as poisson:
            return {
                "noise_multiplier": poisson.noise_multiplier,
                "sample_rate": poisson.sample_rate,
                "steps": poisson.num_steps,
            }
        case _:
            raise ValueError(f"claim must be one that Gaussian noise can make, got {text!r}")


@dataclasses.dataclass(frozen=True)
class DpSgdAuditConfig(CheckedSettings):
    """How much is trained, and how sure the statement is to be.

    Attributes:
      num_models: trained models per dataset, >= 10; the most that are trained if the audit is
        sequential.
      failure_probability: of the whole audit, both directions together, in (0, 1).
      training: how the models are spread over workers. Results do not depend on it.
      num_canaries: records in which the datasets differ, >= 1. With more than one the tester's
        claim must be one for groups of that many (see `audited_claim`).
      seed: reported beside the result; the streams themselves belong to the mechanism and the
        tester.
    """

    num_models: Annotated[int, Int(at_least=MIN_MODELS)] = 200
    failure_probability: FailureProbability = 0.05
    training: ModelTrainingConfig = dataclasses.field(default_factory=ModelTrainingConfig)
    num_canaries: Count = 1
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("training", self.training, ModelTrainingConfig)
