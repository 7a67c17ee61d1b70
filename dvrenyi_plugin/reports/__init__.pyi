from .files import write_report as write_report
from .model import (
    AuditReport as AuditReport,
    ClaimReport as ClaimReport,
    DirectionReport as DirectionReport,
    Section as Section,
    TestedLevel as TestedLevel,
)
from .pictures import Picture as Picture
from .plots import (
    plot_bound as plot_bound,
    plot_evidence as plot_evidence,
)
from .sequential_outcome import SequentialOutcome as SequentialOutcome
from .text import Table as Table
