"""The particle mechanism: its law, its independence, its claim and its bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from dvrenyi_plugin.flows.particles.domain import ParticleDomain
from dvrenyi_plugin.mechanisms import (
    BirthDeathLangevinMechanism,
    BirthDeathLangevinMechanismConfig,
    ExponentialMechanism,
    ExponentialMechanismConfig,
    ShkExponentialMechanism,
    ShkExponentialMechanismConfig,
)
from dvrenyi_plugin.mechanisms.exponential.losses import (
    CircularMeanLoss,
    LogisticLoss,
    MeanLoss,
    QuantileLoss,
)
from dvrenyi_plugin.privacy.divergences import renyi_bounded_range, renyi_pure_dp

CIRCLE = ParticleDomain.torus(1)
DATASET = np.array([0.2, 0.3, 0.1, 0.4])
NEIGHBOUR = np.array([0.2, 0.3, 0.1, -2.0])


def circular_loss(points, dataset):
    """Mean over the records of 1 - cos(theta - x), in [0, 2]; one record of 4 replaced changes it
    by at most 1 in oscillation: (cos(theta - x) - cos(theta - x')) / 4 runs over an interval of
    length at most 4 / 4.
    """
    angles = points[:, 0]
    return 1.0 - np.cos(dataset).mean() * np.cos(angles) - np.sin(dataset).mean() * np.sin(angles)


def circular_gradient(points, dataset):
    return np.cos(dataset).mean() * np.sin(points) - np.sin(dataset).mean() * np.cos(points)


def make_config(**changes):
    return BirthDeathLangevinMechanismConfig(
        **{
            "loss": circular_loss,
            "gradient": circular_gradient,
            "domain": CIRCLE,
            "inverse_temperature": 2.0,
            "run_time": 3.0,
            "loss_bounds": (0.0, 2.0),
            "loss_sensitivity": 1.0,
            "num_particles": 30,
            "step_size": 0.05,
            **changes,
        }
    )


def target_mean(dataset, f, beta=2.0):
    def weight(x):
        return math.exp(-beta * circular_loss(np.array([[x]]), dataset)[0])

    total = integrate.quad(weight, -math.pi, math.pi)[0]
    return integrate.quad(lambda x: f(x) * weight(x), -math.pi, math.pi)[0] / total


def test_released_samples_follow_the_exponential_mechanism():
    """Means of cos and sin to 5 standard errors, and 0.03 for the bias of ensembles of 150."""
    released = BirthDeathLangevinMechanism(make_config(num_particles=150))(DATASET, 1000)
    assert released.shape == (1000, 1)
    for f in (np.cos, np.sin):
        values = f(released[:, 0])
        error = 5.0 * values.std() / math.sqrt(1000)
        assert values.mean() == pytest.approx(target_mean(DATASET, f), abs=error + 0.03)


def test_inverse_temperature_scales_loss_and_gradient():
    mechanism = BirthDeathLangevinMechanism(make_config(inverse_temperature=0.5, num_particles=50))
    numerical = BirthDeathLangevinMechanism(
        make_config(inverse_temperature=0.5, num_particles=50, gradient=None)
    )
    released = mechanism(DATASET, 1000)
    error = 5.0 * math.sqrt(0.5 / 1000) + 0.03
    expected = target_mean(DATASET, np.cos, beta=0.5)
    assert np.cos(released).mean() == pytest.approx(expected, abs=error)
    np.testing.assert_allclose(numerical(DATASET, 1000), released, atol=1e-6)


def test_rows_are_independent_across_ensembles():
    """Correlation of neighbouring rows over 2000 pairs: |r| below 4 / sqrt(2000), false
    alarm 6e-5.
    """
    mechanism = BirthDeathLangevinMechanism(make_config(num_particles=4, run_time=1.0))
    assert mechanism.independent_samples
    released = np.cos(mechanism(DATASET, 4000)[:, 0])
    correlation = np.corrcoef(released[0::2], released[1::2])[0, 1]
    assert abs(correlation) < 4.0 / math.sqrt(2000)


def test_blocks_of_ensembles_do_not_repeat_each_other(monkeypatch):
    from dvrenyi_plugin.mechanisms.exponential import birth_death as module

    monkeypatch.setattr(module, "_PARTICLES_PER_BLOCK", 12)
    released = BirthDeathLangevinMechanism(make_config(num_particles=4, run_time=0.2))(DATASET, 11)
    assert released.shape == (11, 1)
    assert len(np.unique(released)) == 11


def test_ensemble_mode_releases_one_ensemble_and_says_that_it_is_dependent():
    """Birth-death comes last in a step, so its copies are still equal to their originals."""
    config = {"num_particles": 60, "run_time": 0.5, "step_size": 0.25}
    mechanism = BirthDeathLangevinMechanism(make_config(ensemble=True, **config))
    assert mechanism.independent_samples is False
    assert len(np.unique(mechanism(DATASET, 60))) < 58
    independent = BirthDeathLangevinMechanism(make_config(**config))
    assert len(np.unique(independent(DATASET, 60))) == 60

    whole = BirthDeathLangevinMechanism(make_config(ensemble=True, num_particles=50, run_time=0.1))
    assert whole(DATASET, 50).shape == (50, 1)
    with pytest.raises(ValueError, match="num_samples must be at most num_particles"):
        whole(DATASET, 51)


def test_the_claim_is_the_mean_field_width_and_says_what_it_is():
    mechanism = BirthDeathLangevinMechanism(make_config(alphas=(3.0, 1.5)))
    width = 2.0 * 1.0 + 2.0 * math.exp(-3.0) * 2.0 * 2.0
    assert mechanism.mean_field_certificate.width == pytest.approx(width, rel=1e-9)
    pure, concentrated, ranged, renyi, low_order = mechanism.claimed_privacy
    assert pure.pure_dp.epsilon == pytest.approx(width)
    assert ranged.bounded_range_dp.width == pytest.approx(width)
    assert concentrated.zero_concentrated_dp.rho == pytest.approx(width**2 / 8.0)
    assert renyi.renyi_dp.alpha == 3.0
    assert low_order.renyi_dp.alpha == 1.5
    assert low_order.renyi_dp.epsilon < renyi.renyi_dp.epsilon
    # At most the closed-form bounds, and at least what two laws with log ratio +- width / 2 have.
    assert (
        renyi.renyi_dp.epsilon
        <= min(renyi_bounded_range(3.0, width), renyi_pure_dp(3.0, width)) + 1e-9
    )
    assert renyi.renyi_dp.epsilon >= renyi_pure_dp(3.0, width / 2.0)
    assert mechanism.claim_is_theorem is False
    assert "mean-field" in mechanism.claim_basis


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({"birth_death_rate": 0.0}, 2.0 + 8.0),
        ({"birth_death_rate": 2.0}, 2.0 + 8.0 * math.exp(-6.0)),
        (
            {"start": lambda generator, count: np.zeros((count, 1)), "start_oscillation": 0.7},
            2.0 + 2.0 * math.exp(-3.0) * 4.7,
        ),
        ({"start": lambda generator, count: np.zeros((count, 1))}, math.inf),
        ({"loss_bounds": None}, math.inf),
        ({"loss_sensitivity": None}, math.inf),
    ],
)
def test_the_width_follows_rate_start_and_what_is_known(changes, width):
    mechanism = BirthDeathLangevinMechanism(make_config(**changes))
    if math.isinf(width):
        assert mechanism.mean_field_certificate is None
        assert mechanism.claimed_privacy == []
    else:
        assert mechanism.mean_field_certificate.width == pytest.approx(width, rel=1e-9)
        assert mechanism.claimed_privacy[0].pure_dp.epsilon == pytest.approx(width, rel=1e-9)


def test_neighbouring_laws_differ_and_stay_inside_the_claim():
    """Histogram log ratios of 3000 releases in 8 cells, 5 standard errors: inside the claim,
    clearly not zero.
    """
    config = make_config(num_particles=30, run_time=2.0)
    mechanism = BirthDeathLangevinMechanism(config)
    edges = np.linspace(-math.pi, math.pi, 9)
    counts = [np.histogram(mechanism(dataset, 3000), edges)[0] for dataset in (DATASET, NEIGHBOUR)]
    log_ratio = np.log(counts[0]) - np.log(counts[1])
    error = 5.0 * np.sqrt(1.0 / counts[0] + 1.0 / counts[1])
    assert np.max(np.abs(log_ratio) - error) < mechanism.claimed_privacy[0].pure_dp.epsilon
    assert np.max(np.abs(log_ratio) - error) > 0.2


def test_any_dimension_and_euclidean_space():
    def quadratic(points, dataset):
        return 0.5 * np.sum((points - dataset) ** 2, axis=1)

    mechanism = BirthDeathLangevinMechanism(
        BirthDeathLangevinMechanismConfig(
            loss=quadratic,
            gradient=lambda points, dataset: points - dataset,
            domain=ParticleDomain.euclidean(5),
            inverse_temperature=1.0,
            run_time=2.0,
            start=lambda generator, count: generator.standard_normal((count, 5)),
            bandwidth=1.0,
            num_particles=50,
            step_size=0.1,
        )
    )
    centre = np.arange(5.0)
    released = mechanism(centre, 300)
    assert released.shape == (300, 5)
    assert mechanism.claimed_privacy == []
    # Langevin alone would still be e^{-2} of the way short; birth-death only moves the mean
    # further.
    np.testing.assert_allclose(released.mean(axis=0), centre, atol=0.15 * 4.0 + 0.3)
    assert np.all(np.diff(released.mean(axis=0)) > 0.5)


@pytest.mark.parametrize(
    ("loss", "dataset"),
    [
        (CircularMeanLoss(num_records=4), DATASET),
        (MeanLoss(num_records=4, high=2.0), np.array([0.1, 0.3, 0.9])),
        (QuantileLoss(num_records=4, low=-1.0, high=2.0, quantile=0.3), DATASET),
        (LogisticLoss(num_records=4, radius=1.5), np.array([[0.9, 0.1, 1.0], [0.2, -0.8, -1.0]])),
    ],
)
def test_built_in_losses_bring_their_domain_and_the_same_certificate_as_the_grid_flow(
    loss, dataset
):
    """The releases' mean coordinates are those of the exact target to 5 standard errors and 0.03 of
    an axis.
    """
    settings = {"loss": loss, "inverse_temperature": 3.0}
    particle = BirthDeathLangevinMechanism(
        BirthDeathLangevinMechanismConfig(
            **settings, run_time=1.5, num_particles=40, step_size=3e-3 * loss.axis(3).length ** 2
        )
    )
    shk = ShkExponentialMechanism(ShkExponentialMechanismConfig(**settings, run_time=1.5))
    assert particle.mean_field_certificate == shk.certificate
    assert particle.claimed_privacy == shk.claimed_privacy

    target = ExponentialMechanism(ExponentialMechanismConfig(**settings))
    points, masses = target.grid.midpoints(), np.exp(target.grid_law(dataset).ravel())
    released = particle(dataset, 300)
    assert released.shape == (300, loss.dimension)
    for axis in range(loss.dimension):
        error = 5.0 * released[:, axis].std() / math.sqrt(300)
        expected = masses @ points[:, axis]
        assert released[:, axis].mean() == pytest.approx(
            expected, abs=error + 0.03 * loss.axis(3).length
        )


def test_losses_outside_their_bounds_are_refused():
    mechanism = BirthDeathLangevinMechanism(make_config(loss_bounds=(0.0, 0.5)))
    with pytest.raises(ValueError, match=r"loss must stay inside its bounds \[0, 0.5\]"):
        mechanism(DATASET, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": 3.0}, "loss must be callable"),
        ({"loss": None}, "loss must be callable"),
        ({"gradient": 3.0}, "gradient must be callable"),
        ({"start": np.zeros((3, 1))}, "start must be callable"),
        ({"inverse_temperature": 0.0}, "inverse_temperature"),
        ({"inverse_temperature": math.nan}, "inverse_temperature"),
        ({"run_time": -1.0}, "run_time"),
        ({"step_size": 0.0}, "step_size"),
        ({"birth_death_rate": -1.0}, "birth_death_rate"),
        ({"num_particles": 1}, "num_particles"),
        ({"loss_bounds": (1.0, 0.0)}, "loss_bounds"),
        ({"loss_bounds": (0.0, math.inf)}, "loss_bounds"),
        ({"loss_sensitivity": -1.0}, "loss_sensitivity"),
        ({"start_oscillation": 1.0}, "start_oscillation"),
        ({"ensemble": 1}, "ensemble"),
        ({"alphas": (1.0,)}, "alphas"),
        ({"alphas": 2.0}, "alphas"),
        ({"domain": None}, "domain"),
        ({"loss": CircularMeanLoss(num_records=4)}, "domain must be None"),
        ({"domain": ParticleDomain.euclidean(1)}, "bandwidth"),
        ({"domain": ParticleDomain.euclidean(1), "bandwidth": 0.1}, "start"),
    ],
)
def test_bad_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_config(**changes)
