"""DP-Auditorium's four testers in the comparison, each at settings that suit these mechanisms.

Registered only where DP-Auditorium can be imported. Every audit gets new configs and a new Keras
model, because a tester
changes both: it appends a layer to the model and overwrites a bound in the config. Their networks
take samples as they come, and losses of trained models that differ in the fourth digit would be one
point to them; so samples of one column are first mapped to [-2, 2] by the range of samples that are
not part of the test, which changes no divergence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.comparison.registry import DELTA, TesterTask, register_tester

FAMILY = "DP-Auditorium"
_HISTOGRAM_BINS = 10
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 20, 100, 1e-2


@register_tester("dpa_renyi_0.5", family=FAMILY, slow=True, quick=False)
def renyi_tight(task: TesterTask) -> Any:
    """Returns the Rényi tester with critic values in [-0.5, 0.5]: the smaller its range, the
    smaller its radius.
    """
    return _renyi(task, 0.5)


@register_tester("dpa_renyi_1", family=FAMILY, slow=True, quick=False)
def renyi_wide(task: TesterTask) -> Any:
    """Returns the Rényi tester with critic values in [-1, 1]."""
    return _renyi(task, 1.0)


@register_tester("dpa_hockey_stick", family=FAMILY, scale=DELTA, slow=True, quick=False)
def hockey_stick(task: TesterTask) -> Any:
    """Returns the hockey-stick tester with its default model."""
    from dp_auditorium.configs import property_tester_config
    from dp_auditorium.testers import hockey_stick_tester

    _seed_keras(task.seed)
    tester = hockey_stick_tester.HockeyStickPropertyTester(
        property_tester_config.HockeyStickPropertyTesterConfig(
            training_config=_training_config(1.0),
            approximate_dp=_approximate_dp(task),
        ),
        hockey_stick_tester.make_default_hs_base_model(),
    )
    return _Rescaled(tester, task)


@register_tester("dpa_histogram", family=FAMILY, scale=DELTA, quick=False)
def histogram(task: TesterTask) -> Any:
    """Returns the histogram tester on bins of the first column's range, in its newer version."""
    from dp_auditorium.configs import property_tester_config
    from dp_auditorium.testers import histogram_tester

    low, high = task.output_range
    return histogram_tester.HistogramTester(
        property_tester_config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=False,
            histogram_size=_HISTOGRAM_BINS,
            min_value=low,
            max_value=high,
            approximate_dp=_approximate_dp(task),
        )
    )


@register_tester("dpa_mmd", family=FAMILY, scale=DELTA, quick=False)
def mmd(task: TesterTask) -> Any:
    """Returns the MMD tester with a Gaussian kernel as wide as a quarter of the first column's
    range.
    """
    from dp_auditorium.configs import property_tester_config
    from dp_auditorium.testers import mmd_tester

    low, high = task.output_range
    return mmd_tester.MMDPropertyTester(
        property_tester_config.MMDPropertyTesterConfig(
            kernel=property_tester_config.Kernel.KERNEL_RBF,
            bandwidth=(4.0 / (high - low)) ** 2,
            approximate_dp=_approximate_dp(task),
        )
    )


def _renyi(task: TesterTask, bound: float) -> Any:
    from dp_auditorium.configs import privacy_property, property_tester_config
    from dp_auditorium.testers import renyi_tester

    claim = task.renyi.renyi_dp
    assert claim is not None
    _seed_keras(task.seed)
    tester = renyi_tester.RenyiPropertyTester(
        property_tester_config.RenyiPropertyTesterConfig(
            alpha=claim.alpha,
            training_config=_training_config(bound),
            privacy_property=privacy_property.PrivacyProperty(
                renyi_dp=privacy_property.RenyiDp(claim.alpha, claim.epsilon)
            ),
        ),
        renyi_tester.make_default_renyi_base_model(),
    )
    return _Rescaled(tester, task)


class _Rescaled:
    """A tester that sees samples of one column on the scale its network expects."""

    def __init__(self, tester: Any, task: TesterTask) -> None:
        self._tester = tester
        low, high = task.output_range if task.dimension == 1 else (-2.0, 2.0)
        self._centre, self._scale = (low + high) / 2.0, 4.0 / (high - low)

    @property
    def privacy_property(self) -> Any:
        return self._tester.privacy_property

    def estimate_lower_bound(
        self, samples1: NDArray[Any], samples2: NDArray[Any], failure_probability: float
    ) -> float:
        first, second = (
            (np.asarray(samples) - self._centre) * self._scale for samples in (samples1, samples2)
        )
        return float(self._tester.estimate_lower_bound(first, second, failure_probability))

    def reject_property(self, lower_bound: float) -> bool:
        return bool(self._tester.reject_property(lower_bound))


def _training_config(bound: float) -> Any:
    from dp_auditorium.configs import property_tester_config

    return property_tester_config.TrainingConfig(
        training_epochs=_EPOCHS,
        batch_size=_BATCH_SIZE,
        optimizer_learning_rate=_LEARNING_RATE,
        model_output_coordinate_bound=bound,
    )


def _approximate_dp(task: TesterTask) -> Any:
    from dp_auditorium.configs import privacy_property

    claim = task.approximate_dp
    return privacy_property.ApproximateDp(epsilon=claim.epsilon, delta=claim.delta)


def _seed_keras(seed: int) -> None:
    import tensorflow as tf

    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed % 2**31)
