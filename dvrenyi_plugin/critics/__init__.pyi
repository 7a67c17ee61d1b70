from .critic_training import DvRenyiEstimatorConfig as DvRenyiEstimatorConfig
from .donsker_varadhan import donsker_varadhan_value as donsker_varadhan_value
from .networks import (
    CriticNetwork as CriticNetwork,
    FittedCritic as FittedCritic,
)
from .neural_estimator import (
    DvRenyiEstimate as DvRenyiEstimate,
    DvRenyiEstimator as DvRenyiEstimator,
)
