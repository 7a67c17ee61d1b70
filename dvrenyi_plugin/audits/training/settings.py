"""The plain settings of audits of trained models. They import no slow library, so that a command's
flags can be made of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from dvrenyi_plugin._internal.limits import (
    CheckedSettings,
    Count,
    FailureProbability,
    Int,
    Seed,
    Switch,
)
from dvrenyi_plugin.execution.backends import check_backend

# Fewer cannot be divided into a part that fits a critic and one that certifies: said before
# anything is trained.
MIN_MODELS = 10


@dataclasses.dataclass(frozen=True)
class ModelTrainingConfig(CheckedSettings):
    """How models are spread over workers. Results do not depend on it.

    Attributes:
      num_workers: processes or threads that train, >= 1.
      models_per_task: most models that a worker trains before it reports back, >= 1.
      backend: "loky" (processes), "threading", "serial", or a cluster: "dask" or "ray".
      scheduler: address of a running Dask or Ray cluster; unset: one is started on this machine.
      num_observed_columns: the first so many numbers of each observation are handed on, >= 1; a
        store keeps all. None: all.
      show_progress: draw a progress bar on standard error.
    """

    num_workers: int = 1
    models_per_task: Count = 10
    backend: str = "loky"
    scheduler: str | None = None
    num_observed_columns: Count | None = None
    show_progress: Switch = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_backend(self.backend, self.num_workers, self.scheduler)


@dataclasses.dataclass(frozen=True)
class TrainingAuditConfig(CheckedSettings):
    """How much is trained, where, and how sure the statement is to be.

    Attributes:
      num_models: trained models per dataset, >= 10; the most that are trained if the audit is
        sequential.
      failure_probability: of the whole audit, both directions together, in (0, 1).
      sequential: train in batches and stop as soon as the claim is refuted; if not, all models are
        trained and looked at once.
      batch_models: most models per dataset that are trained between two looks of a sequential
        audit, >= 2.
      workers: processes that train, >= 1; 1 trains in this process. Results do not depend on it.
      discrete_outputs: models may give the very same observation, for example an accuracy. If not
        declared, models that repeat each other end the audit.
      seed: where all randomness comes from, >= 0.
    """

    num_models: Annotated[int, Int(at_least=MIN_MODELS)] = 200
    failure_probability: FailureProbability = 0.05
    sequential: Switch = True
    batch_models: Annotated[int, Int(at_least=2)] = 20
    workers: Count = 1
    discrete_outputs: Switch = False
    seed: Seed = 0


@dataclasses.dataclass(frozen=True)
class RecordedAuditConfig(CheckedSettings):
    """How sure the statement about recorded scores is to be.

    Attributes:
      failure_probability: of the whole audit, both directions together, in (0, 1).
      discrete_outputs: models may have the very same scores, for example an accuracy. If not
        declared, models that repeat each other end the audit.
      seed: of the tester, which draws the order in which it bets on the models, >= 0.
    """

    failure_probability: FailureProbability = 0.05
    discrete_outputs: Switch = False
    seed: Seed = 0
