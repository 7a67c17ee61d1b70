"""Audits from data to verdict: of DP-SGD (many trained models), and of samplers (exact laws beside the bounds)."""

from dvrenyi_plugin._lazy import lazy_exports

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "audit_plan": ("AuditPlan", "AuditPlanConfig", "plan_audit"),
        "backends": ("close_clusters", "run_tasks"),
        "canaries": ("Canary", "make_canary"),
        "comparison": ("Comparison", "ComparisonConfig", "run_comparison"),
        "comparison_files": ("write_comparison_files",),
        "dataset_generators": (
            "BoundedArrays",
            "CanaryDatasetGenerator",
            "ConstantDatasetGenerator",
            "EvolutionConfig",
            "EvolutionarySearchDatasetGenerator",
            "RandomSearchDatasetGenerator",
            "RemoveOneDatasetGenerator",
            "ReplaceOneDatasetGenerator",
        ),
        "datasets": ("AuditSplit", "LabelledDataset", "load_dataset", "split_for_audit"),
        "dp_sgd_audit": (
            "DpSgdAuditConfig",
            "DpSgdAuditResult",
            "audit_dp_sgd",
        ),
        "dp_sgd_experiment": (
            "DpSgdExperiment",
            "DpSgdExperimentConfig",
            "build_dp_sgd_experiment",
        ),
        "experiment_fingerprint": ("ExperimentFingerprint",),
        "initial_weights": ("PretrainingConfig", "pretrain_weights", "read_weights_file"),
        "model_training": (
            "ModelTrainer",
            "ModelTrainingConfig",
            "Observations",
            "train_both_worlds",
        ),
        "neighbours": ("add_canary", "check_neighbours"),
        "observation_store": ("ObservationStore", "ObservationStoreError", "open_store"),
        "planner": ("RefutationPlan", "plan_refutation"),
        "plots": ("plot_bound", "plot_evidence", "plot_losses"),
        "registry": (
            "AuditSubject",
            "TesterTask",
            "register_mechanism",
            "register_tester",
        ),
        "runner": (
            "PrivacyTestRunner",
            "PrivacyTestRunnerConfig",
            "PrivacyTestRunnerResults",
        ),
        "report": ("AuditReport",),
        "report_files": ("write_report_files",),
        "sequential_audit": ("SequentialAuditConfig", "audit_dp_sgd_sequentially"),
        "sequential_outcome": ("SequentialOutcome",),
        "shk_audit": ("ShkAuditConfig", "ShkAuditResult", "audit_grid_mechanism"),
        "shk_experiment": ("ShkExperiment", "ShkExperimentConfig", "build_shk_experiment"),
        "shk_plots": ("flow_curves",),
        "shk_report": ("ShkAuditReport",),
        "shk_report_files": ("write_shk_report_files",),
    },
)
