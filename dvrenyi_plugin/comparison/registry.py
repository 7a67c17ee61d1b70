"""The mechanisms and testers of the side-by-side comparison, and how a user adds their own.

A file given as --extra_module adds to both lists when it is loaded:

    from dvrenyi_plugin.comparison.registry import AuditSubject, register_mechanism, register_tester

    @register_mechanism("my_mechanism")
    def my_mechanism(broken: bool, seed: int) -> AuditSubject: ...

    @register_tester("my_tester", family="mine")
    def my_tester(task: TesterTask) -> PropertyTester: ...
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dvrenyi_plugin._internal.limits import CheckedSettings, NotNegative
from dvrenyi_plugin._internal.validation import check_choice, check_int, check_order
from dvrenyi_plugin.interfaces import (
    ApproximateDp,
    Mechanism,
    NeighboringDatasets,
    PrivacyProperty,
    PropertyTester,
    RenyiDp,
    as_privacy_property,
)

RENYI, DELTA = "renyi", "delta"
# The family of this package's own testers.
OWN_FAMILY = "dvrenyi_plugin"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.]*")


class NotApplicableError(Exception):
    """Raised by a tester's builder when the tester cannot test this mechanism's claim."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSubject(CheckedSettings):
    """A mechanism on one pair of neighbours, and what it claims.

    Attributes:
      mechanism: called as mechanism(dataset, num_samples); rows independent, fresh at every call.
      datasets: a pair of neighbours.
      renyi: the Rényi DP claim.
      approximate: an (epsilon, delta) claim for testers that test no other; None if there is none.
        It should be one that the broken variant breaks.
      true_divergence: larger of the exact D_alpha of both directions, at the claim's order; None if
        not known.
      true_delta: larger of the exact hockey-stick divergences at the approximate claim's epsilon;
        None if not known.
    """

    mechanism: Mechanism
    datasets: NeighboringDatasets[Any]
    renyi: RenyiDp
    approximate: ApproximateDp | None = None
    true_divergence: NotNegative | None = None
    true_delta: NotNegative | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.renyi.alpha)

    def truth(self, scale: str) -> float | None:
        """Returns the true value on a tester's scale, `RENYI` or `DELTA`."""
        return self.true_divergence if scale == RENYI else self.true_delta


@dataclasses.dataclass(frozen=True, kw_only=True)
class TesterTask:
    """What a tester is built for.

    Attributes:
      renyi: the Rényi DP claim under test.
      approximate: the (epsilon, delta) claim; None if the subject has none.
      num_samples: samples of each law.
      dimension: columns of a sample.
      output_range: an interval that holds the first column of samples drawn beforehand and not used
        in the test.
      seed: of the tester's randomness.
    """

    renyi: PrivacyProperty
    approximate: PrivacyProperty | None
    num_samples: int
    dimension: int
    output_range: tuple[float, float]
    seed: int

    @property
    def alpha(self) -> float:
        """Order of the Rényi claim."""
        assert self.renyi.renyi_dp is not None
        return self.renyi.renyi_dp.alpha

    @property
    def approximate_dp(self) -> ApproximateDp:
        """The (epsilon, delta) claim.

        Raises:
          NotApplicableError: there is none.
        """
        if self.approximate is None or self.approximate.approximate_dp is None:
            raise NotApplicableError("the mechanism makes no (epsilon, delta) claim")
        return self.approximate.approximate_dp


def make_tester_task(
    subject: AuditSubject,
    num_samples: int,
    dimension: int,
    output_range: tuple[float, float],
    seed: int,
) -> TesterTask:
    """Returns the task of testing a subject."""
    approximate = subject.approximate
    return TesterTask(
        renyi=as_privacy_property(subject.renyi),
        approximate=None if approximate is None else as_privacy_property(approximate),
        num_samples=num_samples,
        dimension=dimension,
        output_range=output_range,
        seed=seed,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegisteredMechanism:
    """A mechanism of the comparison.

    Attributes:
      name: small letters, digits, "_" and ".".
      build: from (broken, seed) to a subject. The broken one claims what the honest one does, and
        its true divergence is at least twice that.
      pool_size: None for a mechanism that is cheap to sample; else samples a dataset that are drawn
        once, kept, and cut into disjoint parts, one a repeat.
      quick: whether --quick includes it.
      source: fingerprint of the user's file that registered it; empty for an importable module.
    """

    name: str
    build: Callable[[bool, int], AuditSubject]
    pool_size: int | None = None
    quick: bool = True
    source: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegisteredTester:
    """A tester of the comparison.

    Attributes:
      name: small letters, digits, "_" and ".".
      build: from a task to a tester. May raise NotApplicableError.
      family: heading under which it is listed.
      scale: `RENYI` if its bounds are on D_alpha, `DELTA` if they are on delta at the claim's
        epsilon.
      valid_at_stated_level: False for a method whose stated failure probability is known not to
        hold; its false alarms are reported and not counted against the comparison.
      slow: whether it gets the smaller number of repeats.
      quick: whether --quick includes it.
      source: fingerprint of the user's file that registered it; empty for an importable module.
    """

    name: str
    build: Callable[[TesterTask], PropertyTester]
    family: str = "added"
    scale: str = RENYI
    valid_at_stated_level: bool = True
    slow: bool = False
    quick: bool = True
    source: str = ""


_MECHANISMS: dict[str, RegisteredMechanism] = {}
_TESTERS: dict[str, RegisteredTester] = {}
_LOADED_FILES: set[str] = set()
_running_source = ""  # of the user's file that is being loaded


def register_mechanism(
    name: str, *, pool_size: int | None = None, quick: bool = True
) -> Callable[[Callable[[bool, int], AuditSubject]], Callable[[bool, int], AuditSubject]]:
    """Returns a decorator that adds a builder of subjects to the comparison; see
    `RegisteredMechanism`.

    Raises:
      ValueError: the name is taken or malformed.
    """
    _check_name(name, _MECHANISMS, "mechanism")
    if pool_size is not None:
        pool_size = check_int("pool_size", pool_size, at_least=1)

    def register(build: Callable[[bool, int], AuditSubject]) -> Callable[[bool, int], AuditSubject]:
        _MECHANISMS[name] = RegisteredMechanism(
            name=name, build=build, pool_size=pool_size, quick=quick, source=_running_source
        )
        return build

    return register


def register_tester(
    name: str,
    *,
    family: str = "added",
    scale: str = RENYI,
    valid_at_stated_level: bool = True,
    slow: bool = False,
    quick: bool = True,
) -> Callable[[Callable[[TesterTask], Any]], Callable[[TesterTask], Any]]:
    """Returns a decorator that adds a builder of testers to the comparison; see `RegisteredTester`.

    Raises:
      ValueError: the name is taken or malformed, the family is no line of text, or the scale is
        unknown.
    """
    _check_name(name, _TESTERS, "tester")
    if not isinstance(family, str) or not family.strip() or len(family.splitlines()) != 1:
        raise ValueError(f"family must be one line of text, got {family!r}")
    check_choice("scale", scale, (RENYI, DELTA))

    def register(build: Callable[[TesterTask], Any]) -> Callable[[TesterTask], Any]:
        _TESTERS[name] = RegisteredTester(
            name=name,
            build=build,
            family=family,
            scale=scale,
            valid_at_stated_level=valid_at_stated_level,
            slow=slow,
            quick=quick,
            source=_running_source,
        )
        return build

    return register


def load_modules(modules: Sequence[str]) -> None:
    """Imports modules, dotted names or paths ending in .py, so that what they register is known.

    A file that was loaded before is not run again.

    Raises:
      ValueError: there is no such file, or it cannot be run; the message names the file and the
        cause.
    """
    for module in modules:
        if not module.endswith(".py"):
            importlib.import_module(module)
            continue
        path = os.path.abspath(module)
        if path in _LOADED_FILES:
            continue
        if not os.path.isfile(path):
            raise ValueError(f"extra_module must be a file that exists, got {module!r}")
        before = set(_MECHANISMS), set(_TESTERS)
        try:
            _run_file(path)
        except (Exception, SystemExit) as error:
            for registered, names in ((_MECHANISMS, before[0]), (_TESTERS, before[1])):
                for name in set(registered) - names:
                    del registered[name]
            raise ValueError(
                f"extra_module {module!r} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if (set(_MECHANISMS), set(_TESTERS)) == before:
            raise ValueError(
                f"extra_module {module!r} must register a mechanism or a tester, it registers"
                f" nothing"
            )
        _LOADED_FILES.add(path)


def mechanism_names() -> tuple[str, ...]:
    """Returns the registered mechanisms' names, in order of registration."""
    return tuple(_MECHANISMS)


def tester_names() -> tuple[str, ...]:
    """Returns the registered testers' names, in order of registration."""
    return tuple(_TESTERS)


def find_mechanism(name: str) -> RegisteredMechanism:
    """Returns a registered mechanism.

    Raises:
      ValueError: unknown; the message lists what is known.
    """
    return _MECHANISMS[check_choice("mechanism", name, tuple(_MECHANISMS))]


def find_tester(name: str) -> RegisteredTester:
    """Returns a registered tester.

    Raises:
      ValueError: unknown; the message lists what is known.
    """
    return _TESTERS[check_choice("tester", name, tuple(_TESTERS))]


def _check_name(name: str, registered: dict[str, Any], kind: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must be of small letters, digits, '_' and '.', got {name!r}")
    if name in registered:
        raise ValueError(f"name must be new, got {name!r}, a {kind} that is registered already")


def _run_file(path: str) -> None:
    # Named after its path, so that two files called the same do not replace each other.
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    name = f"_dvrenyi_extra_{digest}"
    global _running_source
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look modules up here
    with open(path, "rb") as file:
        _running_source = hashlib.sha256(file.read()).hexdigest()[:12]
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _running_source = ""


__all__ = [
    "DELTA",
    "OWN_FAMILY",
    "RENYI",
    "AuditSubject",
    "NotApplicableError",
    "RegisteredMechanism",
    "RegisteredTester",
    "TesterTask",
    "find_mechanism",
    "find_tester",
    "load_modules",
    "make_tester_task",
    "mechanism_names",
    "register_mechanism",
    "register_tester",
    "tester_names",
]
