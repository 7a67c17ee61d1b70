"""Pairs that sequential auditors need to refute a false claim: ours and two published ones.

    python benchmarks/sequential_auditors.py --models=1500 --losses=FILE.npz

Every auditor sees the same samples, tests the same claim at failure probability 0.05, and stops at
its first refutation. The published ones are rewritten here from what their papers say:

- Kernel: the betting test on the maximum mean discrepancy of T. González, M. Dulce-Rubio, A.
  Ramdas and M. Ribero, "Sequentially Auditing Differential Privacy" (2025), arXiv:2509.07055: a
  witness function by online gradient ascent, a stake by the online Newton step. The claim enters
  by the largest discrepancy that it allows, sqrt(2) times its total variation, the smallest of all
  (epsilon, delta) that it implies.
- Classifier: the tests of a trade-off curve at growing sample sizes of T. Kutta, M. Dunsche, Y. Wei
  and V. Zikas, "Sequential Auditing for f-Differential Privacy" (2026), arXiv:2602.06518: a
  likelihood ratio, known or by kernel density estimates, with the threshold whose errors lie
  farthest below the curve along the diagonal. Written after the paper's summary, with exact
  binomial bounds, looks at sizes that grow by a quarter, and level 6 / (pi k)^2 of the whole at
  look k: its constants are ours.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from quick import parse_arguments, scratch_file
from scipy.stats import beta, gaussian_kde

from dvrenyi_plugin.bounds.trade_off_eprocess import TradeOffEProcess
from dvrenyi_plugin.privacy.claim_families import SingleCurveFamily
from dvrenyi_plugin.privacy.trade_off import ApproximateDpCurve, GaussianCurve, TradeOffCurve
from dvrenyi_plugin.privacy.trade_off_claims import dp_sgd_curve

Array = NDArray[np.float64]
LogRatio = Callable[[Array], Array]

FAILURE_PROBABILITY = 0.05
LEAKS = (1.0, 1.25, 1.5, 2.0, 4.0)
# Of the subsampled Gaussian mechanism: one step, of which a quarter sees the record.
RATE, NOISE = 0.25, 0.5
_KERNEL_WARM_UP = 20
_FIRST_LOOK, _GROWTH = 20, 1.25


class Auditor(Protocol):
    """Sees pairs while they arrive."""

    def refutes(self, q: Array, p: Array) -> bool:
        """Takes the next pairs, shape (n,) each, and returns whether the claim is refuted."""


class TradeOff:
    """The trade-off e-process."""

    def __init__(self, curve: TradeOffCurve) -> None:
        self._process = TradeOffEProcess(SingleCurveFamily(curve), FAILURE_PROBABILITY)

    def refutes(self, q: Array, p: Array) -> bool:
        self._process.update(q[:, None], p[:, None])
        return self._process.lower_bound > 0.0


class Kernel:
    """The betting test on the maximum mean discrepancy, with a Gaussian kernel whose width is the
    median distance of the first pairs, which are not bet on.
    """

    def __init__(self, curve: TradeOffCurve) -> None:
        self._allowed = math.sqrt(2.0) * curve.delta(0.0)
        self._centres: list[float] = []
        self._weights = np.zeros(0)
        self._squared_norm, self._squared_steps = 0.0, 0.0
        self._width = 0.0
        self._stake, self._curvature = 0.0, 1.0
        self._log_wealth = 0.0

    def refutes(self, q: Array, p: Array) -> bool:
        for pair in zip(q, p, strict=True):
            self._centres.extend(pair)
            if len(self._centres) <= 2 * _KERNEL_WARM_UP:
                self._weights = np.zeros(len(self._centres))
                distances = np.abs(np.subtract.outer(self._centres, self._centres))
                self._width = float(np.median(distances[distances > 0])) or 1.0
            elif self._bet():
                return True
        return False

    def _bet(self) -> bool:
        centres, point = np.array(self._centres[:-2]), self._centres[-2:]
        near = np.exp(-(((centres[:, None] - point) / self._width) ** 2) / 2.0)
        witness = self._weights @ near
        gain = witness[0] - witness[1] - self._allowed
        self._log_wealth += math.log1p(self._stake * gain)
        # Stake: online Newton step on log wealth.
        slope = -gain / (1.0 + self._stake * gain)
        self._curvature += slope**2
        largest = 0.5 / (math.sqrt(2.0) + self._allowed)
        step = 2.0 / (2.0 - math.log(3.0)) * slope / self._curvature
        self._stake = min(max(self._stake - step, 0.0), largest)
        # Witness: gradient ascent on its own gain, kept in the unit ball.
        overlap = math.exp(-(((point[0] - point[1]) / self._width) ** 2) / 2.0)
        gradient_norm = 2.0 - 2.0 * overlap
        self._squared_steps += gradient_norm
        rate = 1.0 / math.sqrt(self._squared_steps) if self._squared_steps else 0.0
        self._squared_norm += 2.0 * rate * (witness[0] - witness[1]) + rate**2 * gradient_norm
        self._weights = np.append(self._weights, [rate, -rate])
        if self._squared_norm > 1.0:
            self._weights /= math.sqrt(self._squared_norm)
            self._squared_norm = 1.0
        return self._log_wealth >= -math.log(FAILURE_PROBABILITY)


class Classifier:
    """Exact tests of one event at growing sample sizes: every second pair chooses the event, the
    others test it.
    """

    def __init__(self, curve: TradeOffCurve, log_ratio: LogRatio | None) -> None:
        self._curve, self._log_ratio = curve, log_ratio
        self._q, self._p = np.zeros(0), np.zeros(0)
        self._next_look, self._looks = _FIRST_LOOK, 0

    def refutes(self, q: Array, p: Array) -> bool:
        self._q, self._p = np.append(self._q, q), np.append(self._p, p)
        if self._q.size < self._next_look:
            return False
        self._looks += 1
        self._next_look = math.ceil(self._next_look * _GROWTH)
        level = FAILURE_PROBABILITY * 6.0 / (math.pi * self._looks) ** 2
        return self._test(level)

    def _test(self, level: float) -> bool:
        learned_q, learned_p = self._q[::2], self._p[::2]
        ratio = self._log_ratio or _density_ratio(learned_q, learned_p)
        threshold = self._threshold(ratio(learned_q), ratio(learned_p))
        inside_q = int(np.count_nonzero(ratio(self._q[1::2]) >= threshold))
        inside_p = int(np.count_nonzero(ratio(self._p[1::2]) >= threshold))
        tested = self._q[1::2].size
        most = beta.ppf(1.0 - level / 2.0, inside_p + 1, tested - inside_p)
        least = beta.ppf(level / 2.0, inside_q, tested - inside_q + 1) if inside_q else 0.0
        most = 1.0 if inside_p == tested else float(most)
        return float(least) > float(self._curve.power(most))

    def _threshold(self, of_q: Array, of_p: Array) -> float:
        """Returns where the errors lie farthest beyond the curve: the side of the largest square
        between them.
        """
        candidates = np.unique(np.concatenate([of_q, of_p]))
        power, size = (
            1.0 - np.searchsorted(np.sort(values), candidates) / values.size
            for values in (of_q, of_p)
        )
        sides = np.linspace(-0.5, 0.5, 101)
        beyond = power[:, None] - sides > self._curve.power(
            np.clip(size[:, None] + sides, 0.0, 1.0)
        )
        return float(candidates[np.argmax(np.where(beyond, sides, -1.0).max(axis=1))])


def _density_ratio(q: Array, p: Array) -> LogRatio:
    of_q, of_p = gaussian_kde(q), gaussian_kde(p)
    return lambda x: np.log(of_q(x) + 1e-300) - np.log(of_p(x) + 1e-300)


class Cell(Protocol):
    """A mechanism with a claim, which leaks more than it."""

    curve: TradeOffCurve

    def draw(self, leak: float, seed: int, pairs: int) -> tuple[Array, Array]:
        """Returns samples with and without the record, shape (pairs,) each."""

    def log_ratio(self, leak: float) -> LogRatio | None:
        """Returns the true log ratio where it is known."""


class Gaussian:
    curve: TradeOffCurve = GaussianCurve(1.0)

    def draw(self, leak: float, seed: int, pairs: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        return rng.normal(leak, 1.0, pairs), rng.normal(0.0, 1.0, pairs)

    def log_ratio(self, leak: float) -> LogRatio:
        return lambda x: leak * x - leak**2 / 2.0


class Laplace:
    curve: TradeOffCurve = ApproximateDpCurve(1.0)

    def draw(self, leak: float, seed: int, pairs: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        return rng.laplace(leak, 1.0, pairs), rng.laplace(0.0, 1.0, pairs)

    def log_ratio(self, leak: float) -> LogRatio:
        # Rounded: the last bits of a sum know which law it is from, and no claim covers them.
        return lambda x: np.round(np.abs(x) - np.abs(x - leak), 9)


class SubsampledGaussian:
    """One step of the Gaussian mechanism with Poisson sampling; a leak divides its noise."""

    curve: TradeOffCurve = dp_sgd_curve(1, NOISE, RATE, "remove")

    def draw(self, leak: float, seed: int, pairs: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        noise = NOISE / leak
        chosen = rng.random(pairs) < RATE
        return rng.normal(chosen, noise), rng.normal(0.0, noise, pairs)

    def log_ratio(self, leak: float) -> LogRatio:
        noise = NOISE / leak
        return lambda x: np.log1p(RATE * np.expm1((x - 0.5) / noise**2))


class DpSgdLosses:
    """Losses of the canary in the default audit of DP-SGD, in a random order of one pool; a leak
    divides its noise.
    """

    curve: TradeOffCurve = GaussianCurve(1.0)

    def __init__(self, models: int, path: pathlib.Path) -> None:
        if not path.exists():
            np.savez(path, **_train(models))
        with np.load(path) as kept:
            self._losses = {name: kept[name] for name in kept.files}

    def draw(self, leak: float, seed: int, pairs: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        # The canary lowers its loss.
        with_canary, without = (
            -rng.permutation(self._losses[f"{side}_{leak:g}"])[:pairs]
            for side in ("with", "without")
        )
        return with_canary, without

    def log_ratio(self, leak: float) -> None:
        return None


def _train(models: int) -> Mapping[str, Array]:
    from dvrenyi_plugin.audits.dp_sgd.experiment import build_dp_sgd_experiment
    from dvrenyi_plugin.audits.dp_sgd.settings import DpSgdExperimentConfig, ModelTrainingConfig
    from dvrenyi_plugin.audits.training.models import train_both_worlds

    losses = {}
    for leak in LEAKS:
        experiment = build_dp_sgd_experiment(DpSgdExperimentConfig(noise_scale=1.0 / leak))
        observations = train_both_worlds(
            experiment.mechanism,
            experiment.pair,
            range(models),
            ModelTrainingConfig(models_per_task=10, num_workers=2, show_progress=False),
        )
        losses[f"with_{leak:g}"] = observations.with_canary[:, 0]
        losses[f"without_{leak:g}"] = observations.without[:, 0]
    return losses


def auditors(cell: Cell, leak: float) -> dict[str, Auditor]:
    """Returns a fresh auditor of every kind; the known ratio is that of the true laws."""
    made: dict[str, Auditor] = {
        "trade-off e-process": TradeOff(cell.curve),
        "kernel": Kernel(cell.curve),
        "classifier, estimated ratio": Classifier(cell.curve, None),
    }
    ratio = cell.log_ratio(leak)
    if ratio is not None:
        made["classifier, known ratio"] = Classifier(cell.curve, ratio)
    return made


def pairs_to_refute(auditor: Auditor, q: Array, p: Array) -> float:
    """Returns after how many pairs the claim is refuted, looking every two pairs; infinity if it is
    not.
    """
    for done in range(0, q.size, 2):
        if auditor.refutes(q[done : done + 2], p[done : done + 2]):
            return min(done + 2, q.size)
    return math.inf


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=4000, help="at most")
    parser.add_argument("--models", type=int, default=1500, help="trained per leak and side")
    parser.add_argument("--losses", help="file that keeps the trained models' losses")
    options = parse_arguments(parser, seeds=1, pairs=30, models=10)
    losses = pathlib.Path(options.losses) if options.losses else scratch_file("losses.npz")
    cells: dict[str, Cell] = {
        "Gaussian": Gaussian(),
        "Laplace": Laplace(),
        "subsampled Gaussian": SubsampledGaussian(),
        "DP-SGD losses": DpSgdLosses(options.models, losses),
    }
    print("Median pairs to refute (share of runs that refute), false alarms where the leak is 1")
    for name, cell in cells.items():
        for leak in LEAKS:
            found: dict[str, list[float]] = {}
            for seed in range(options.seeds):
                q, p = cell.draw(leak, seed, options.pairs)
                for kind, auditor in auditors(cell, leak).items():
                    found.setdefault(kind, []).append(pairs_to_refute(auditor, q, p))
            entries = (
                f"{kind} {statistics.median(counts):g} ({np.isfinite(counts).mean():.2f})"
                for kind, counts in found.items()
            )
            print(f"{name}, leak {leak:g}: {'; '.join(entries)}", flush=True)


if __name__ == "__main__":
    main()
