"""Pairs of laws with a known log ratio and a known divergence, for the benchmarks of the bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp, ndtr

from dvrenyi_plugin.bounds.grid_pairs import GridPair, discrete_pair, gaussian_pair, laplace_pair

Array = NDArray[np.float64]
Sampler = Callable[[np.random.Generator, int], Array]


@dataclasses.dataclass(frozen=True)
class KnownPair:
    """Two laws.

    Attributes:
      name: for tables.
      sample_q: draws from the numerator law, shape (n,) or (n, d).
      sample_p: draws from the other law.
      log_ratio: log dQ/dP at samples of shape (n, d), returns shape (n,).
      grid: the pair on a grid, for its divergence and its limit.
      largest_log_ratio: supremum of the log ratio, None when there is none.
    """

    name: str
    sample_q: Sampler
    sample_p: Sampler
    log_ratio: Callable[[Array], Array]
    grid: GridPair
    largest_log_ratio: float | None = None


def gaussian(mu: float, alpha: float = 4.0, dimension: int = 1) -> KnownPair:
    """N(m, I) against N(0, I) with |m| = mu, the shift spread evenly over the coordinates."""
    shift = mu / math.sqrt(dimension)
    shape = (lambda n: (n,)) if dimension == 1 else (lambda n: (n, dimension))
    return KnownPair(
        f"Gaussian, mu {mu:.3g}" + (f", {dimension} dimensions" if dimension > 1 else ""),
        lambda rng, n: rng.normal(shift, 1.0, shape(n)),
        lambda rng, n: rng.normal(0.0, 1.0, shape(n)),
        lambda x: shift * x.sum(axis=1) - 0.5 * mu * mu,
        # The log ratio is that of one Gaussian coordinate, and it is sufficient.
        gaussian_pair(mu, alpha),
    )


def laplace(shift: float) -> KnownPair:
    """Laplace(shift, 1) against Laplace(0, 1)."""
    return KnownPair(
        f"Laplace, shift {shift:.3g}",
        lambda rng, n: rng.laplace(shift, 1.0, n),
        lambda rng, n: rng.laplace(0.0, 1.0, n),
        lambda x: np.abs(x[:, 0]) - np.abs(x[:, 0] - shift),
        laplace_pair(shift),
        shift,
    )


def packing(size: int, delta: float) -> KnownPair:
    """The family of theorem B.6: P uniform on `size` points, Q(i) = (1 + delta u_i) / size with
    balanced signs u that alternate, so that no threshold on the point's number separates the laws.
    """
    signs = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)
    return finite(
        f"packing, {size} points, delta {delta:.3g}",
        (1.0 + delta * signs) / size,
        np.full(size, 1.0 / size),
    )


def finite(name: str, q: Array, p: Array, values: Array | None = None) -> KnownPair:
    """Two laws on the same few values, 0, 1, ... by default."""
    points = np.arange(q.size, dtype=np.float64) if values is None else values
    with np.errstate(divide="ignore"):
        ratio = np.log(q) - np.log(p)
    return KnownPair(
        name,
        lambda rng, n: rng.choice(points, n, p=q / q.sum()),
        lambda rng, n: rng.choice(points, n, p=p / p.sum()),
        lambda x: ratio[np.searchsorted(points, x[:, 0])],
        discrete_pair(q / q.sum(), p / p.sum()),
        max(0.0, float(ratio[q > 0.0].max())),
    )


def gaussian_scales(first: float, second: float) -> KnownPair:
    """N(0, first^2) against N(0, second^2)."""
    x = np.linspace(-12.0, 12.0, 6001) * max(first, second)
    log_q, log_p = (-0.5 * (x / scale) ** 2 for scale in (first, second))

    def log_ratio(samples: Array) -> Array:
        squares = samples[:, 0] ** 2
        return 0.5 * squares * (second**-2 - first**-2) + math.log(second / first)

    return KnownPair(
        f"Gaussian, scales {first:g} and {second:g}",
        lambda rng, n: rng.normal(0.0, first, n),
        lambda rng, n: rng.normal(0.0, second, n),
        log_ratio,
        GridPair(log_q - logsumexp(log_q), log_p - logsumexp(log_p)),
        math.log(second / first) if first <= second else None,
    )


def on_grid(name: str, pair: GridPair, values: Array) -> KnownPair:
    """A pair given on a grid, observed as the grid's values."""
    return finite(name, np.exp(pair.log_q), np.exp(pair.log_p), values)


def rounded_gaussian(mu: float, step: float) -> KnownPair:
    """N(mu, 1) against N(0, 1) rounded to multiples of `step`: many ties."""
    values = step * np.arange(-round(12.0 / step), round(12.0 / step) + 1)

    def masses(centre: float) -> Array:
        # By the nearer tail, so that far cells keep their relative accuracy.
        low, high = values - centre - step / 2.0, values - centre + step / 2.0
        return np.where(values > centre, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))

    return finite(f"Gaussian, mu {mu:.3g}, rounded to {step:g}", masses(mu), masses(0.0), values)


def student(freedom: float, shift: float) -> KnownPair:
    """Student's t, shifted, against itself; the grid is in units of the law's own quantiles."""
    law = stats.t(freedom)
    # A middle of even quantiles; t is heavy-tailed, so the ratio is near 1 in what is cut off.
    level = np.linspace(0.0, 1.0, 20_002)[1:-1]
    edges = np.concatenate([[-np.inf], law.ppf(level), [np.inf]])
    middle = law.ppf((np.arange(20_001) + 0.5) / 20_001)
    log_p = np.full(middle.size, -math.log(middle.size))
    low, high = edges[:-1] - shift, edges[1:] - shift
    cells = np.where(low > 0.0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))
    log_q = np.log(cells)
    ratio = law.logpdf(middle - shift) - law.logpdf(middle)
    return KnownPair(
        f"Student t, {freedom:g} degrees of freedom, shift {shift:.3g}",
        lambda rng, n: rng.standard_t(freedom, n) + shift,
        lambda rng, n: rng.standard_t(freedom, n),
        lambda x: law.logpdf(x[:, 0] - shift) - law.logpdf(x[:, 0]),
        GridPair(log_q - logsumexp(log_q), log_p),
        float(ratio.max()) + 1e-3,
    )


def mixture(weight: float, centres: tuple[float, ...], name: str) -> KnownPair:
    """(1 - weight) N(0, 1) + weight spread over N(centre, 1), against N(0, 1)."""
    shifts = np.asarray(centres)
    share = weight / shifts.size

    def log_ratio_at(x: Array) -> Array:
        tilts = shifts * x[:, np.newaxis] - 0.5 * shifts**2
        terms = [np.log(share) + tilts]
        if weight < 1.0:
            terms.append(np.full((x.size, 1), math.log(1.0 - weight)))
        return logsumexp(np.concatenate(terms, axis=1), axis=1)

    def sample_q(rng: np.random.Generator, n: int) -> Array:
        centre = np.where(rng.random(n) < weight, rng.choice(shifts, n), 0.0)
        return rng.normal(centre, 1.0)

    reach = 10.0 + 4.0 * float(np.abs(shifts).max())
    x = np.linspace(-reach, reach, 2001)
    log_p = -0.5 * x**2
    log_p -= logsumexp(log_p)
    log_q = log_p + log_ratio_at(x)
    return KnownPair(
        name,
        sample_q,
        lambda rng, n: rng.normal(0.0, 1.0, n),
        lambda samples: log_ratio_at(samples[:, 0]),
        GridPair(log_q - logsumexp(log_q), log_p),
    )
