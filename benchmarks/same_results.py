"""Compares the results of fixed seeds with those that an earlier version of the program gave.

    python benchmarks/same_results.py --write=before.json      # on the old code
    python benchmarks/same_results.py --compare=before.json    # on the new: lists what differs

Audits of DP-SGD with each installed engine, fixed and sequential, of samplers, a small comparison
and a plan run through the commands, and every number of their JSON documents is compared but for
times, versions and fingerprints. Run both on one machine with one number of threads: the last bits
of sums of floats depend on them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from dvrenyi_plugin.binaries import audit_dpsgd, audit_shk, compare_testers, plan_audit

_SMALL = ("--num_models=40", "--steps=20", "--num_records=50", "--pretraining_epochs=1", "--seed=3")
_COMPARED = "--mechanisms=gaussian,laplace,randomized_response,shk"
RUNS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "ensemble": (audit_dpsgd, _SMALL),
    "ensemble, cnn, Poisson batches": (
        audit_dpsgd,
        (*_SMALL, "--model=cnn", "--sample_rate=0.3", "--noise_multiplier=2"),
    ),
    "ensemble, white box, dv": (
        audit_dpsgd,
        (*_SMALL, "--observe=white_box", "--tester=dv", "--noise_scale=0.25"),
    ),
    "ensemble, logits": (audit_dpsgd, (*_SMALL, "--observe=logits")),
    "ensemble, several canaries": (audit_dpsgd, (*_SMALL, "--num_canaries=3")),
    "ensemble, sequential": (
        audit_dpsgd,
        (*_SMALL, "--num_models=120", "--sequential", "--noise_scale=0.25"),
    ),
    "ensemble, futile": (
        audit_dpsgd,
        (*_SMALL, "--num_models=60", "--sequential", "--futility_mu=1.2"),
    ),
    "opacus": (audit_dpsgd, (*_SMALL, "--num_models=10", "--engine=opacus")),
    "tf_privacy": (audit_dpsgd, (*_SMALL, "--num_models=10", "--engine=tf_privacy")),
    "shk": (audit_shk, ("--num_samples=2000", "--alphas=2,4", "--seed=3")),
    "shk, logistic": (audit_shk, ("--num_samples=1000", "--loss=logistic", "--pair=random")),
    "langevin": (audit_shk, ("--num_samples=2000", "--mechanism=langevin", "--loss=mean")),
    "broken shk": (
        audit_shk,
        ("--num_samples=2000", "--mechanism=shk_understated_sensitivity", "--tester=dv"),
    ),
    "exponential": (audit_shk, ("--num_samples=2000", "--mechanism=exponential", "--loss=median")),
    "comparison": (
        compare_testers,
        (
            _COMPARED,
            "--testers=sequential,threshold,gdp_baseline",
            "--sample_sizes=200",
            "--repeats=3",
        ),
    ),
    "plan": (plan_audit, ("--mu=1", "--true_mu=2", "--num_models=100,500")),
}
_NEEDS = {"tf_privacy": "tensorflow_privacy"}
_NOT_COMPARED = ("seconds", "version", "fingerprint", "output_dir", "digest")


def results(program: Any, arguments: tuple[str, ...]) -> Any:
    """Returns the JSON document that a command prints."""
    with tempfile.TemporaryDirectory() as folder:
        flags = list(arguments)
        if program is not plan_audit:
            flags.append(f"--output_dir={folder}/result")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = program.main([program.__name__, *flags, "--json"])
        if status != 0:
            raise SystemExit(f"{program.__name__} {' '.join(flags)} ended with status {status}")
        return json.loads(output.getvalue(), parse_constant=str)


def leaves(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value of a document with its place, but for what differs from run to run."""
    if isinstance(content, dict):
        for key, value in content.items():
            if not any(word in key for word in _NOT_COMPARED):
                yield from leaves(value, f"{name}.{key}")
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from leaves(value, f"{name}[{index}]")
    elif isinstance(content, (int, float)):
        yield name, content


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--compare", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--only", help="runs whose name contains this")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name, (program, arguments) in RUNS.items():
        needed = _NEEDS.get(name)
        if (options.only or "") in name and (not needed or importlib.util.find_spec(needed)):
            print(name, file=sys.stderr)
            found[name] = dict(leaves(results(program, arguments)))
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not options.compare:
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    different = 0
    for name in found.keys() & before.keys():
        for place in sorted(found[name].keys() | before[name].keys()):
            old, new = (one[name].get(place, "nothing") for one in (before, found))
            if old != new:
                different += 1
                print(f"{name}{place}: {old} before, {new} now")
    print(f"{different} differences in {len(found.keys() & before.keys())} runs")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
