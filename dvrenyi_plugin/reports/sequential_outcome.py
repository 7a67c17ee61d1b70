"""When and why a sequential audit stopped, and the evidence it had gathered by then."""

from __future__ import annotations

import dataclasses
from typing import Any

REFUTED, FUTILE, ALL_TRAINED = "refuted", "futile", "all models trained"


@dataclasses.dataclass(frozen=True)
class EvidencePath:
    """Evidence against the claim in one direction.

    Attributes:
      direction: which dataset's law is the numerator.
      log_e_values: log e-value against the claim after each batch, in nats; frozen once it
        reached the threshold.
      log_threshold: log(1 / failure probability of this direction), which it has to reach.
    """

    direction: str
    log_e_values: tuple[float, ...]
    log_threshold: float


@dataclasses.dataclass(frozen=True)
class SequentialOutcome:
    """How a sequential audit went.

    Attributes:
      stopped: why: `REFUTED`, `FUTILE` or `ALL_TRAINED`.
      models_after_batch: models trained per dataset after each batch, increasing.
      max_models_per_world: models per dataset that the audit was allowed to train.
      evidence: one path per direction.
      refuted_after_models: models per dataset with which the claim was refuted, which may be
        fewer than its batch's last; None if it was not refuted.
      futility_mu: Gaussian DP parameter that was assumed true when judging futility; None if
        futility was not judged.
      futility_probability: the audit was futile when refuting became less likely than this.
    """

    stopped: str
    models_after_batch: tuple[int, ...]
    max_models_per_world: int
    evidence: tuple[EvidencePath, ...]
    refuted_after_models: int | None
    futility_mu: float | None
    futility_probability: float

    @property
    def models_trained_per_world(self) -> int:
        """Models per dataset when the audit stopped."""
        return self.models_after_batch[-1]

    @property
    def models_saved_per_world(self) -> int:
        """Models per dataset that were allowed and not needed."""
        return self.max_models_per_world - self.models_trained_per_world

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, models trained and saved included, as plain values."""
        return {
            "stopped": self.stopped,
            "models_trained_per_world": self.models_trained_per_world,
            "models_saved_per_world": self.models_saved_per_world,
            "max_models_per_world": self.max_models_per_world,
            "refuted_after_models_per_world": self.refuted_after_models,
            "batches": len(self.models_after_batch),
            "models_after_batch": self.models_after_batch,
            "log_e_values": {path.direction: path.log_e_values for path in self.evidence},
            "log_e_value_thresholds": {
                path.direction: path.log_threshold for path in self.evidence
            },
            "futility_mu": self.futility_mu,
            "futility_probability": self.futility_probability if self.futility_mu else None,
        }

    def summary(self) -> str:
        """Returns in one line why the audit stopped, with the models trained and not needed."""
        return (
            f"{self.stopped}: {self.models_trained_per_world} of at most"
            f" {self.max_models_per_world} models per dataset trained,"
            f" {self.models_saved_per_world} not needed"
        )

    def describe(self) -> str:
        """Returns in a paragraph why the audit stopped, and why stopping early costs nothing."""
        batches = len(self.models_after_batch)
        looks = "1 batch" if batches == 1 else f"{batches} batches"
        return " ".join(
            [
                f"Models were trained in batches: {self.models_trained_per_world} per dataset of at"
                f" most {self.max_models_per_world}, in {looks};"
                f" {self.models_saved_per_world} per dataset were not needed.",
                self._reason(),
                "The lower bound is anytime-valid: it holds at every number of models at once, so"
                " looking after each batch and stopping at any time costs nothing of the failure"
                " probability.",
            ]
        )

    def _reason(self) -> str:
        match self.stopped:
            case "refuted":
                return (
                    "The audit stopped because the claim was refuted, with the first"
                    f" {self.refuted_after_models} models on each dataset."
                )
            case "futile":
                left = self.models_saved_per_world
                return (
                    f"The audit stopped because going on was futile: even if the true mu were"
                    f" {self.futility_mu:g}, {left} more models per dataset would refute the claim"
                    f" with probability below {self.futility_probability:g} in either direction."
                    " That is a plan for Gaussian losses, not a statement about the mechanism."
                )
        return "The audit stopped because all models were trained."
