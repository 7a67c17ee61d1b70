from .claims import (
    ClaimReport as ClaimReport,
    DirectionReport as DirectionReport,
    TestedLevel as TestedLevel,
)
from .files import write_report as write_report
from .model import AuditReport as AuditReport, Section as Section
from .pictures import Picture as Picture
from .plots import (
    plot_bound as plot_bound,
    plot_evidence as plot_evidence,
)
from .sequential_outcome import SequentialOutcome as SequentialOutcome
from .text import Table as Table
