"""Ten unlabelled mechanisms, some broken: does the command line alone tell which?

    python benchmarks/blind_hunt.py                    # seeds 0, 1 and 2
    python benchmarks/blind_hunt.py --seeds 7 --keep=/tmp/hunt

For each seed a file is written that registers ten mechanisms m0 to m9: those of the comparison in a
random order, each honest or broken by the toss of a coin; which, is written nowhere the audit
looks. `compare_testers` is then run on that file as any user would run it, and its comparison.json
is read: a mechanism is accused when its one audit refuted the claim. Only then are the coins looked
at.

The failure probability is 0.05 over all audits of a hunt: each of the ten gets 0.005.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

KINDS = (
    "gaussian",
    "gaussian_order_1.25",
    "laplace",
    "randomized_response",
    "noisy_max",
    "exponential",
    "shk",
    "langevin",
    "birth_death",
    "dp_sgd_ensemble",
)
# Trained or simulated one sample at a time: drawn once, in the comparison's pools.
POOLED = ("birth_death", "dp_sgd_ensemble")
COUNT, NUM_SAMPLES, FAILURE_PROBABILITY = len(KINDS), 2000, 0.05

_ENTRY = """
@register_mechanism("m{number}"{pool})
def m{number}(broken, seed):
    return find_mechanism("{kind}").build({hidden}, seed)
"""


def toss(seed: int) -> list[tuple[str, bool]]:
    """Returns kind and coin of each mechanism. At least one of each coin, so that both answers are
    possible.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    while True:
        kinds = rng.permutation(KINDS)
        coins = rng.random(COUNT) < 0.5
        if 0 < coins.sum() < COUNT:
            return [(str(kind), bool(coin)) for kind, coin in zip(kinds, coins, strict=True)]


def write_module(path: pathlib.Path, mechanisms: list[tuple[str, bool]]) -> None:
    """Writes the file that registers them."""
    entries = [
        _ENTRY.format(
            number=number,
            kind=kind,
            hidden=hidden,
            pool=f", pool_size={NUM_SAMPLES}" if kind in POOLED else "",
        )
        for number, (kind, hidden) in enumerate(mechanisms)
    ]
    head = "from dvrenyi_plugin.comparison.registry import find_mechanism, register_mechanism\n"
    path.write_text(head + "\n".join(entries))


def accused(folder: pathlib.Path, module: pathlib.Path, seed: int, workers: int) -> set[int]:
    """Runs the command and returns the numbers of the mechanisms whose claim it reports refuted."""
    command = [
        sys.executable,
        "-m",
        "dvrenyi_plugin.binaries.compare_testers",
        f"--extra_module={module}",
        f"--mechanisms={','.join(f'm{number}' for number in range(COUNT))}",
        "--testers=sequential",
        "--variants=honest",  # the variant that the user believes to have
        f"--sample_sizes={NUM_SAMPLES}",
        "--repeats=1",
        f"--failure_probability={FAILURE_PROBABILITY / COUNT}",
        f"--seed={seed}",
        f"--num_workers={workers}",
        "--nodp_auditorium",
        f"--output_dir={folder / 'out'}",
    ]
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).resolve().parent.parent)}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    content = json.loads((folder / "out" / "comparison.json").read_text())
    bad = [summary for summary in content["summaries"] if summary["status"] != "ok"]
    if bad or len(content["summaries"]) != COUNT:
        raise RuntimeError(f"not every audit ended: {bad}")
    # The command believes them honest, so it calls a refutation a false alarm.
    return {int(s["mechanism"][1:]) for s in content["summaries"] if s["false_alarms"] > 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", help="folder for the reports; unset: a temporary one")
    options = parser.parse_args()
    mistakes = 0
    with tempfile.TemporaryDirectory() as temporary:
        for seed in options.seeds:
            folder = pathlib.Path(options.keep or temporary) / f"seed{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            mechanisms = toss(seed)
            module = folder / "mechanisms.py"
            write_module(module, mechanisms)
            guesses = accused(folder, module, seed, options.workers)
            truth = {number for number, (_, hidden) in enumerate(mechanisms) if hidden}
            missed, wronged = truth - guesses, guesses - truth
            mistakes += len(missed) + len(wronged)
            print(
                f"seed {seed}: {len(truth)} of {COUNT} broken; accused {len(guesses)};"
                f" missed {[mechanisms[n][0] for n in sorted(missed)]};"
                f" wronged {[mechanisms[n][0] for n in sorted(wronged)]}",
                flush=True,
            )
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
