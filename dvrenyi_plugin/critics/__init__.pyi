from .dv_estimator import (
    DvRenyiEstimate as DvRenyiEstimate,
    DvRenyiEstimator as DvRenyiEstimator,
    DvRenyiEstimatorConfig as DvRenyiEstimatorConfig,
)
from .networks import (
    CriticNetwork as CriticNetwork,
    FittedCritic as FittedCritic,
)
from .objective import donsker_varadhan_value as donsker_varadhan_value
