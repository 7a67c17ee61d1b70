"""A user's estimator of the log density ratio, kept from looking ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin._internal.user_code import call_user_code
from dvrenyi_plugin.critics.simple_families import Array, LogRatio

LogRatioFitter = Callable[[Array, Array], tuple[LogRatio, str]]


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


__all__ = ["LogRatioFitter", "guarded_fit"]
