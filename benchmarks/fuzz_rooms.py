"""What the fuzzer calls, room by room: a room is a part of the package with its examples and what it leaves out.

Every public function and class of a room's modules is found by introspection. A new module joins if its name begins with one
of the room's; a new function joins if its parameters have examples.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fuzz_arguments import Builder, Drawer, call_text
from fuzz_calls import Subject, function_subject
from fuzz_examples import NUMBERS, Examples, audit_examples, claims, flow_examples

import dvrenyi_plugin

_PACKAGE = dvrenyi_plugin.__name__
# Argument validation: the functions that call it are called here, with all that it must refuse.
_CHECKS = "check_"
# Counts of work to do: a large one takes long, as it should.
_SIZES = frozenset(
    [
        "num_samples",
        "num_critics",
        "training_config",
        "num_cells",
        "cells",
        "num_particles",
        "num_ensembles",
        "epochs",
        "training_epochs",
        "num_records",
        "max_epochs",
        "dimension",
        "num_knots",
        "panels",
        "degree",
        "num_categories",
        "num_candidates",
        "max_cells",
        "batch_models",
        "num_workers",
        "max_num_trials",
        "num_random",
        "num_slots",
        "num_features",
        "hidden_sizes",
        "batch_size",
        "num_steps",
        "height",
        "width",
        "num_classes",
        "count",
    ]
)


@dataclasses.dataclass(frozen=True)
class Room:
    """A part of the package.

    Attributes:
      name: for --rooms.
      modules: beginnings of module names, without the package's own: "mechanisms.losses" also stands for
        "mechanisms.grid.losses", so that a module may move into a package inside its own.
      examples: makes the examples beyond those of numbers; later than import, since they import the package.
      sizes: parameters whose large values ask for large work.
      left_out: name of a function, a class or a "Class.method" -> why it is not called.
      takes: which names of those modules are called.
      commands: programs of `binaries`, with flags that keep a run small.
    """

    name: str
    modules: tuple[str, ...]
    examples: Callable[[], Examples] = claims
    sizes: frozenset[str] = _SIZES
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    takes: Callable[[str], bool] = lambda name: True
    commands: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    def subjects(self) -> list[Subject]:
        """Returns everything to call, functions and classes first.

        Raises:
          LookupError: no module is named like one of `modules`: it was moved or renamed.
        """
        for start in self.modules:
            if not _modules((start,)):
                raise LookupError(f"room {self.name}: no module of {_PACKAGE} is named {start}...")
        found = [
            function_subject(f"{module}.{name}", thing, self.left_out.keys())
            for module in _modules(self.modules)
            for name, thing in public_things(module)
            if name not in self.left_out and self.takes(name) and not name.startswith(_CHECKS)
        ]
        return found + [command_subject(name, small) for name, small in self.commands.items()]

    @functools.cached_property
    def all_examples(self) -> Examples:
        """Examples of numbers, of the package's classes, and the room's own, which win."""
        return {**_class_examples(), **NUMBERS, **self.examples()}


def public_things(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the public functions and classes that a module defines, by name."""
    loaded = importlib.import_module(f"{_PACKAGE}.{module}")
    for name, thing in vars(loaded).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != loaded.__name__:
            continue
        if inspect.isfunction(thing) or (inspect.isclass(thing) and _is_called(thing)):
            yield name, thing


def _is_called(kind: type) -> bool:
    is_protocol = getattr(kind, "_is_protocol", False)
    return not (is_protocol or issubclass(kind, BaseException) or inspect.isabstract(kind))


def _modules(beginnings: tuple[str, ...]) -> list[str]:
    names = [
        module.name.removeprefix(_PACKAGE + ".")
        for module in pkgutil.walk_packages(dvrenyi_plugin.__path__, _PACKAGE + ".")
    ]
    return [
        name
        for name in names
        if any(_is_named(name, start) for start in beginnings)
        and not any(part.startswith("_") for part in name.split("."))
    ]


def _is_named(module: str, beginning: str) -> bool:
    package, dot, word = beginning.rpartition(".")
    inside = module.removeprefix(package + dot) if module.startswith(package + dot) else None
    return inside is not None and any(part.startswith(word) for part in inside.split("."))


@functools.cache
def _class_examples() -> Examples:
    """Returns, for every class of the package's public modules, an example that builds one from examples."""
    records = {
        name for room in ROOMS for name, reason in room.left_out.items() if reason is _RECORD
    }
    examples: Examples = {}
    for module in _modules(("",)):
        try:
            things = list(public_things(module))
        except ImportError:  # an optional dependency that is not installed
            continue
        for name, thing in things:
            if inspect.isclass(thing):
                examples[name] = Builder(thing, extremes=name not in records)
    return examples


def command_subject(name: str, small: Mapping[str, str]) -> Subject:
    """Returns a subject that runs a command line in this process: a few flags extreme, the rest as in `small`."""
    program = importlib.import_module(f"{_PACKAGE}.binaries.{name}")
    flags = {flag.name: flag for flag in _flags_of(program)}

    def make_call(drawer: Drawer) -> tuple[str, Callable[[], Any]]:
        values = dict(small)
        for flag in drawer.rng.permutation(sorted(flags.keys() - _FIXED_FLAGS))[
            : drawer.choose(1, 2, 3)
        ]:
            values[str(flag)] = _flag_text(drawer, flags[str(flag)], str(flag))
        arguments = [f"--{flag}={value}" for flag, value in values.items()]

        def call() -> Any:
            with tempfile.TemporaryDirectory() as folder:
                status = _run(program, [name, *arguments, *_output_flag(flags, folder)])
            return None if status in (0, 1, 2) else float("nan")

        return call_text(f"{name}.main", [arguments], {}), call

    return Subject(f"binaries.{name}", make_call)


# Where files go, and what starts processes or runs files.
_FIXED_FLAGS = frozenset(
    [
        "output_dir",
        "store",
        "resume",
        "backend",
        "num_workers",
        "scheduler",
        "extra_module",
        "dp_auditorium",
        "data_dir",
        "help",
    ]
)
_SIZE_FLAGS = frozenset(
    [
        "num_models",
        "num_samples",
        "num_records",
        "steps",
        "repeats",
        "slow_repeats",
        "sample_sizes",
        "cells",
        "num_steps",
        "batch_models",
        "num_canaries",
    ]
)
# Nothing means everything there, which takes long.
_ALL_IF_EMPTY = frozenset(["mechanisms", "testers"])


def _flags_of(program: Any) -> list[Any]:
    values = program.define_flags()
    return [values[name] for name in values]


def _output_flag(flags: Mapping[str, Any], folder: str) -> list[str]:
    return [f"--output_dir={os.path.join(folder, 'out')}"] if "output_dir" in flags else []


def _flag_text(drawer: Drawer, flag: Any, name: str) -> str:
    kind = type(flag.parser).__name__
    if name in _SIZE_FLAGS:
        return str(
            drawer.choose("0", "-1", "1", "2", "x", "", "1.5", "nan", "9" * 400, "2,x", "1e3")
        )
    if kind == "BooleanParser":
        return str(drawer.choose("true", "false", "x"))
    if name in _ALL_IF_EMPTY:
        return str(drawer.choose("x", "../x", "a\nb", ",", "gaussian,gaussian", "threshold,x"))
    words = drawer.choose(
        "", "x", "none", "../x", "a\nb", "é<b>", "\x1b[0m", "/nowhere/x.npz", "1,2", ",", "2,2"
    )
    if kind in ("FloatParser", "IntegerParser", "ListParser") and drawer.rng.random() < 0.8:
        return str(drawer.extreme_number())
    return str(words)


def _run(program: Any, argv: list[str]) -> int:
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        status = program.main(argv)
    lines = text.getvalue().strip().splitlines()
    if status == 1 and not (lines and lines[-1].startswith(argv[0])):
        raise RuntimeError(f"an error without a line that says so: {lines[-1:]}")
    return int(status)


_INTERNAL = "inner part; what calls it has checked the arguments"
_RECORD = "record of results, made by the package"

_CURVES = ("_TangentsCurve", "GaussianCurve", "BoundedRangeCurve", "ApproximateDpCurve", "PointsCurve", "MinimumCurve", "GroupCurve")  # fmt: skip
_CURVE_FAMILIES = ("GaussianFamily", "ApproximateDpFamily", "BoundedRangeFamily", "RenyiFamily", "SingleCurveFamily", "TradeOffFamily")  # fmt: skip
ROOMS: tuple[Room, ...] = (
    Room(
        "numbers",
        ("bounds.", "critics.simple_families", "critics.donsker_varadhan", "critics.fitters", "privacy.", "interfaces"),
        sizes=frozenset({"num_cells", "max_cells", "num_knots", "degree", "num_samples"}),
        left_out={
            **dict.fromkeys(("largest_bets", "log_factors", "variance_of_best_bets", "best_bets", "interpolate_bets"), _INTERNAL),
            **dict.fromkeys(("fit_log_ratio", "guarded_fit", "named_fitter", "PolynomialLogRatio", "SplineLogRatio"), _INTERNAL),
            **dict.fromkeys(("MonotoneLogRatio", "HistogramLogRatio", "BoundedLogRatio", "standardiser_of"), _INTERNAL),
            **dict.fromkeys(("mean_log", "nearest_null", "keeps_claim", "normalised", "check_pair"), _INTERNAL),
            **dict.fromkeys(("tilted_ratio", "TiltedRatio", "Halves", "log_r_inf", "log_r_sup"), _INTERNAL),
            **dict.fromkeys(("renyi_from_excess", "log_moment_excess", "log_phi", "check_curve", "check_family"), _INTERNAL),
            **dict.fromkeys(("EProcess.can_reject", "GrowthOptimalEProcess.can_reject", "TradeOffEProcess.can_reject"), _INTERNAL),
            **dict.fromkeys((f"{kind}.{name}" for kind in _CURVES for name in ("power_at", "slope_at")), _INTERNAL),
            **dict.fromkeys((f"{kind}.power_and_slope_at" for kind in _CURVE_FAMILIES), _INTERNAL),
            **dict.fromkeys(("ClosestNull", "NearestNull", "RefutationPlan", "AuditPlan", "DpSgdClaim"), _RECORD),
        },
    ),
    Room(
        "mechanisms",
        ("mechanisms.simple.",),
        left_out={"clip_rows": _INTERNAL},
    ),
    Room("training", ("mechanisms.training",), left_out={"run_seed": _INTERNAL}),
    Room(
        "planning",
        ("audits.planner", "audits.audit_plan", "audits.settings"),
        left_out=dict.fromkeys(("RefutationPlan", "AuditPlan"), _RECORD),
    ),
    Room(
        "testers",
        ("testers.",),
        left_out={
            "BoundResult": _RECORD,
            **dict.fromkeys(("ThresholdCounts", "LinearScore", "fit_linear_score"), _INTERNAL),
            **dict.fromkeys(("count_at_every_threshold", "fewest_samples", "EProcessTester", "EProcessTesterConfig"), _INTERNAL),
            **dict.fromkeys(("in_both_directions", "shares_of_directions", "TesterKind", "kind_of_tester", "make"), _INTERNAL),
        },
    ),
    Room(
        "flows",
        ("flows.",),
        examples=flow_examples,
        left_out={
            **dict.fromkeys(("ExponentialTransport", "ImplicitTransport", "make_line_transport", "LinearLineSolver"), _INTERNAL),
            **dict.fromkeys(("LogLineSolver", "neighbour_differences", "resolve_events"), _INTERNAL),
            **dict.fromkeys(("langevin_step", "birth_death_rates", "birth_death_step", "children_of"), _INTERNAL),
            **dict.fromkeys(("central_difference_gradient",), _INTERNAL),
            **dict.fromkeys(("FlowPath", "PairConstants", "ParticleRun", "CertifiedValue"), _RECORD),
        },
    ),
    Room(
        "samplers",
        ("mechanisms.exponential.",),
        examples=flow_examples,
        left_out=dict.fromkeys(("check_loss_values", "check_alphas", "claims_of"), _INTERNAL),
    ),
    Room(
        "audits",
        ("audits.", "comparison.", "data.", "execution.", "generators.", "critics.neural_estimator", "critics.critic_training",
         "mechanisms.dp_sgd.config", "mechanisms.dp_sgd.base", "mechanisms.dp_sgd.networks", "mechanisms.dp_sgd.opacus", "mechanisms.dp_sgd.ensemble."),
        left_out={
            "DpSgdClaim": _RECORD, "TestedClaim": _INTERNAL,
            **dict.fromkeys(("BoundedArrays.random_genes", "BoundedArrays.moved"), _INTERNAL),
            **dict.fromkeys(("BoundedArrays.differ", "BoundedArrays.pair"), _INTERNAL),
            "ConstantDatasetGenerator": "gives back whatever it is given",
        },
        takes=lambda name: name.endswith(("Config", "Claim", "Generator")) or name in ("BoundedArrays", "claimed_properties"),
        examples=lambda: {**claims(), **audit_examples()},
    ),
    Room(
        "commands",
        (),
        commands={
            "plan_audit": {"num_models": "100", "alpha": "2"},
            "audit_shk": {"num_samples": "200", "num_records": "4", "cells": "48", "run_time": "1"},
            "audit_dpsgd": {"num_models": "4", "steps": "2", "num_records": "8", "dataset": "digits", "model": "logistic",
                            "backend": "serial", "num_workers": "1", "initial_weights": "random"},
            "compare_testers": {"mechanisms": "gaussian", "testers": "threshold", "sample_sizes": "50", "repeats": "1",
                                "num_workers": "1", "dp_auditorium": "false"},
        },
    ),
)  # fmt: skip
