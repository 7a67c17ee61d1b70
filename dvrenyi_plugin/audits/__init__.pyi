from .audit_plan import (
    AuditPlan as AuditPlan,
    AuditPlanConfig as AuditPlanConfig,
    plan_audit as plan_audit,
)
from .backends import (
    close_clusters as close_clusters,
    run_tasks as run_tasks,
)
from .canaries import (
    Canary as Canary,
    make_canary as make_canary,
)
from .comparison import (
    Comparison as Comparison,
    ComparisonConfig as ComparisonConfig,
    run_comparison as run_comparison,
)
from .comparison_files import write_comparison_files as write_comparison_files
from .dataset_generators import (
    BoundedArrays as BoundedArrays,
    CanaryDatasetGenerator as CanaryDatasetGenerator,
    ConstantDatasetGenerator as ConstantDatasetGenerator,
    EvolutionarySearchDatasetGenerator as EvolutionarySearchDatasetGenerator,
    EvolutionConfig as EvolutionConfig,
    RandomSearchDatasetGenerator as RandomSearchDatasetGenerator,
    RemoveOneDatasetGenerator as RemoveOneDatasetGenerator,
    ReplaceOneDatasetGenerator as ReplaceOneDatasetGenerator,
)
from .datasets import (
    AuditSplit as AuditSplit,
    LabelledDataset as LabelledDataset,
    load_dataset as load_dataset,
    split_for_audit as split_for_audit,
)
from .dp_sgd_audit import (
    DpSgdAuditConfig as DpSgdAuditConfig,
    DpSgdAuditResult as DpSgdAuditResult,
    audit_dp_sgd as audit_dp_sgd,
)
from .dp_sgd_experiment import (
    DpSgdExperiment as DpSgdExperiment,
    DpSgdExperimentConfig as DpSgdExperimentConfig,
    build_dp_sgd_experiment as build_dp_sgd_experiment,
)
from .experiment_fingerprint import ExperimentFingerprint as ExperimentFingerprint
from .initial_weights import (
    PretrainingConfig as PretrainingConfig,
    pretrain_weights as pretrain_weights,
    read_weights_file as read_weights_file,
)
from .model_training import (
    ModelTrainer as ModelTrainer,
    ModelTrainingConfig as ModelTrainingConfig,
    Observations as Observations,
    train_both_worlds as train_both_worlds,
)
from .neighbours import (
    add_canary as add_canary,
    check_neighbours as check_neighbours,
)
from .observation_store import (
    ObservationStore as ObservationStore,
    ObservationStoreError as ObservationStoreError,
    open_store as open_store,
)
from .planner import (
    RefutationPlan as RefutationPlan,
    plan_refutation as plan_refutation,
)
from .plots import (
    plot_bound as plot_bound,
    plot_evidence as plot_evidence,
    plot_losses as plot_losses,
)
from .registry import (
    AuditSubject as AuditSubject,
    TesterTask as TesterTask,
    register_mechanism as register_mechanism,
    register_tester as register_tester,
)
from .report import AuditReport as AuditReport
from .report_files import write_report_files as write_report_files
from .runner import (
    PrivacyTestRunner as PrivacyTestRunner,
    PrivacyTestRunnerConfig as PrivacyTestRunnerConfig,
    PrivacyTestRunnerResults as PrivacyTestRunnerResults,
)
from .sequential_audit import (
    SequentialAuditConfig as SequentialAuditConfig,
    audit_dp_sgd_sequentially as audit_dp_sgd_sequentially,
)
from .sequential_outcome import SequentialOutcome as SequentialOutcome
from .shk_audit import (
    ShkAuditConfig as ShkAuditConfig,
    ShkAuditResult as ShkAuditResult,
    audit_grid_mechanism as audit_grid_mechanism,
)
from .shk_experiment import (
    ShkExperiment as ShkExperiment,
    ShkExperimentConfig as ShkExperimentConfig,
    build_shk_experiment as build_shk_experiment,
)
from .shk_plots import flow_curves as flow_curves
from .shk_report import ShkAuditReport as ShkAuditReport
from .shk_report_files import write_shk_report_files as write_shk_report_files
