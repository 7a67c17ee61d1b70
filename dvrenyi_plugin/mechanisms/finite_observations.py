"""A model whose observation is infinite or no number is data: one fixed map brings it among the
finite ones.

A map that is fixed before any model is trained cannot raise a divergence (data processing), so
every bound on the mapped observations is one on the models. Leaving such models out would not be a
map of each model by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A loss of 1e30 says no more than one without end, float32 holds it, and its square is finite in
# float64.
LARGEST_OBSERVATION = 1e30
# Beyond both ends, so that no other observation becomes the same. On the side of +inf: both come of
# divergence.
NAN_OBSERVATION = 2e30


def finite_observations(observations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns observations of any shape clipped to +-`LARGEST_OBSERVATION`, with NaN as
    `NAN_OBSERVATION`.

    Increasing where the observation is a number, and the same for every observation of every audit.
    """
    clipped = np.clip(observations, -LARGEST_OBSERVATION, LARGEST_OBSERVATION)
    return np.where(np.isnan(clipped), NAN_OBSERVATION, clipped)


def is_mapped(observations: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Returns which of the observations that `finite_observations` gave stand at an end
    or for NaN.
    """
    return np.asarray(np.abs(observations) >= LARGEST_OBSERVATION)


__all__ = [
    "LARGEST_OBSERVATION",
    "NAN_OBSERVATION",
    "finite_observations",
    "is_mapped",
]
