"""Claims as texts."""

from __future__ import annotations

import pytest

from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    GaussianDp,
    PureDp,
    RenyiDp,
    SubsampledGaussianDp,
    ZeroConcentratedDp,
    read_claim,
)
from dvrenyi_plugin.privacy.claim_text import CLAIM_EXAMPLES, parse_claim


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("mu=1", GaussianDp(1.0)),
        (" mu = .5 ", GaussianDp(0.5)),
        ("epsilon=1", PureDp(1.0)),
        ("epsilon=8,delta=1e-5", ApproximateDp(8.0, 1e-5)),
        ("delta=1e-5, epsilon=8", ApproximateDp(8.0, 1e-5)),
        ("rho=0.5", ZeroConcentratedDp(0.5)),
        ("renyi:alpha=2,epsilon=1", RenyiDp(2.0, 1.0)),
        ("alpha=2,epsilon=1", RenyiDp(2.0, 1.0)),
        (
            "noise_multiplier=1.1,sample_rate=0.01,steps=1000",
            SubsampledGaussianDp(1.1, 0.01, 1000),
        ),
        # A hundred full batches with noise 10 are one release with noise 1.
        ("noise_multiplier=10,steps=100", GaussianDp(1.0)),
        ("noise_multiplier=2,sample_rate=1", GaussianDp(0.5)),
    ],
)
def test_claims(text, claim):
    assert read_claim(parse_claim(text)) == claim


def test_examples_are_claims():
    assert len({type(read_claim(parse_claim(text))) for text in CLAIM_EXAMPLES}) == 6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "each part must be"),
        ("mu", "each part must be"),
        ("mu=1,mu=2", "each part must be a new name"),
        ("mu=one", "mu must be a number, got 'one'"),
        ("mu=-1", "mu must be a finite number >= 0, got -1"),
        ("mu=nan", "mu must be a finite number"),
        ("epsilon=1,delta=2", "delta must be a finite number >= 0 and <= 1, got 2"),
        ("sigma=1", "no claim has exactly the numbers sigma"),
        ("mu=1,delta=0", "no claim has exactly the numbers delta, mu"),
        ("sample_rate=0.1,steps=10", "no claim has exactly"),
        ("renyi:epsilon=1", "the only word before a colon is renyi, with alpha"),
        ("gaussian:mu=1", "the only word before a colon is renyi"),
        ("alpha=1,epsilon=1", "alpha must be a finite number > 1"),
        ("noise_multiplier=1,sample_rate=0.1,steps=1.5", "steps must be a whole number, got 1.5"),
        ("noise_multiplier=1,steps=inf", "steps must be a whole number, got inf"),
        ("noise_multiplier=0", "noise_multiplier must be a finite number > 0"),
        ("noise_multiplier=1,sample_rate=2", "sample_rate must be a finite number > 0 and <= 1"),
        (3, "got 3"),
    ],
)
def test_other_texts_are_refused(text, reason):
    with pytest.raises(ValueError, match=r"^claim must be") as caught:
        parse_claim(text)
    assert reason in str(caught.value)
