from .canaries import (
    Canary as Canary,
    make_canary as make_canary,
)
from .canary_search import (
    CanarySuggestion as CanarySuggestion,
    suggest_canaries as suggest_canaries,
)
from .compared_pairs import compare_pair as compare_pair
from .labelled import (
    AuditSplit as AuditSplit,
    LabelledDataset as LabelledDataset,
    load_dataset as load_dataset,
    split_for_audit as split_for_audit,
)
from .made_pairs import (
    CanaryPair as CanaryPair,
    make_pair as make_pair,
)
from .neighbours import (
    add_canary as add_canary,
    check_neighbours as check_neighbours,
)
from .score_columns import ScoreColumns as ScoreColumns
from .score_files import (
    RecordedScores as RecordedScores,
    read_scores as read_scores,
)
