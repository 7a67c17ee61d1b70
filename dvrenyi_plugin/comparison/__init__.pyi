from .files import write_comparison_files as write_comparison_files
from .registry import (
    AuditSubject as AuditSubject,
    TesterTask as TesterTask,
    register_mechanism as register_mechanism,
    register_tester as register_tester,
)
from .run import (
    Comparison as Comparison,
    run_comparison as run_comparison,
)
from .settings import ComparisonConfig as ComparisonConfig
