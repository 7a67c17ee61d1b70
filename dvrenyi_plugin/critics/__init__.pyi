from .networks import (
    CriticNetwork as CriticNetwork,
    FittedCritic as FittedCritic,
)
from .neural_estimator import (
    DvRenyiEstimate as DvRenyiEstimate,
    DvRenyiEstimator as DvRenyiEstimator,
    DvRenyiEstimatorConfig as DvRenyiEstimatorConfig,
)
from .neural_objective import donsker_varadhan_value as donsker_varadhan_value
