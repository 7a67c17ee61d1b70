"""Mechanisms to audit. Each is built as `XMechanism(XMechanismConfig(...))` and called as
`mechanism(dataset, num_samples)`."""

from dvrenyi_plugin._lazy import lazy_exports

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "birth_death_langevin_mechanism": (
            "BirthDeathLangevinMechanism",
            "BirthDeathLangevinMechanismConfig",
        ),
        "broken_shk_mechanism": (
            "BrokenShkMechanism",
            "BrokenShkMechanismConfig",
            "balanced_circle_pair",
        ),
        "dp_sgd_config": ("DpSgdConfig",),
        "dp_sgd_models": ("build_model", "load_weights", "random_weights", "weights_of"),
        "ensemble_dp_sgd_mechanism": ("EnsembleDpSgdMechanism", "EnsembleDpSgdMechanismConfig"),
        "exponential_mechanism": ("ExponentialMechanism", "ExponentialMechanismConfig"),
        "gaussian_mechanism": ("GaussianMechanism", "GaussianMechanismConfig"),
        "langevin_mechanism": ("LangevinMechanism", "LangevinMechanismConfig"),
        "laplace_mechanism": ("LaplaceMechanism", "LaplaceMechanismConfig"),
        "losses": (
            "CallableLoss",
            "CircularMeanLoss",
            "LogisticLoss",
            "MeanLoss",
            "QuantileLoss",
        ),
        "noisy_max_mechanism": ("NoisyMaxMechanism", "NoisyMaxMechanismConfig"),
        "opacus_dp_sgd_mechanism": ("OpacusDpSgdMechanism", "OpacusDpSgdMechanismConfig"),
        "randomized_response_mechanism": (
            "RandomizedResponseMechanism",
            "RandomizedResponseMechanismConfig",
        ),
        "shk_exponential_mechanism": (
            "ShkExponentialMechanism",
            "ShkExponentialMechanismConfig",
        ),
        "tf_privacy_dp_sgd_mechanism": (
            "TfPrivacyDpSgdMechanism",
            "TfPrivacyDpSgdMechanismConfig",
        ),
        "training_mechanism": ("TrainingMechanism", "TrainingMechanismConfig"),
    },
)
