from .birth_death_langevin_mechanism import (
    BirthDeathLangevinMechanism as BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig as BirthDeathLangevinMechanismConfig,
)
from .broken_shk_mechanism import (
    BrokenShkMechanism as BrokenShkMechanism,
    BrokenShkMechanismConfig as BrokenShkMechanismConfig,
    balanced_circle_pair as balanced_circle_pair,
)
from .dp_sgd_config import DpSgdConfig as DpSgdConfig
from .dp_sgd_models import (
    build_model as build_model,
    load_weights as load_weights,
    random_weights as random_weights,
    weights_of as weights_of,
)
from .ensemble_dp_sgd_mechanism import (
    EnsembleDpSgdMechanism as EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig as EnsembleDpSgdMechanismConfig,
)
from .exponential_mechanism import (
    ExponentialMechanism as ExponentialMechanism,
    ExponentialMechanismConfig as ExponentialMechanismConfig,
)
from .gaussian_mechanism import (
    GaussianMechanism as GaussianMechanism,
    GaussianMechanismConfig as GaussianMechanismConfig,
)
from .langevin_mechanism import (
    LangevinMechanism as LangevinMechanism,
    LangevinMechanismConfig as LangevinMechanismConfig,
)
from .laplace_mechanism import (
    LaplaceMechanism as LaplaceMechanism,
    LaplaceMechanismConfig as LaplaceMechanismConfig,
)
from .losses import (
    CallableLoss as CallableLoss,
    CircularMeanLoss as CircularMeanLoss,
    LogisticLoss as LogisticLoss,
    MeanLoss as MeanLoss,
    QuantileLoss as QuantileLoss,
)
from .noisy_max_mechanism import (
    NoisyMaxMechanism as NoisyMaxMechanism,
    NoisyMaxMechanismConfig as NoisyMaxMechanismConfig,
)
from .opacus_dp_sgd_mechanism import (
    OpacusDpSgdMechanism as OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig as OpacusDpSgdMechanismConfig,
)
from .randomized_response_mechanism import (
    RandomizedResponseMechanism as RandomizedResponseMechanism,
    RandomizedResponseMechanismConfig as RandomizedResponseMechanismConfig,
)
from .shk_exponential_mechanism import (
    ShkExponentialMechanism as ShkExponentialMechanism,
    ShkExponentialMechanismConfig as ShkExponentialMechanismConfig,
)
from .tf_privacy_dp_sgd_mechanism import (
    TfPrivacyDpSgdMechanism as TfPrivacyDpSgdMechanism,
    TfPrivacyDpSgdMechanismConfig as TfPrivacyDpSgdMechanismConfig,
)
from .training_mechanism import (
    TrainingMechanism as TrainingMechanism,
    TrainingMechanismConfig as TrainingMechanismConfig,
)
