from .canaries import (
    Canary as Canary,
    make_canary as make_canary,
)
from .labelled import (
    AuditSplit as AuditSplit,
    LabelledDataset as LabelledDataset,
    load_dataset as load_dataset,
    split_for_audit as split_for_audit,
)
from .neighbours import (
    add_canary as add_canary,
    check_neighbours as check_neighbours,
)
