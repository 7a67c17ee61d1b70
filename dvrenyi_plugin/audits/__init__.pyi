from .audit import (
    AuditResult as AuditResult,
    Subject as Subject,
    TestedClaim as TestedClaim,
    run_audit as run_audit,
)
from .audit_plan import (
    AuditPlan as AuditPlan,
    plan_audit as plan_audit,
)
from .dp_sgd.audit import (
    audit_dp_sgd as audit_dp_sgd,
)
from .dp_sgd.experiment import (
    DpSgdExperiment as DpSgdExperiment,
    build_dp_sgd_experiment as build_dp_sgd_experiment,
)
from .dp_sgd.initial_weights import (
    PretrainingConfig as PretrainingConfig,
    pretrain_weights as pretrain_weights,
    read_weights_file as read_weights_file,
)
from .dp_sgd.settings import (
    DpSgdAuditConfig as DpSgdAuditConfig,
    DpSgdExperimentConfig as DpSgdExperimentConfig,
)
from .planner import (
    RefutationPlan as RefutationPlan,
    plan_refutation as plan_refutation,
)
from .runner import (
    PrivacyTestRunner as PrivacyTestRunner,
    PrivacyTestRunnerConfig as PrivacyTestRunnerConfig,
    PrivacyTestRunnerResults as PrivacyTestRunnerResults,
)
from .samplers.audit import (
    audit_grid_mechanism as audit_grid_mechanism,
)
from .samplers.experiment import (
    ShkExperiment as ShkExperiment,
    build_shk_experiment as build_shk_experiment,
)
from .samplers.files import write_shk_report_files as write_shk_report_files
from .samplers.plots import flow_curves as flow_curves
from .samplers.settings import (
    ShkAuditConfig as ShkAuditConfig,
    ShkExperimentConfig as ShkExperimentConfig,
)
from .settings import (
    AuditPlanConfig as AuditPlanConfig,
    SequentialAuditConfig as SequentialAuditConfig,
)
from .training.audit import audit_training as audit_training
from .training.files import write_report_files as write_report_files
from .training.models import (
    ModelTrainer as ModelTrainer,
    Observations as Observations,
    train_both_worlds as train_both_worlds,
)
from .training.recorded import audit_scores as audit_scores
from .training.plots import plot_losses as plot_losses
from .training.settings import (
    ModelTrainingConfig as ModelTrainingConfig,
    RecordedAuditConfig as RecordedAuditConfig,
    TrainingAuditConfig as TrainingAuditConfig,
)
from ..reports.model import AuditReport as AuditReport
from ..reports.plots import (
    plot_bound as plot_bound,
    plot_evidence as plot_evidence,
)
from ..reports.sequential_outcome import SequentialOutcome as SequentialOutcome
