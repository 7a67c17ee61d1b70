"""The estimators of the log density ratio that the sequential testers offer by name."""

from __future__ import annotations

import numpy as np

from dvrenyi_plugin._internal.streams import seed_of
from dvrenyi_plugin.critics.guarded_fit import LogRatioFitter
from dvrenyi_plugin.critics.simple_families import fit_log_ratio

FITTER_NAMES = ("auto", "network")


def named_fitter(name: str, stream: np.random.SeedSequence) -> LogRatioFitter:
    """Returns the estimator of this name: "auto" for the simple families, "network" for a small
    neural network.

    Args:
      name: one of `FITTER_NAMES`.
      stream: of the network's random choices.
    """
    if name == "auto":
        return fit_log_ratio
    # Torch takes seconds to load.
    from dvrenyi_plugin.critics.neural_classifier import NetworkLogRatio

    return NetworkLogRatio(seed=seed_of(stream)).fit
