"""The audit of DP-SGD: datasets, canaries, initial weights, many trained models, a report."""

from dvrenyi_plugin._lazy import lazy_exports

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "canaries": ("Canary", "make_canary"),
        "datasets": ("AuditSplit", "LabelledDataset", "load_dataset", "split_for_audit"),
        "dp_sgd_audit": (
            "DpSgdAuditConfig",
            "DpSgdAuditResult",
            "Observations",
            "audit_dp_sgd",
            "collect_observations",
        ),
        "dp_sgd_experiment": (
            "DpSgdExperiment",
            "DpSgdExperimentConfig",
            "build_dp_sgd_experiment",
        ),
        "initial_weights": ("PretrainingConfig", "pretrain_weights", "read_weights_file"),
        "neighbours": ("add_canary", "check_neighbours"),
        "plots": ("plot_bound", "plot_losses"),
        "report": ("AuditReport",),
        "report_files": ("write_report_files",),
    },
)
