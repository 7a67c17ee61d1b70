"""What an audit of trained models adds to its report: the observations, and their distance."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.mechanisms.finite_observations import is_mapped
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.text import Table, number


@dataclasses.dataclass(frozen=True)
class Observed:
    """What a column of the observations is called in reports.

    Attributes:
      title: heading of the section.
      key: of the moments in the JSON document.
      axis: what pictures write at the axis of values.
      unit: after the names of moments in the table, with a slash before it; empty if unknown.
      file: the picture's name.
      caption: the picture's caption.
    """

    title: str
    key: str
    axis: str
    unit: str
    file: str
    caption: str


CANARY_LOSSES = Observed(
    title="Canary losses",
    key="losses",
    axis="loss of the canary under the trained model / nat",
    unit=" / nat",
    file="losses.png",
    caption="Losses of the canary with and without it in the training data, and the fitted critic",
)


@dataclasses.dataclass(frozen=True)
class ObservationSummary:
    """Moments of one number observed of every model, without those that were infinite or NaN.

    Attributes:
      count: number of models where it is finite. With fewer than two the moments are NaN.
      mean: in the observation's unit; nats for a loss.
      standard_deviation: with n - 1 in the denominator.
      minimum: of the finite ones.
      maximum: of the finite ones.
    """

    count: int
    mean: float
    standard_deviation: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, losses: NDArray[np.float64]) -> ObservationSummary:
        """Returns the moments of numbers of shape (n,)."""
        losses = losses[~is_mapped(losses)]
        if losses.size < 2:
            return cls(int(losses.size), math.nan, math.nan, math.nan, math.nan)
        return cls(
            count=int(losses.size),
            mean=float(losses.mean()),
            standard_deviation=float(losses.std(ddof=1)),
            minimum=float(losses.min()),
            maximum=float(losses.max()),
        )


@dataclasses.dataclass(frozen=True)
class Separation:
    """How far apart the observations of models with and without the canary lie.

    An estimate: no confidence statement.

    Attributes:
      d_prime: |difference of means| / pooled standard deviation. Under mu-GDP it cannot exceed mu
        (but for sampling error) when the observations are Gaussian with one variance.
      standard_error: of d_prime, from the normal approximation.
      standard_deviation: pooled over both samples.
    """

    d_prime: float
    standard_error: float
    standard_deviation: float

    @classmethod
    def of(cls, without: NDArray[np.float64], with_canary: NDArray[np.float64]) -> Separation:
        """Returns the separation of two samples of shape (n,) and (m,); NaN if neither varies."""
        without, with_canary = without[~is_mapped(without)], with_canary[~is_mapped(with_canary)]
        if min(without.size, with_canary.size) < 2:
            return cls(math.nan, math.nan, math.nan)
        first, second = without.size, with_canary.size
        pooled = math.sqrt(
            ((first - 1) * without.var(ddof=1) + (second - 1) * with_canary.var(ddof=1))
            / (first + second - 2)
        )
        if pooled == 0.0:
            return cls(math.nan, math.nan, 0.0)
        d_prime = abs(float(without.mean() - with_canary.mean())) / pooled
        variance = (first + second) / (first * second) + d_prime**2 / (2 * (first + second))
        return cls(d_prime, math.sqrt(variance), pooled)


def observation_sections(
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    *,
    observed: Observed = CANARY_LOSSES,
    noise_free_shift: float | None = None,
    claimed_mu: float | None = None,
) -> tuple[Section, ...]:
    """Returns the moments of what was observed, their d-prime, and d-prime without noise.

    The noise-free d-prime is the noise-free shift over the pooled standard deviation. Unlike
    d-prime it has no sampling error in the means: it tells bad luck from a protocol that sees less
    than the claim allows.

    Args:
      without: one number of each model trained without the canary, shape (n,).
      with_canary: one number of each model trained with it, shape (m,).
      observed: what the numbers are called.
      noise_free_shift: by how much the canary lowers its own loss in models trained without noise,
        in nats; None if unknown.
      claimed_mu: Gaussian DP parameter of the claim; None if it has none.
    """
    moments = {
        "without_canary": ObservationSummary.of(without),
        "with_canary": ObservationSummary.of(with_canary),
    }
    separation = Separation.of(without, with_canary)
    spread = separation.standard_deviation
    noise_free = math.nan
    if noise_free_shift is not None and spread > 0.0:
        noise_free = noise_free_shift / spread
    return (
        Section(
            title=observed.title,
            content={
                "d_prime": separation.d_prime,
                "d_prime_standard_error": separation.standard_error,
                "noise_free_d_prime": noise_free,
                "noise_free_shift": noise_free_shift,
                observed.key: moments,
            },
            paragraphs=(_describe(separation, noise_free, noise_free_shift, claimed_mu),),
            table=Table(
                (
                    *("trained", "models"),
                    *(f"{name}{observed.unit}" for name in ("mean", "standard deviation", "range")),
                ),
                [_moments_row(name, entry) for name, entry in moments.items()],
            ),
            summary=(
                (
                    "separation",
                    f"{_d_prime(separation)} over {_count(with_canary.size, without.size)}",
                ),
            ),
        ),
    )


def _count(with_canary: int, without: int) -> str:
    if with_canary == without:
        return f"{without} models per dataset"
    return f"{with_canary} models with the canary and {without} without it"


def _d_prime(separation: Separation) -> str:
    if math.isnan(separation.d_prime):
        return "no d-prime"
    return f"d-prime {number(separation.d_prime)} +- {number(separation.standard_error)}"


def _describe(
    separation: Separation,
    noise_free: float,
    noise_free_shift: float | None,
    claimed_mu: float | None,
) -> str:
    if math.isnan(separation.d_prime):
        sentences = ["No d-prime: it takes observations that are numbers, and that vary."]
    else:
        sentences = [
            f"d-prime = {number(separation.d_prime)} (standard error"
            f" {number(separation.standard_error)}), an estimate."
        ]
    if noise_free_shift is not None:
        sentences.append(
            "With the means replaced by those of training without noise, which have no sampling"
            f" error, it is {number(noise_free)}."
        )
    if claimed_mu is not None:
        sentences.append(f"A Gaussian pair at the claim has {claimed_mu:g}.")
    return " ".join(sentences)


def _moments_row(trained: str, moments: ObservationSummary) -> tuple[str, ...]:
    return (
        trained.replace("_", " the "),
        str(moments.count),
        f"{moments.mean:.5g}",
        f"{moments.standard_deviation:.4g}",
        f"{moments.minimum:.5g} to {moments.maximum:.5g}",
    )
