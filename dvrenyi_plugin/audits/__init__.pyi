from .audit import (
    AuditResult as AuditResult,
    Subject as Subject,
    TestedClaim as TestedClaim,
    run_audit as run_audit,
)
from .audit_plan import (
    AuditPlan as AuditPlan,
    AuditPlanConfig as AuditPlanConfig,
    plan_audit as plan_audit,
)
from .dp_sgd.audit import (
    DpSgdAuditConfig as DpSgdAuditConfig,
    audit_dp_sgd as audit_dp_sgd,
)
from .dp_sgd.experiment import (
    DpSgdExperiment as DpSgdExperiment,
    build_dp_sgd_experiment as build_dp_sgd_experiment,
)
from .dp_sgd.files import write_report_files as write_report_files
from .dp_sgd.initial_weights import (
    PretrainingConfig as PretrainingConfig,
    pretrain_weights as pretrain_weights,
    read_weights_file as read_weights_file,
)
from .dp_sgd.plots import plot_losses as plot_losses
from .dp_sgd.settings import DpSgdExperimentConfig as DpSgdExperimentConfig
from .dp_sgd.training import (
    ModelTrainer as ModelTrainer,
    ModelTrainingConfig as ModelTrainingConfig,
    Observations as Observations,
    train_both_worlds as train_both_worlds,
)
from .evidence import SequentialAuditConfig as SequentialAuditConfig
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
    ShkAuditConfig as ShkAuditConfig,
    audit_grid_mechanism as audit_grid_mechanism,
)
from .samplers.experiment import (
    ShkExperiment as ShkExperiment,
    ShkExperimentConfig as ShkExperimentConfig,
    build_shk_experiment as build_shk_experiment,
)
from .samplers.files import write_shk_report_files as write_shk_report_files
from .samplers.plots import flow_curves as flow_curves
from ..reports.model import AuditReport as AuditReport
from ..reports.plots import (
    plot_bound as plot_bound,
    plot_evidence as plot_evidence,
)
from ..reports.sequential_outcome import SequentialOutcome as SequentialOutcome
