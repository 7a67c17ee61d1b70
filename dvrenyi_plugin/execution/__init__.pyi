from .backends import (
    close_clusters as close_clusters,
    run_tasks as run_tasks,
)
from .fingerprint import ExperimentFingerprint as ExperimentFingerprint
from .observation_store import (
    ObservationStore as ObservationStore,
    ObservationStoreError as ObservationStoreError,
    open_store as open_store,
)
