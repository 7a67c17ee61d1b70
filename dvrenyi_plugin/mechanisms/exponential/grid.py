"""What the samplers on a grid share: the law of a release is known cell by cell, and so is every
divergence.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import math
import pickle
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin._internal.limits import Allowed, CheckedSettings, Int, Seed
from dvrenyi_plugin._internal.ranges import check_max_jump, check_positive, check_size
from dvrenyi_plugin._internal.user_code import call_user_code, user_numbers
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.flows.grid import Grid
from dvrenyi_plugin.flows.transport.generator import DEFAULT_MAX_JUMP, check_resolution
from dvrenyi_plugin.interfaces import PrivacyProperty, check_num_samples
from dvrenyi_plugin.mechanisms.exponential.certified_claims import check_alphas, claims_of
from dvrenyi_plugin.mechanisms.exponential.loss_bounds import check_loss_values
from dvrenyi_plugin.mechanisms.exponential.losses import Loss
from dvrenyi_plugin.mechanisms.simple.additive_noise import CallStreams
from dvrenyi_plugin.privacy.divergences import renyi_from_log_masses

FloatArray = NDArray[np.float64]

_DEFAULT_CELLS = {1: 256, 2: 64, 3: 24}
_LAWS_KEPT = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridMechanismConfig(CheckedSettings):
    """Settings of every sampler on a grid.

    Attributes:
      loss: one of `losses`, with its domain, bounds and sensitivity.
      inverse_temperature: beta > 0; the potential is beta times the loss, and its oscillation at
        most 1e100.
      cells: cells of every axis, >= 3; None takes 256, 64 or 24 in one, two or three dimensions.
      alphas: orders at which Rényi DP is claimed, each > 1.
      max_jump: largest difference of the potential between neighbouring cells; inf for no check. A
        loss with a known slope is checked here for all datasets at once, so that no dataset is
        refused later; one without is checked on every dataset, and a refusal tells something about
        it.
      seed: where all randomness comes from, >= 0.
    """

    loss: Loss
    inverse_temperature: Annotated[float, Allowed(check_positive)]
    cells: Annotated[int, Int(at_least=3)] | None = None
    alphas: tuple[float, ...] = (2.0,)
    max_jump: Annotated[float, Allowed(check_max_jump)] = DEFAULT_MAX_JUMP
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.loss) or not hasattr(self.loss, "sensitivity"):
            raise ValueError(
                f"loss must be a loss of dvrenyi_plugin.mechanisms.exponential.losses (wrap a"
                f" function in CallableLoss), got {self.loss!r}"
            )
        # As a float: a float32 would round the claim.
        check_size("inverse_temperature times the loss's oscillation", self.potential_oscillation)
        check_size("inverse_temperature times the loss's sensitivity", self.oscillation_distance)
        check_alphas(self.alphas)
        if self.max_jump != math.inf:
            self._check_every_dataset_resolved()

    def _check_every_dataset_resolved(self) -> None:
        axis, slope = self.grid.axes[0], self.loss.slope
        if slope is None:
            return
        jump = self.inverse_temperature * slope * axis.width
        if jump > self.max_jump:
            raise ValueError(
                "grid too coarse for the potential: for some dataset neighbouring cells may differ"
                f" by up to {jump:.4g}, allowed is max_jump = {self.max_jump:g}; about"
                f" {axis.cells * jump / self.max_jump:.4g} cells instead of {axis.cells} would do"
            )

    @property
    def grid(self) -> Grid:
        """The grid that releases are drawn from."""
        dimension = self.loss.dimension
        cells = self.cells or _DEFAULT_CELLS[dimension]
        return Grid((self.loss.axis(cells),) * dimension)

    @property
    def oscillation_distance(self) -> float:
        """beta times the sensitivity: bounds osc(V_D - V_D') over neighbours."""
        return self.inverse_temperature * self.loss.sensitivity

    @property
    def potential_oscillation(self) -> float:
        """beta times the loss's oscillation: bounds osc(V_D) over datasets."""
        return self.inverse_temperature * self.loss.oscillation


class GridMechanism(abc.ABC):
    """Releases a cell of a grid, drawn from a known law, plus a uniform offset inside the cell.

    A release has exactly the law `grid_law`, up to the rounding of floating-point numbers: the law
    is computed with relative errors near 1e-12, and a draw uses 53 random bits, so that an event's
    probability is off by at most about (number of cells) 2^-53. Read pure-DP claims with that delta
    beside them.
    """

    config: GridMechanismConfig

    def __init__(self, config: GridMechanismConfig) -> None:
        self.config = config
        self.grid = config.grid
        self._midpoints = self.grid.midpoints()
        self._streams = CallStreams(config.seed)
        self._laws: collections.OrderedDict[bytes, FloatArray] = collections.OrderedDict()

    @property
    @abc.abstractmethod
    def certificate(self) -> Certificate:
        """What holds for every pair of neighbours, without a look at data."""

    @abc.abstractmethod
    def _compute_law(self, dataset: Any) -> FloatArray:
        """Returns log masses of shape grid.shape."""

    @property
    def claimed_privacy(self) -> list[PrivacyProperty]:
        """Pure DP, zCDP and Rényi DP at every order of `alphas`, from the certificate."""
        return claims_of(self.certificate, self.config.alphas)

    def __call__(self, dataset: Any, num_samples: int) -> FloatArray:
        """Returns independent releases, shape (num_samples, d).

        Args:
          dataset: what the loss takes.
          num_samples: >= 1. Every call of one object uses fresh randomness; a new object with the
            same config repeats the calls.
        """
        num_samples = check_num_samples(num_samples)
        log_masses = self.grid_law(dataset)
        return self.grid.draw(log_masses, num_samples, self._streams.next_generator())

    def grid_law(self, dataset: Any) -> FloatArray:
        """Returns the exact law of one release as log masses of the cells, shape grid.shape,
        read-only.

        Raises:
          ValueError: a malformed dataset, a loss outside its bounds, a grid too coarse for the
            potential.
        """
        try:
            key = pickle.dumps(dataset)
        except (pickle.PicklingError, AttributeError, TypeError):
            return self._read_only_law(dataset)  # cannot be compared by value, so it is not kept
        if key not in self._laws:
            self._laws[key] = self._read_only_law(dataset)
            if len(self._laws) > _LAWS_KEPT:
                self._laws.popitem(last=False)
        self._laws.move_to_end(key)
        return self._laws[key]

    def _read_only_law(self, dataset: Any) -> FloatArray:
        law = np.array(self._compute_law(dataset))
        law.setflags(write=False)
        return law

    def exact_renyi_divergence(self, dataset1: Any, dataset2: Any, alpha: float) -> float:
        """Returns D_alpha(law on dataset1 || law on dataset2) of the program as run."""
        return renyi_from_log_masses(
            alpha, self.grid_law(dataset1).ravel(), self.grid_law(dataset2).ravel()
        )

    def loss_values(self, dataset: Any) -> FloatArray:
        """Returns the loss at the cells' midpoints, shape grid.shape, checked against its
        bounds.
        """
        loss = self.config.loss
        values = user_numbers(
            "loss",
            call_user_code("loss", loss, self._midpoints, dataset),
            (self.grid.num_cells,),
            finite=False,
        )
        return check_loss_values(values, loss.bounds).reshape(self.grid.shape)

    def expected_excess_loss(self, dataset: Any) -> float:
        """Returns E[L_D(release)] - min L_D, with the loss read at midpoints."""
        losses = self.loss_values(dataset)
        # The least loss first: at a high inverse temperature the difference would lose its digits.
        return float(np.sum(np.exp(self.grid_law(dataset)) * (losses - losses.min())))

    def potential(self, dataset: Any) -> FloatArray:
        """Returns beta times the loss, shape grid.shape.

        Raises:
          ValueError: a loss outside its bounds, or a grid too coarse for the potential.
        """
        values = self.config.inverse_temperature * self.loss_values(dataset)
        check_resolution(self.grid, values, self.config.max_jump)
        return values
