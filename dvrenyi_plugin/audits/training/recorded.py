"""The audit of recorded scores: models that were trained and observed before, and elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from dvrenyi_plugin.audits.audit import AuditResult, run_audit
from dvrenyi_plugin.audits.directions import Samples
from dvrenyi_plugin.audits.training.audit import (
    report_folder,
    subject_of_models,
    with_outlook,
    write_training_report,
)
from dvrenyi_plugin.audits.training.experiment import (
    claimed_property,
    quickest_tester_of,
)
from dvrenyi_plugin.audits.training.models import check_models
from dvrenyi_plugin.audits.training.settings import MIN_MODELS, RecordedAuditConfig
from dvrenyi_plugin.data.score_columns import ScoreColumns
from dvrenyi_plugin.data.score_files import (
    RecordedScores,
    read_scores,
    scores_of_arrays,
)
from dvrenyi_plugin.mechanisms.finite_observations import finite_observations

# A record is added, so the curve of subsampled noise is read as for that.
_CURVE_DIRECTION = "remove"
_SHOWN_COLUMNS = 8


def audit_scores(
    scores: Any,
    claim: Any,
    *,
    columns: ScoreColumns | None = None,
    report_dir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> AuditResult:
    """Returns the audit of scores recorded of models trained with and without one record.

    The models must be independent of each other, those with the record of those without it, too: a
    seed that both used pairs them. The tester bets on them in an order that it draws, so the rows
    may be in any order, sorted by score included. Testers and statement as in `audit_training`.

    Args:
      scores: `RecordedScores`; a file or several, see `read_scores`; or two arrays (with the
        record, without it), shape (n,) or (n, k) and (m,) or (m, k), NaN where a score is missing.
      claim: a property, ours or DP-Auditorium's, or a text such as "mu=1", see `parse_claim`.
      columns: of the files; None for those of `ScoreColumns()`.
      report_dir: folder for the report and its pictures, made if there is none; a report that is
        there is replaced.
      **settings: fields of `RecordedAuditConfig`: failure_probability, discrete_outputs, seed.

    Raises:
      ValueError: an argument that is not as said above, fewer than ten models on a side, or models
        that repeat each other.
      OSError: a file cannot be read or written.
    """
    config = RecordedAuditConfig(**settings)
    # A folder that cannot be written is noticed before anything is read or tested.
    folder = contextlib.nullcontext() if report_dir is None else report_folder(report_dir)
    with folder as staging:
        result = run_scores_audit(_recorded(scores, columns), claim, config)
        if staging is not None:
            write_training_report(result, staging)
    return result


def run_scores_audit(
    recorded: RecordedScores, claim: Any, config: RecordedAuditConfig
) -> AuditResult:
    """Returns the audit of scores that have been read; see `audit_scores`."""
    tested = claimed_property(claim)
    tester_name, tester = quickest_tester_of(tested, config.seed, _CURVE_DIRECTION)
    samples = _samples(recorded, config)
    subject = subject_of_models(
        tested,
        tester,
        title="Privacy audit of recorded scores",
        draw=lambda numbers: samples,
        work="ordering",
        settings={
            "scores": list(recorded.columns),
            "tester": tester_name,
            "models with the record": len(samples[0]),
            "models without the record": len(samples[1]),
            "failure_probability": config.failure_probability,
            "discrete_outputs": config.discrete_outputs,
        },
        notes=(_scored(recorded.columns), *recorded.remarks),
        seed=config.seed,
    )
    result = run_audit(subject, min(map(len, samples)), config.failure_probability)
    return with_outlook(result, tested, _CURVE_DIRECTION)


def _recorded(scores: Any, columns: ScoreColumns | None) -> RecordedScores:
    if isinstance(scores, RecordedScores):
        return scores
    if isinstance(scores, str | os.PathLike):
        return read_scores(scores, columns)
    parts: Sequence[Any] = scores if isinstance(scores, Sequence) else ()
    if parts and all(isinstance(part, str | os.PathLike) for part in parts):
        return read_scores(parts, columns)
    if len(parts) != 2:
        raise ValueError(
            "scores must be a file, several, or two arrays (with the record, without it), got"
            f" {type(scores).__name__}"
        )
    return scores_of_arrays(*parts)


def _scored(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in columns[:_SHOWN_COLUMNS])
    more = f" and {len(columns) - _SHOWN_COLUMNS} more" if len(columns) > _SHOWN_COLUMNS else ""
    return f"Scored by {shown}{more}."


def _samples(recorded: RecordedScores, config: RecordedAuditConfig) -> Samples:
    """Returns finite scores, with the record and without it."""
    found = []
    for name, rows in (("with", recorded.with_record), ("without", recorded.without)):
        if len(rows) < MIN_MODELS:
            raise ValueError(
                f"scores must be of at least {MIN_MODELS} models {name} the record, got {len(rows)}"
            )
        found.append(finite_observations(rows))
        if not config.discrete_outputs:
            check_models(found[-1], f"models {name} the record")
    return found[0], found[1]
