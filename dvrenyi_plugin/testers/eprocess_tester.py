"""What the two testers on an e-process share: one audit of given samples, and one of a stream."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvrenyi_plugin._internal.streams import streams_of
from dvrenyi_plugin._internal.validation import check_failure_probability, check_sample_pair
from dvrenyi_plugin.bounds.eprocess import EProcess, sample_size_warm_up
from dvrenyi_plugin.critics.fitters import LogRatioFitter, named_fitter
from dvrenyi_plugin.testers.base import BoundResult, BoundTester, fewest_samples

_Process = TypeVar("_Process", bound=EProcess)


class EProcessTesterConfig(Protocol):
    """The settings that both testers have; each config's docstring says what they mean."""

    @property
    def privacy_property(self) -> Any: ...

    @property
    def log_ratio(self) -> str: ...

    @property
    def warm_up(self) -> int | None: ...

    @property
    def seed(self) -> int: ...


class EProcessTester(BoundTester, Generic[_Process]):
    """A property tester whose samples bet one after another against the claim.

    Nothing is carried from one audit to the next: the same samples give the same bound. For samples
    that are still arriving, `start` returns a process to update.

    Args:
      config: what to test and how.
      claimed_limits: the most that the claim allows, one for each candidate process; the first is
        that of `start`.
    """

    _METHOD: ClassVar[str]
    # Pairs before the first bet when nobody knows how many will come.
    _STREAM_WARM_UP: ClassVar[int]

    def __init__(self, config: EProcessTesterConfig, claimed_limits: tuple[float, ...]) -> None:
        super().__init__(config.privacy_property, claimed_limits[0])
        self._settings = config
        self._claimed_limits = claimed_limits
        self._order_stream, self._fit_stream = streams_of("tester", config.seed, 2)

    def audit(
        self, samples1: ArrayLike, samples2: ArrayLike, failure_probability: float
    ) -> BoundResult:
        """Returns a lower bound on what the class says is bounded, with what decided it.

        The bound exceeds the truth with probability at most `failure_probability`, for any
        mechanism and any sample size. The samples must be independent draws; they are taken in a
        random order of the configured seed.

        Args:
          samples1: independent outputs on the first dataset, shape (n,) or (n, d).
          samples2: independent outputs on the second dataset, shape (m,) or (m, d); m may differ
            from n.
          failure_probability: one-sided, in (0, 1), for this one statement.

        Raises:
          ValueError: malformed samples, fewer than 2 a side, or a failure probability outside
            (0, 1).
        """
        beta = check_failure_probability(failure_probability)
        first, second = check_sample_pair(samples1, samples2)
        rng = np.random.default_rng(self._order_stream)
        first, second = rng.permutation(first), rng.permutation(second)
        pairs = min(len(first), len(second))
        warm_up = self._warm_up(pairs)
        index = self._choose(first, second, warm_up)
        process = self._new_process(index, beta, warm_up)
        process.update(first, second)
        return self._result(
            process,
            index,
            method=self._METHOD,
            failure_probability=beta,
            num_samples=(len(first), len(second)),
            fewest=fewest_samples(functools.partial(self._can_refute, beta), pairs),
            details={"warm_up_pairs": warm_up},
        )

    def start(self, failure_probability: float) -> _Process:
        """Returns a process for samples that arrive in batches, which are taken as they come.

        The claim is refuted, at any time, when the process's `lower_bound` exceeds it.

        Args:
          failure_probability: one-sided, in (0, 1), over all times at once.
        """
        beta = check_failure_probability(failure_probability)
        return self._new_process(0, beta, self._settings.warm_up or self._STREAM_WARM_UP)

    def result_of(self, process: _Process, failure_probability: float) -> BoundResult:
        """Returns what a process of `start` has certified by now, with what decided it.

        Args:
          process: that was started.
          failure_probability: that it was started with.
        """
        can_refute = functools.partial(process.can_reject, self._claimed_limits[0])
        return self._result(
            process,
            0,
            method=f"{self._METHOD}, anytime-valid",
            failure_probability=failure_probability,
            num_samples=process.num_samples,
            fewest=fewest_samples(can_refute, process.num_pairs),
        )

    def _result(
        self,
        process: _Process,
        index: int,
        *,
        method: str,
        failure_probability: float,
        num_samples: tuple[int, int],
        fewest: float | None,
        details: Mapping[str, Any] = MappingProxyType({}),
    ) -> BoundResult:
        limit, bound = self._claimed_limits[index], process.lower_bound
        certify1, certify2 = process.num_certifying
        return BoundResult(
            lower_bound=bound,
            point_estimate=self._point_estimate(process),
            claimed_limit=limit,
            refuted=bound > limit,
            failure_probability=failure_probability,
            method=method,
            alpha=self._alpha(index),
            num_fit=(num_samples[0] - certify1, num_samples[1] - certify2),
            num_certify=(certify1, certify2),
            seed=self._settings.seed,
            fewest_samples=fewest,
            details=MappingProxyType(
                {
                    **self._details(),
                    **details,
                    "log_ratio_family": process.log_ratio_family,
                    "log_e_value_of_claim": process.log_e_value(limit),
                }
            ),
        )

    @abc.abstractmethod
    def _new_process(self, index: int, beta: float, warm_up: int) -> _Process:
        """Returns a candidate process."""

    @abc.abstractmethod
    def _details(self) -> dict[str, Any]:
        """Returns the details of a result that only this tester has."""

    def _point_estimate(self, process: _Process) -> float:
        return process.point_estimate()

    def _alpha(self, index: int) -> float | None:
        return None

    def _choose(self, first: NDArray[Any], second: NDArray[Any], warm_up: int) -> int:
        """Returns which candidate bets, chosen on samples that come before the first bet."""
        return 0

    def _fitter(self) -> LogRatioFitter:
        return named_fitter(self._settings.log_ratio, self._fit_stream)

    def _warm_up(self, pairs: int) -> int:
        return self._settings.warm_up or sample_size_warm_up(pairs)

    def _can_refute(self, beta: float, pairs: int) -> bool:
        warm_up = self._warm_up(pairs)
        return any(
            self._new_process(index, beta, warm_up).can_reject(limit, pairs)
            for index, limit in enumerate(self._claimed_limits)
        )
