"""Kullback-Leibler stability of SHK flows: Theorems 2, 4 and 6, and the sharper bound beyond them.

For H(t) = KL(rho_t || rho'_t) the paper derives

    H' <= -2 (1-c) lambda e^{-B e^{-t}} H
          + G^2 / (4c) + R_0'^2/16 e^{-2t} + S R_0/2 e^{-t} + 2 R_0' e^{-t},    c in (0, 1].

Assumptions: torus, smooth positive flows from one start; G = ||grad V - grad V'||_inf; S bounds
|log pi/pi'|; B >= R_0, R_0'; pi and pi' satisfy a log-Sobolev inequality Ent(f^2) <= 2/lambda int
|grad f|^2. These are statements about the *continuous* flow: their proofs use the chain rule, which
a grid has only in the limit. The certificates of `certificate` do not rest on them.

Source: Mustafi and Mukherjee, Theorems 2, 4 and 6.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Annotated

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import exp1

from dvrenyi_plugin._internal.limits import Allowed, CheckedSettings
from dvrenyi_plugin._internal.ranges import SMALLEST, check_kind, check_positive, check_size
from dvrenyi_plugin._internal.validation import check_real
from dvrenyi_plugin.flows.grid import PERIODIC, Axis, Grid


@dataclasses.dataclass(frozen=True)
class KlConstants(CheckedSettings):
    """Constants of Theorems 2, 4 and 6.

    Attributes:
      gradient_distance: G >= 0.
      target_log_ratio: S >= 0, a bound on |log pi/pi'|; 2 ||V - V'||_inf or osc(V - V') will do.
      initial_oscillation: B >= 0, at least R_0 and R_0'.
      log_sobolev: lambda > 0, common to pi and pi'.
    """

    gradient_distance: Annotated[float, Allowed(check_size)]
    target_log_ratio: Annotated[float, Allowed(check_size)]
    initial_oscillation: Annotated[float, Allowed(check_size)]
    log_sobolev: Annotated[float, Allowed(check_positive)]


def gibbs_log_sobolev(axes: tuple[Axis, ...], potential_oscillation: float) -> float:
    """Returns a log-Sobolev constant of exp(-V) on a product domain: the uniform law's times
    e^{-osc V}.

    The uniform law on a circle of length l has (2 pi / l)^2, on an interval of length l (pi / l)^2
    (unfold to a circle of length 2 l); products take the smallest. Then Holley and Stroock (1987):
    multiply by e^{-osc V}.
    """
    oscillation = check_size("potential_oscillation", potential_oscillation)
    axes = Grid(axes).axes
    uniform = min(
        ((2.0 if axis.boundary == PERIODIC else 1.0) * math.pi / axis.length) ** 2 for axis in axes
    )
    return uniform * math.exp(-oscillation)


def kl_contraction_rate(constants: KlConstants, young: float) -> float:
    """Returns kappa = 2 (1 - c) e^{-B} lambda for Young's parameter c in (0, 1]."""
    check_kind("constants", constants, KlConstants)
    young = check_real("young", young, at_least=SMALLEST, at_most=1.0)
    return 2.0 * (1.0 - young) * math.exp(-constants.initial_oscillation) * constants.log_sobolev


def kl_plateau(constants: KlConstants, young: float) -> float:
    """Returns A_1 / kappa = G^2 / (4 c kappa), the limit of Theorem 2's bound; smallest at c = 1/2.

    Infinite where e^{-B} is below the smallest float and G is not 0.
    """
    young = check_real("young", young, above=0.0, below=1.0)
    rate = kl_contraction_rate(constants, young)
    if constants.gradient_distance == 0.0:
        return 0.0
    return constants.gradient_distance**2 / (4.0 * young) / rate if rate > 0.0 else math.inf


def kl_bound(constants: KlConstants, time: float, young: float) -> float:
    """Returns Theorem 2's closed form at Young's parameter c in (0, 1]; c = 1 is Theorem 6, linear
    in t.

    A_1 (1 - e^{-kappa t}) / kappa + A_2 (e^{-t} - e^{-kappa t}) / (kappa - 1) + A_3 (e^{-2t} -
    e^{-kappa t}) / (kappa - 2) with A_1 = G^2/(4c), A_2 = S B/2 + 2 B, A_3 = B^2/16; the quotients
    are taken by their limits where kappa is 0, 1 or 2.
    """
    time = check_size("time", time)
    rate = kl_contraction_rate(constants, young)
    young = float(young)  # a float32 would overflow in the quotients
    forcing = _forcing(constants, young)
    return sum(
        coefficient * _convolution(rate, decay, time) for decay, coefficient in enumerate(forcing)
    )


def kl_bound_growing(constants: KlConstants, time: float) -> float:
    """Returns Theorem 6's bound, which needs no log-Sobolev inequality and grows like G^2 t / 4."""
    return kl_bound(constants, time, 1.0)


def kl_bound_integral(constants: KlConstants, time: float, young: float) -> float:
    """Returns Theorem 2's integral form, never above the closed form: the rate improves as e^{-t} B
    shrinks.

    int_0^t exp(-2 (1-c) lambda int_s^t e^{-B e^{-u}} du) b_c(s) ds, where the inner integral is
    E_1(B e^{-t}) - E_1(B e^{-s}); the outer one is evaluated numerically, its error estimate added.
    """
    closed_form = kl_bound(constants, time, young)
    time, young = float(time), float(young)
    bound = constants.initial_oscillation
    speed = 2.0 * (1.0 - young) * constants.log_sobolev
    forcing = _forcing(constants, young)

    def integrand(since: float) -> float:
        source = sum(a * math.exp(-k * since) for k, a in enumerate(forcing))
        return math.exp(-speed * _damping(bound, since, time)) * source

    edges = _graded_edges(time, speed)
    # Full output in place of warnings: the error estimate is added whatever it is.
    pieces = [
        quad(integrand, low, high, limit=200, full_output=1)[:2]
        for low, high in itertools.pairwise(edges)
    ]
    return min(closed_form, float(sum(value + error for value, error in pieces)))


def _damping(bound: float, since: float, until: float) -> float:
    """int_since^until e^{-B e^{-u}} du, also where B e^{-u} is too small for E_1."""
    first, last = bound * math.exp(-since), bound * math.exp(-until)
    if last > 1e-5:
        return float(exp1(last) - exp1(first))
    return max(0.0, until - since - _entire_part(first) + _entire_part(last))


def _entire_part(x: float) -> float:
    """E_1(x) + log(x) + Euler's constant = x - x^2 / 4 + ..."""
    return x - x * x / 4.0 if x < 1e-5 else float(exp1(x)) + math.log(x) + np.euler_gamma


def _graded_edges(time: float, speed: float) -> list[float]:
    """Pieces of [0, time] that double in length away from both ends.

    The sources live near the start and what is not yet damped near the end, on scales that may be
    much shorter.
    """
    shortest = min(1.0, 1.0 / speed) if speed > 0.0 else 1.0
    edges, length = {0.0, time}, shortest / 8.0
    while length < time / 2.0:
        edges |= {length, time - length}
        length *= 2.0
    return sorted(edges)


def best_young_parameter(constants: KlConstants, time: float) -> tuple[float, float]:
    """Returns (c, bound): the c in (0, 1] that makes Theorem 2's closed form smallest at `time`.

    Every c gives a valid bound, so an imperfect search costs tightness, never validity.
    """
    candidates = np.append(np.linspace(0.01, 0.99, 99), 1.0)
    values = [kl_bound(constants, time, float(c)) for c in candidates]
    best = int(np.argmin(values))
    low = float(candidates[max(0, best - 1)])
    high = float(candidates[min(len(candidates) - 1, best + 1)])
    refined = minimize_scalar(
        lambda c: kl_bound(constants, time, float(c)), bounds=(low, high), method="bounded"
    )
    if refined.fun < values[best]:
        return float(refined.x), float(refined.fun)
    return float(candidates[best]), float(values[best])


def approximate_dp_delta(constants: KlConstants, time: float, epsilon: float) -> float:
    """Returns Theorem 4's delta = min(1, H_bar(t) / epsilon) at the best Young parameter, epsilon >
    0.

    From E_eps(P || Q) <= KL(P || Q) / epsilon.
    """
    epsilon = check_real("epsilon", epsilon, above=0.0)
    return min(1.0, best_young_parameter(constants, time)[1] / epsilon)


def _forcing(constants: KlConstants, young: float) -> tuple[float, float, float]:
    """A_1, A_2, A_3: the coefficients of 1, e^{-t} and e^{-2t}."""
    bound = constants.initial_oscillation
    return (
        constants.gradient_distance**2 / (4.0 * young),
        constants.target_log_ratio * bound / 2.0 + 2.0 * bound,
        bound**2 / 16.0,
    )


def _convolution(rate: float, decay: float, time: float) -> float:
    """int_0^t e^{-rate (t - s)} e^{-decay s} ds, stable where the two rates meet."""
    gap = (rate - decay) * time
    if abs(gap) < 1e-8:
        return time * math.exp(-decay * time)
    if gap > 0.0:
        return time * math.exp(-decay * time) * -math.expm1(-gap) / gap
    return time * math.exp(-rate * time) * math.expm1(gap) / gap
