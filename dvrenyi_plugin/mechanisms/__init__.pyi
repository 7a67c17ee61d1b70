from .dp_sgd.config import DpSgdConfig as DpSgdConfig
from .dp_sgd.ensemble.mechanism import (
    EnsembleDpSgdMechanism as EnsembleDpSgdMechanism,
    EnsembleDpSgdMechanismConfig as EnsembleDpSgdMechanismConfig,
)
from .dp_sgd.networks import (
    build_model as build_model,
    load_weights as load_weights,
    random_weights as random_weights,
    weights_of as weights_of,
)
from .dp_sgd.opacus import (
    OpacusDpSgdMechanism as OpacusDpSgdMechanism,
    OpacusDpSgdMechanismConfig as OpacusDpSgdMechanismConfig,
)
from .dp_sgd.tf_privacy import (
    TfPrivacyDpSgdMechanism as TfPrivacyDpSgdMechanism,
    TfPrivacyDpSgdMechanismConfig as TfPrivacyDpSgdMechanismConfig,
)
from .exponential.broken import (
    BrokenShkMechanism as BrokenShkMechanism,
    BrokenShkMechanismConfig as BrokenShkMechanismConfig,
    balanced_circle_pair as balanced_circle_pair,
)
from .exponential.exact import (
    ExponentialMechanism as ExponentialMechanism,
    ExponentialMechanismConfig as ExponentialMechanismConfig,
)
from .exponential.langevin import (
    LangevinMechanism as LangevinMechanism,
    LangevinMechanismConfig as LangevinMechanismConfig,
)
from .exponential.losses import (
    CallableLoss as CallableLoss,
    CircularMeanLoss as CircularMeanLoss,
    LogisticLoss as LogisticLoss,
    MeanLoss as MeanLoss,
    QuantileLoss as QuantileLoss,
)
from .exponential.birth_death import (
    BirthDeathLangevinMechanism as BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig as BirthDeathLangevinMechanismConfig,
)
from .exponential.shk import (
    ShkExponentialMechanism as ShkExponentialMechanism,
    ShkExponentialMechanismConfig as ShkExponentialMechanismConfig,
)
from .simple.gaussian import (
    GaussianMechanism as GaussianMechanism,
    GaussianMechanismConfig as GaussianMechanismConfig,
)
from .simple.laplace import (
    LaplaceMechanism as LaplaceMechanism,
    LaplaceMechanismConfig as LaplaceMechanismConfig,
)
from .simple.noisy_max import (
    NoisyMaxMechanism as NoisyMaxMechanism,
    NoisyMaxMechanismConfig as NoisyMaxMechanismConfig,
)
from .simple.randomized_response import (
    RandomizedResponseMechanism as RandomizedResponseMechanism,
    RandomizedResponseMechanismConfig as RandomizedResponseMechanismConfig,
)
from .training import (
    TrainingMechanism as TrainingMechanism,
    TrainingMechanismConfig as TrainingMechanismConfig,
)
