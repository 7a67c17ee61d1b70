"""Pictures of a sampler's flow: densities, log ratio and its envelopes, distance to the target."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid_flow import LANGEVIN, SHK, FlowPath, run_flow
from dvrenyi_plugin.interfaces import NeighboringDatasets
from dvrenyi_plugin.mechanisms.exponential.flows import FlowMechanism
from dvrenyi_plugin.privacy.bounded_range import kullback_leibler_of_range
from dvrenyi_plugin.privacy.divergences import kullback_leibler_from_log_masses
from dvrenyi_plugin.reports.figures import BLACK, BLUE, GREEN, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAMES = 60
_SMALLEST_KL = 1e-12


@dataclasses.dataclass(frozen=True)
class FlowCurves:
    """A sampler's laws along its run on two datasets, and the Langevin law on the first.

    Attributes:
      times: shape (k,).
      path1: laws on the first dataset.
      path2: laws on the second dataset.
      log_ratio: shape (k,), sup |log rho_t / rho'_t|, exact.
      data_free_envelope: shape (k,), the bound on it for all neighbours, were the run stopped at
        that time.
      claimed_epsilon: pure-DP level claimed for the release.
      pair_envelope: shape (k,), the bound that knows this pair's exact target ratio.
      kl_to_target: shape (k,), KL(rho_t || pi) on the first dataset, exact.
      kl_bound: shape (k,), its bound.
      langevin_kl_to_target: shape (k,), the same without the reaction, exact.
    """

    times: NDArray[np.float64]
    path1: FlowPath
    path2: FlowPath
    log_ratio: NDArray[np.float64]
    data_free_envelope: NDArray[np.float64]
    claimed_epsilon: float
    pair_envelope: NDArray[np.float64]
    kl_to_target: NDArray[np.float64]
    kl_bound: NDArray[np.float64]
    langevin_kl_to_target: NDArray[np.float64]


def flow_curves(mechanism: FlowMechanism, pair: NeighboringDatasets[Any]) -> FlowCurves:
    """Returns what the pictures show, at about sixty times of the run."""
    config = mechanism.config
    num_steps = config.flow_config(SHK).steps_for(config.run_time)
    every = max(1, num_steps // _FRAMES)
    path1, path2 = (mechanism.flow(dataset, every) for dataset in pair)
    # On the times of the run that was made: a broken sampler may stop early.
    langevin = run_flow(
        mechanism.grid,
        mechanism.potential(pair[0]),
        float(path1.times[-1]),
        mechanism.initial_log_density,
        dataclasses.replace(
            config.flow_config(LANGEVIN, every), num_steps=max(1, len(path1.step_times) - 1)
        ),
    )
    axes = mechanism.grid.cell_axes()
    claimed, known = mechanism.certificate, mechanism.pair_certificate(*pair)
    return FlowCurves(
        times=path1.times,
        path1=path1,
        path2=path2,
        log_ratio=np.abs(path1.log_masses - path2.log_masses).max(axis=axes),
        data_free_envelope=_envelope(claimed, path1.times),
        claimed_epsilon=claimed.pure_dp().value,
        pair_envelope=_envelope(known, path1.times),
        kl_to_target=_kl_to_target(path1),
        kl_bound=np.array(
            [
                kullback_leibler_of_range(
                    dataclasses.replace(known, time=float(t)).decay * known.initial_oscillation1
                )
                for t in path1.times
            ]
        ),
        langevin_kl_to_target=_kl_to_target(langevin),
    )


def plot_densities(curves: FlowCurves) -> Figure:
    """Returns the marginal density of the first coordinate at five times, with the target."""
    figure, (axis,) = new_figure(1, height=3.6)
    path = curves.path1
    grid = path.grid
    first = grid.axes[0]
    others = tuple(range(1, grid.dimension))

    def marginal(log_masses: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(log_masses).sum(axis=others) / first.width)

    chosen = sorted({round(k) for k in np.linspace(0, len(curves.times) - 1, 5)})
    for k in chosen:
        shade = 0.25 + 0.75 * k / max(1, chosen[-1])
        axis.plot(
            first.midpoints,
            marginal(path.log_masses[k]),
            color=BLUE,
            alpha=shade,
            label=f"t = {curves.times[k]:.2g}",
        )
    axis.plot(
        first.midpoints, marginal(path.log_target), color=BLACK, linestyle=":", label="target"
    )
    axis.plot(
        first.midpoints,
        marginal(curves.path2.log_masses[-1]),
        color=ORANGE,
        linestyle="--",
        label=f"dataset2, t = {curves.times[-1]:.2g}",
    )
    axis.set_xlabel("first coordinate of the release")
    axis.set_ylabel("density")
    # Above the axes: a density may run through any corner inside.
    axis.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return figure


def plot_log_ratio(curves: FlowCurves) -> Figure:
    """Returns the exact log ratio over time, the two envelopes and the claim for the release."""
    figure, (axis,) = new_figure(1, height=3.6)
    axis.plot(
        curves.times,
        curves.data_free_envelope,
        color=ORANGE,
        linestyle="--",
        label="envelope for all neighbours",
    )
    # The release is held to this line: a broken sampler that stops early hides under the envelope
    # of its real time.
    axis.axhline(curves.claimed_epsilon, color=BLACK, linestyle=":", label="claim for the release")
    axis.plot(
        curves.times,
        curves.pair_envelope,
        color=GREEN,
        linestyle="-.",
        label="envelope for this pair",
    )
    axis.plot(curves.times, curves.log_ratio, color=BLUE, label="exact, program as run")
    axis.set_yscale("symlog", linthresh=max(1e-3, float(curves.log_ratio.max())))
    axis.set_xlabel("flow time t")
    axis.set_ylabel("largest |log density ratio|")
    axis.legend(frameon=False, fontsize=8)
    return figure


def plot_distance_to_target(curves: FlowCurves) -> Figure:
    """Returns KL(rho_t || pi) over time for the sampler and for plain Langevin."""
    figure, (axis,) = new_figure(1, height=3.6)
    for values, colour, style, name in (
        (curves.kl_bound, ORANGE, "--", "bound for SHK"),
        (curves.langevin_kl_to_target, GREEN, "-.", "Langevin, exact"),
        (curves.kl_to_target, BLUE, "-", "this sampler, exact"),
    ):
        shown = np.maximum(values, _SMALLEST_KL)
        axis.plot(curves.times, shown, color=colour, linestyle=style, label=name)
    axis.set_yscale("log")
    axis.set_xlabel("flow time t")
    axis.set_ylabel("KL to the target / nat")
    axis.legend(frameon=False, fontsize=8)
    return figure


def _envelope(certificate: Certificate, times: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array(
        [dataclasses.replace(certificate, time=float(t)).pure_dp().value for t in times]
    )


def _kl_to_target(path: FlowPath) -> NDArray[np.float64]:
    target = path.log_target.ravel()
    return np.array(
        [kullback_leibler_from_log_masses(law.ravel(), target) for law in path.log_masses]
    )
