"""From a user's functions, datasets and claim to everything an audit of their training needs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.user_code import own_copy
from dvrenyi_plugin._internal.validation import check_callable
from dvrenyi_plugin.audits.directions import BoundTester
from dvrenyi_plugin.audits.evidence import check_sequential
from dvrenyi_plugin.audits.training.settings import MIN_MODELS, TrainingAuditConfig
from dvrenyi_plugin.data.compared_pairs import ADDED, NOT_COMPARED, REPLACED, compare_pair
from dvrenyi_plugin.data.made_pairs import make_pair
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    PrivacyProperty,
    PureDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    read_claim,
)
from dvrenyi_plugin.mechanisms.training import TrainingMechanism, TrainingMechanismConfig
from dvrenyi_plugin.privacy.claim_text import CLAIM_EXAMPLES, parse_claim
from dvrenyi_plugin.testers.base import fewest_samples
from dvrenyi_plugin.testers.both_directions import shares_of_directions
from dvrenyi_plugin.testers.registry import make, quickest_tester

_NOTES = {
    ADDED: (),
    REPLACED: (
        "The datasets differ in a record that is replaced: the claim must be one for replacement,"
        " which for most trainings is weaker than the one for adding a record.",
    ),
    NOT_COMPARED: (
        "The datasets are no arrays, so it was not checked that they differ in one record, which is"
        " what the claim is about.",
    ),
}


@dataclasses.dataclass(frozen=True)
class TrainingExperiment:
    """An audit of a user's training, checked and ready to run.

    Attributes:
      mechanism: trains and observes models.
      tester: of the claim.
      pair: (D, D with the canary).
      claim: what is tested.
      curve_direction: in which direction the claim's curve is read, see
        `TradeOffPropertyTesterConfig`.
      config: how much is trained.
      notes: what the reader of the report should know of the pair.
      settings: what decided the above, for the report.
    """

    mechanism: TrainingMechanism
    tester: BoundTester
    pair: tuple[Any, Any]
    claim: PrivacyProperty
    curve_direction: str
    config: TrainingAuditConfig
    notes: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def title(self) -> str:
        """Heading of the report."""
        return f"Privacy audit of {self.settings['train']}"


@dataclasses.dataclass(frozen=True)
class _ObserveCanary:
    """What a user's function sees of a model and the canary, as a function of the model."""

    observe: Callable[[Any, Any], Any]
    canary: Any

    def __call__(self, model: Any) -> Any:
        return self.observe(model, own_copy(self.canary))


def build_training_experiment(
    train: Callable[[Any, int], Any],
    observe: Callable[..., Any],
    claim: Any,
    config: TrainingAuditConfig,
    *,
    pair: Any = None,
    dataset: Any = None,
    canary: Any = None,
    canary_label: Any = None,
) -> TrainingExperiment:
    """Returns the audit of a training; see `audit_training` for the arguments.

    Raises:
      ValueError: functions of other arguments, no claim, a pair that is not neighbouring, or
        neither a pair nor a dataset and a canary.
    """
    given, observed, canary_name = _pair(observe, pair, dataset, canary, canary_label)
    _check_arguments("train", train, "dataset", "seed")
    difference = compare_pair(*given)
    tested = claimed_property(claim)
    mechanism_seed, tester_seed = (
        int(child.generate_state(1)[0]) for child in np.random.SeedSequence(config.seed).spawn(2)
    )
    mechanism = TrainingMechanism(
        TrainingMechanismConfig(
            train=train,
            observe=observed,
            claimed_privacy=tested,
            discrete_outputs=config.discrete_outputs,
            seed=mechanism_seed,
        )
    )
    # The curve of subsampled noise is another one for the other order of the datasets.
    direction = "remove" if difference == ADDED else "both"
    tester_name, tester = quickest_tester_of(tested, tester_seed, direction)
    return TrainingExperiment(
        mechanism=mechanism,
        tester=tester,
        pair=given,
        claim=tested,
        curve_direction=direction,
        config=config,
        notes=_NOTES[difference],
        settings={
            "train": _name(train),
            "observe": _name(observe),
            "datasets": difference,
            "canary": canary_name,
            "tester": tester_name,
            **{
                field.name: getattr(config, field.name)
                for field in dataclasses.fields(config)
                if field.name not in ("seed", "workers")
            },
        },
    )


def _pair(
    observe: Any, pair: Any, dataset: Any, canary: Any, canary_label: Any
) -> tuple[tuple[Any, Any], Callable[[Any], Any], str]:
    """Returns the two datasets, what is observed of a model, and where the canary is from."""
    if pair is not None:
        extra = {"dataset": dataset, "canary": canary, "canary_label": canary_label}
        named = [name for name, value in extra.items() if value is not None]
        if named:
            raise ValueError(f"pair is given, so {', '.join(named)} must be left out")
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                "pair must be two datasets (D, D with the canary), got"
                f" {type(pair).__name__}"
                + (f" of {len(pair)}" if isinstance(pair, (tuple, list)) else "")
            )
        _check_arguments("observe", observe, "model")
        return (pair[0], pair[1]), observe, "the pair's"
    if dataset is None or canary is None:
        raise ValueError("either pair, or dataset and canary must be given")
    _check_arguments("observe", observe, "model", "canary")
    made = make_pair(dataset, canary, canary_label)
    name = made.name
    if isinstance(made.canary, tuple) and np.ndim(made.canary[1]) == 0:
        name += f", label {made.canary[1]}"
    return (made.without, made.with_canary), _ObserveCanary(observe, made.canary), name


def _check_arguments(name: str, function: Any, *wanted: str) -> None:
    check_callable(name, function)
    try:
        inspect.signature(function).bind(*wanted)
    except TypeError as error:
        raise ValueError(
            f"{name} must be callable as {name}({', '.join(wanted)}), got {_name(function)}"
            f"{inspect.signature(function)}: {error}"
        ) from None
    except ValueError:  # a function that tells nothing of its arguments
        return


def claimed_property(claim: Any) -> Any:
    """Returns the property that a claim is, or that its text says.

    Raises:
      ValueError: no claim, or a text that is none.
    """
    if claim is None:
        raise ValueError(f"claim is required: a property, or a text such as {CLAIM_EXAMPLES[0]!r}")
    if isinstance(claim, str):
        return parse_claim(claim)
    if isinstance(claim, numbers.Number | tuple | list | dict):
        raise ValueError(
            f"claim must be a property, or a text, one of {'; '.join(CLAIM_EXAMPLES)}, got"
            f" {claim!r}"
        )
    return claim


def quickest_tester_of(claim: Any, seed: int, direction: str) -> tuple[str, BoundTester]:
    """Returns the tester that needs the fewest models for a claim, with its name.

    Args:
      claim: the property.
      seed: of the tester, >= 0.
      direction: in which the curve of subsampled noise is read, see `TradeOffPropertyTesterConfig`.
    """
    name = quickest_tester(claim)
    known = {"direction": direction} if isinstance(read_claim(claim), SubsampledGaussianDp) else {}
    return name, make(name, claim, seed, **known)


def fewest_models(claim: Any, direction: str, failure_probability: float) -> float:
    """Returns the models per dataset that it takes at least to refute a claim, whatever the
    training does; inf if 10^9 do not.

    Args:
      claim: the property.
      direction: see `quickest_tester_of`.
      failure_probability: of the audit, in (0, 1).
    """
    tester = check_sequential(quickest_tester_of(claim, 0, direction)[1])
    process = tester.start(max(shares_of_directions(tester, failure_probability)))
    can_refute = functools.partial(process.can_reject, tester.claimed_limit)
    return fewest_samples(can_refute, MIN_MODELS) or MIN_MODELS


def describe_claim(claim: Any) -> str:
    """Returns what the number of a claim alone does not say; empty for Gaussian and Rényi DP."""
    match read_claim(claim):
        case ApproximateDp(delta=delta):
            return f"(epsilon, delta)-DP at delta {delta:g}"
        case PureDp():
            return "pure DP"
        case ZeroConcentratedDp(rho=rho):
            return f"{rho:g}-zCDP"
        case SubsampledGaussianDp() as given:
            return f"sample rate {given.sample_rate:g}, {given.num_steps} steps"
    return ""


def _name(function: Any) -> str:
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"
