"""The estimators of the log density ratio that the sequential testers offer by name, and the guard
that keeps a user's own from looking ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin._internal.streams import seed_of
from dvrenyi_plugin._internal.user_code import call_user_code
from dvrenyi_plugin.critics.log_ratio import (
    Array,
    CrossFittedLogRatio,
    LogRatio,
    LogRatioFamily,
    average_families,
    pool_samples,
)
from dvrenyi_plugin.critics.projections import vector_families
from dvrenyi_plugin.critics.simple_families import SCALAR_FAMILIES

LogRatioFitter = Callable[[Array, Array], tuple[LogRatio, str]]
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


def fit_log_ratio(
    samples_q: Array, samples_p: Array, families: Sequence[LogRatioFamily] | None = None
) -> tuple[LogRatio, str]:
    """Returns an estimate of log dQ/dP, averaged over simple families, and the name of the one that
    weighs most.

    Args:
      samples_q: shape (n, d), n >= 1, samples of the numerator law.
      samples_p: shape (m, d), m >= 1, samples of the other law.
      families: candidates; by default those suited to the dimension.

    Raises:
      ValueError: families is empty.
    """
    data = pool_samples(samples_q, samples_p)
    num_columns = samples_q.shape[1]
    if families is None:
        families = SCALAR_FAMILIES if num_columns == 1 else vector_families(num_columns)
    fit = average_families(data, families)
    if data.edges is None:
        is_q = data.weights_q > 0.0
        values = fit.past.q[is_q], fit.past.p[~is_q]
    elif np.array_equal(fit.past.q, fit.past.p):
        # No family flatters itself.
        return fit.log_ratio, fit.name
    else:
        at_q, at_p = (np.searchsorted(data.edges, side[:, 0]) for side in (samples_q, samples_p))
        values = fit.past.q[at_q], fit.past.p[at_p]
    return CrossFittedLogRatio(fit.log_ratio, *values), fit.name


def guarded_fit(fit: LogRatioFitter) -> LogRatioFitter:
    """Returns an estimator whose log ratios are `RowByRow`; those of this package are, and come
    back as they are.

    Args:
      fit: called with copies of past samples of Q and P, shapes (n, d) and (m, d); returns a log
        ratio, (n, d) -> (n,), and its name.

    Raises:
      ValueError: `fit` is no function.
    """
    if not callable(fit):
        raise ValueError(f"fit must be a function, got {fit!r}")
    if str(getattr(fit, "__module__", "")).startswith("dvrenyi_plugin."):
        return fit

    def fit_with_checks(samples_q: Array, samples_p: Array) -> tuple[LogRatio, str]:
        fitted: Any = call_user_code("fit", fit, samples_q, samples_p)
        if not (isinstance(fitted, tuple) and len(fitted) == 2 and callable(fitted[0])):
            raise ValueError(f"fit must give a pair (log ratio, name), got {fitted!r}")
        past = np.concatenate([samples_q, samples_p])
        return RowByRow("the log ratio of fit", fitted[0], past), str(fitted[1])

    return fit_with_checks


__all__ = ["FITTER_NAMES", "LogRatioFitter", "fit_log_ratio", "guarded_fit", "named_fitter"]
