"""`bounded=False` is the source's algorithm 1 as printed: held against it, written out once more in
numpy."""

import dataclasses

import numpy as np
import pytest
import torch

from dvrenyi_plugin.critics import DvRenyiEstimator, DvRenyiEstimatorConfig

ALPHA, RATE, STEP, EPOCHS = 2.0, 0.99, 0.05, 6
CONFIG = DvRenyiEstimatorConfig(
    alpha=ALPHA, bounded=False, epochs=EPOCHS, learning_rate=STEP, batch_size=100
)


def samples():
    rng = np.random.default_rng(0)
    return rng.normal(0.5, 1.0, 50), rng.normal(0.0, 1.0, 50)


def printed_algorithm(q, p, past_weight):
    """Plain ascent from averages of 0 for the critic T(x) = w x + b, w = b = 0 at first: its (w,
    b)."""
    w, b, average_q, average_p = 0.1, 0.0, 0.0, 0.0
    for _ in range(EPOCHS):
        terms_q = np.exp((ALPHA - 1.0) * (w * q + b))
        terms_p = np.exp(ALPHA * (w * p + b))
        average_q = past_weight * average_q + (1.0 - past_weight) * terms_q.mean()
        average_p = past_weight * average_p + (1.0 - past_weight) * terms_p.mean()
        # Of R = log E_Q[e^((alpha - 1) T)] / (alpha - 1) - log E_P[e^(alpha T)] / alpha, averages
        # below.
        slope = (terms_q * q).mean() / average_q - (terms_p * p).mean() / average_p
        shift = terms_q.mean() / average_q - terms_p.mean() / average_p
        w, b = w + STEP * slope, b + STEP * shift
    return w, b


@pytest.mark.parametrize(("ema_weighs", "past_weight"), [("past", RATE), ("batch", 1.0 - RATE)])
def test_g6_literal_is_plain_ascent_on_the_first_samples_from_averages_of_zero(
    ema_weighs, past_weight
):
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(0.1)
        model.bias.zero_()
    q, p = samples()
    config = dataclasses.replace(CONFIG, ema_weighs=ema_weighs)
    estimate = DvRenyiEstimator(config, model).estimate(q, p)
    w, b = printed_algorithm(q[:40], p[:40], past_weight)
    at = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(estimate.critic(at), w * at + b, rtol=2e-5, atol=1e-6)
    assert estimate.num_training == (40, 40) and estimate.num_validation == (10, 10)
    # The last ten samples validate, in the order in which they came.
    values_q, values_p = estimate.critic(q[40:]), estimate.critic(p[40:])
    held_out = 2.0 * np.log(np.exp(values_q).mean()) - np.log(np.exp(2.0 * values_p).mean())
    assert estimate.held_out_estimate == pytest.approx(held_out, rel=1e-6)


def test_g6_the_bounded_estimator_is_what_it_was_whatever_the_convention_of_the_rate():
    q, p = samples()
    bounded = DvRenyiEstimatorConfig(alpha=ALPHA, epochs=5)
    values = {
        DvRenyiEstimator(dataclasses.replace(bounded, ema_weighs=side))
        .estimate(q, p)
        .held_out_estimate
        for side in ("past", "batch")
    }
    assert len(values) == 1  # whole passes have no minibatch bias to correct


def test_g6_the_convention_is_checked():
    with pytest.raises(ValueError, match="ema_weighs must be one of past, batch, got 'both'"):
        dataclasses.replace(CONFIG, ema_weighs="both")
