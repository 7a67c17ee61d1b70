"""The files that an audit leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.reports.model import AuditReport
from dvrenyi_plugin.reports.pictures import Picture, draw_pictures
from dvrenyi_plugin.reports.plots import (
    has_trade_off,
    plot_bound,
    plot_evidence,
    plot_trade_off,
)

# Of every audit, beside its pictures. The one that says the others are complete comes last.
REPORT_FILES = ("observations.npz", "bound.png", "report.md", "report.html", "report.json")
# Written beside them by a sequential audit.
EVIDENCE_FILE = "evidence.png"
# Written beside them where a curve of Gaussian DP or bounded range is tested.
TRADE_OFF_FILE = "trade_off.png"


def write_report(
    report: AuditReport,
    observations: Mapping[str, NDArray[Any]],
    pictures: Iterable[Picture],
    directory: str,
) -> None:
    """Writes `REPORT_FILES` and the pictures into an existing folder, report.json last.

    Instead of a picture that cannot be drawn the report has a line that says so.

    Args:
      report: what the audit found.
      observations: the samples that it was made from, by name, any shape.
      pictures: those of this kind of audit; those that all audits share come before them.
      directory: files of the same names are replaced.

    Raises:
      OSError: a file cannot be written.
    """
    arrays: dict[str, Any] = dict(observations)
    np.savez_compressed(os.path.join(directory, "observations.npz"), **arrays)
    gallery = draw_pictures([*_shared_pictures(report), *pictures], directory)
    for name, text in (
        ("report.md", report.to_markdown(gallery)),
        ("report.html", report.to_html(gallery)),
        ("report.json", report.to_json()),
    ):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


def _shared_pictures(report: AuditReport) -> list[Picture]:
    pictures = [
        Picture(
            "bound.png",
            "Claim, point estimate and certified lower bound",
            lambda: plot_bound(report),
        )
    ]
    curve = next(filter(has_trade_off, report.claims), None)
    if curve is not None:
        pictures.append(
            Picture(
                TRADE_OFF_FILE,
                "Claimed trade-off curve, and the curves that are refuted",
                lambda: plot_trade_off(curve),
            )
        )
    outcome = report.sequential
    if outcome is not None:
        pictures.append(
            Picture(
                EVIDENCE_FILE,
                "Evidence against the claim, by observations seen",
                lambda: plot_evidence(outcome),
            )
        )
    return pictures
