"""The mechanisms of the comparison, each on a pair of neighbours where its divergence is known,
honest and broken.

A broken variant claims what the honest one does, and its true divergence is at least twice that.
Where no law is known in closed form or on a grid (particles, trained models), the factor is that of
the law being sampled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dvrenyi_plugin.comparison.registry import AuditSubject, register_mechanism
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.interfaces import ApproximateDp, RenyiDp
from dvrenyi_plugin.mechanisms import (
    BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig,
    CircularMeanLoss,
    ExponentialMechanism,
    ExponentialMechanismConfig,
    GaussianMechanism,
    GaussianMechanismConfig,
    LangevinMechanism,
    LangevinMechanismConfig,
    LaplaceMechanism,
    LaplaceMechanismConfig,
    NoisyMaxMechanism,
    NoisyMaxMechanismConfig,
    RandomizedResponseMechanism,
    RandomizedResponseMechanismConfig,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
    balanced_circle_pair,
)
from dvrenyi_plugin.privacy.bounded_range import delta_of_range
from dvrenyi_plugin.privacy.conversions import gaussian_dp_delta
from dvrenyi_plugin.privacy.divergences import (
    hockey_stick_from_log_masses,
    renyi_gaussian_dp,
    renyi_laplace,
)

ALPHA = 2.0
# Three common records and the one that is added.
_SUM_PAIR = (np.zeros(3), np.append(np.zeros(3), 1.0))
_NUM_ANGLES = 20
_INVERSE_TEMPERATURE, _BROKEN_FACTOR = 5.0, 4.0
_RUN_TIME = 6.0


@register_mechanism("gaussian")
def gaussian(broken: bool, seed: int) -> AuditSubject:
    """Returns the Gaussian mechanism at mu = 1; broken: half of its noise."""
    return _gaussian(ALPHA, broken, seed)


@register_mechanism("gaussian_order_1.25")
def gaussian_low_order(broken: bool, seed: int) -> AuditSubject:
    """Returns the same mechanisms, tested at order 1.25."""
    return _gaussian(1.25, broken, seed)


@register_mechanism("laplace")
def laplace(broken: bool, seed: int) -> AuditSubject:
    """Returns the Laplace mechanism at epsilon = 1; broken: half of its noise."""
    scale = 0.5 if broken else 1.0
    shift = 1.0 / scale
    return AuditSubject(
        mechanism=LaplaceMechanism(LaplaceMechanismConfig(noise_scale=scale, seed=seed)),
        datasets=_SUM_PAIR,
        renyi=RenyiDp(ALPHA, renyi_laplace(ALPHA, 0.0, 1.0)),
        approximate=ApproximateDp(1.0, 0.0),
        true_divergence=renyi_laplace(ALPHA, 0.0, shift),
        true_delta=max(0.0, -math.expm1((1.0 - shift) / 2.0)),
    )


@register_mechanism("randomized_response")
def randomized_response(broken: bool, seed: int) -> AuditSubject:
    """Returns randomised response of one bit at epsilon = 1; broken: at epsilon = 2."""
    mechanism = RandomizedResponseMechanism(
        RandomizedResponseMechanismConfig(actual_epsilon=2.0 if broken else None, seed=seed)
    )
    return _discrete(
        mechanism, ([0], [1]), (mechanism.answer_law(0), mechanism.answer_law(1)), 1.0, 0.0
    )


@register_mechanism("noisy_max")
def noisy_max(broken: bool, seed: int) -> AuditSubject:
    """Returns noisy max over four candidates at epsilon = 1, one vote moved; broken: a quarter of
    its noise.
    """
    mechanism = NoisyMaxMechanism(
        NoisyMaxMechanismConfig(num_candidates=4, noise_scale=0.25 if broken else 1.0, seed=seed)
    )
    pair = np.eye(4)[:1], np.eye(4)[1:2]
    laws = mechanism.winner_law(pair[0]), mechanism.winner_law(pair[1])
    return _discrete(mechanism, pair, laws, 0.5, delta_of_range(0.5, 1.0))


@register_mechanism("exponential")
def exponential(broken: bool, seed: int) -> AuditSubject:
    """Returns the exponential mechanism for a circular mean; broken: four times the inverse
    temperature.
    """
    mechanism = ExponentialMechanism(
        ExponentialMechanismConfig(
            loss=_loss(), inverse_temperature=_inverse_temperature(broken), seed=seed
        )
    )
    return _on_grid(mechanism, _target_certificate())


@register_mechanism("shk")
def shk(broken: bool, seed: int) -> AuditSubject:
    """Returns the SHK sampler with its own certificate; broken: four times the inverse
    temperature.
    """

    def build(is_broken: bool) -> ShkExponentialMechanism:
        return ShkExponentialMechanism(
            ShkExponentialMechanismConfig(
                loss=_loss(),
                inverse_temperature=_inverse_temperature(is_broken),
                run_time=_RUN_TIME,
                seed=seed,
            )
        )

    return _on_grid(build(broken), build(False).certificate)


@register_mechanism("langevin")
def langevin(broken: bool, seed: int) -> AuditSubject:
    """Returns the Langevin sampler, claiming what its target has; broken: four times the inverse
    temperature.

    No theorem gives it that claim. On this pair it is true of the honest one: the law on the grid
    is known.
    """
    mechanism = LangevinMechanism(
        LangevinMechanismConfig(
            loss=_loss(),
            inverse_temperature=_inverse_temperature(broken),
            run_time=_RUN_TIME,
            seed=seed,
        )
    )
    return _on_grid(mechanism, _target_certificate())


@register_mechanism("birth_death", pool_size=4000)
def birth_death(broken: bool, seed: int) -> AuditSubject:
    """Returns birth-death Langevin particles with the mean-field certificate; broken: four times
    the inverse temperature.

    The law of a finite ensemble is not known, so no true value is given.
    """

    def build(is_broken: bool) -> BirthDeathLangevinMechanism:
        return BirthDeathLangevinMechanism(
            BirthDeathLangevinMechanismConfig(
                loss=_loss(),
                inverse_temperature=_inverse_temperature(is_broken),
                run_time=_RUN_TIME,
                step_size=0.05,
                num_particles=20,
                seed=seed,
            )
        )

    certificate = build(False).mean_field_certificate
    assert certificate is not None
    renyi, approximate = _certified(certificate)
    return AuditSubject(
        mechanism=build(broken),
        datasets=balanced_circle_pair(_NUM_ANGLES),
        renyi=renyi,
        approximate=approximate,
    )


@register_mechanism("dp_sgd_ensemble", pool_size=8000)
def dp_sgd_ensemble(broken: bool, seed: int) -> AuditSubject:
    """Returns DP-SGD on 50 digits at mu = 1, observed by a canary's loss, many models at once;
    broken: half of its noise.
    """
    return _dp_sgd("ensemble", broken, seed)


@register_mechanism("dp_sgd_opacus", pool_size=500, quick=False)
def dp_sgd_opacus(broken: bool, seed: int) -> AuditSubject:
    """Returns the same, trained by Opacus one model after another."""
    return _dp_sgd("opacus", broken, seed)


def _gaussian(alpha: float, broken: bool, seed: int) -> AuditSubject:
    scale = 0.5 if broken else 1.0
    return AuditSubject(
        mechanism=GaussianMechanism(GaussianMechanismConfig(noise_scale=scale, seed=seed)),
        datasets=_SUM_PAIR,
        renyi=RenyiDp(alpha, renyi_gaussian_dp(alpha, 1.0)),
        approximate=ApproximateDp(1.0, gaussian_dp_delta(1.0, 1.0)),
        true_divergence=renyi_gaussian_dp(alpha, 1.0 / scale),
        true_delta=gaussian_dp_delta(1.0 / scale, 1.0),
    )


def _discrete(
    mechanism: Any, pair: Any, laws: Any, epsilon: float, claimed_delta: float
) -> AuditSubject:
    renyi = mechanism.claimed_privacy[1].renyi_dp
    assert renyi is not None and renyi.alpha == ALPHA
    return AuditSubject(
        mechanism=mechanism,
        datasets=pair,
        renyi=renyi,
        approximate=ApproximateDp(epsilon, claimed_delta),
        true_divergence=max(
            mechanism.exact_renyi_divergence(*ordered, ALPHA) for ordered in (pair, pair[::-1])
        ),
        true_delta=_larger_delta(epsilon, *laws),
    )


def _on_grid(mechanism: Any, certificate: Certificate) -> AuditSubject:
    renyi, approximate = _certified(certificate)
    pair = balanced_circle_pair(_NUM_ANGLES)
    laws = [mechanism.grid_law(dataset).ravel() for dataset in pair]
    return AuditSubject(
        mechanism=mechanism,
        datasets=pair,
        renyi=renyi,
        approximate=approximate,
        true_divergence=max(
            mechanism.exact_renyi_divergence(*ordered, ALPHA) for ordered in (pair, pair[::-1])
        ),
        true_delta=_larger_delta(approximate.epsilon, *laws),
    )


def _dp_sgd(engine: str, broken: bool, seed: int) -> AuditSubject:
    from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
    from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig

    experiment = build_dp_sgd_experiment(
        DpSgdExperimentConfig(
            dataset="digits",
            model="logistic",
            num_records=50,
            steps=10,
            mu=1.0,
            canary="clipbkd",
            alpha=ALPHA,
            engine=engine,
            noise_scale=0.5 if broken else 1.0,
            seed=seed,
        )
    )
    mechanism: Any = experiment.mechanism
    return AuditSubject(
        mechanism=mechanism,
        datasets=experiment.pair,
        renyi=RenyiDp(ALPHA, renyi_gaussian_dp(ALPHA, 1.0)),
        approximate=ApproximateDp(1.0, gaussian_dp_delta(1.0, 1.0)),
    )


def _loss() -> CircularMeanLoss:
    return CircularMeanLoss(num_records=_NUM_ANGLES)


def _inverse_temperature(broken: bool) -> float:
    return _INVERSE_TEMPERATURE * (_BROKEN_FACTOR if broken else 1.0)


def _target_certificate() -> Certificate:
    config = ExponentialMechanismConfig(loss=_loss(), inverse_temperature=_INVERSE_TEMPERATURE)
    certificate: Certificate = ExponentialMechanism(config).certificate
    return certificate


def _certified(certificate: Certificate) -> tuple[RenyiDp, ApproximateDp]:
    """Returns the Rényi claim, and an (epsilon, delta) claim at half of the width, where bounded
    range says most.
    """
    width = certificate.width
    epsilon = width / 2.0
    return (
        RenyiDp(ALPHA, certificate.renyi_dp(ALPHA).value),
        ApproximateDp(epsilon, delta_of_range(epsilon, width)),
    )


def _larger_delta(epsilon: float, law1: Any, law2: Any) -> float:
    return max(
        hockey_stick_from_log_masses(epsilon, *ordered) for ordered in ((law1, law2), (law2, law1))
    )
