"""Calls every public function, config, mechanism, tester and command with extreme arguments, and
prints what goes wrong.

    python benchmarks/fuzz_public_functions.py --minutes=60 --seed=1
    python benchmarks/fuzz_public_functions.py --rooms=flows,samplers --minutes=5
    python benchmarks/fuzz_public_functions.py --only=privacy.conversions.dp_sgd_mu --case=17
    --seed=1

Prints one line for each different fault, with flags that make the same call again, and ends with
status 1 if there was any.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from fuzz_arguments import NoExampleError  # noqa: E402
from fuzz_calls import Failure, Subject, run_case  # noqa: E402
from fuzz_rooms import ROOMS, Room  # noqa: E402


def cases(rooms: list[Room], only: str | None) -> Iterator[tuple[int, Room, Subject]]:
    """Yields every subject's call number 0, then every one's number 1, and so on for ever."""
    subjects = [
        (room, subject)
        for room in rooms
        for subject in room.subjects()
        if only is None or subject.name == only
    ]
    if not subjects:
        raise SystemExit(f"nothing to call: --only={only}")
    for number in itertools.count():
        for room, subject in subjects:
            yield number, room, subject


def fuzz(
    rooms: list[Room], minutes: float, seed: int, only: str | None, case: int | None, limit_s: float
) -> list[Failure]:
    """Returns the different faults, each printed as soon as it is found."""
    found: dict[tuple[str, str], Failure] = {}
    unknown: set[str] = set()
    calls, end = 0, math.inf
    for number, room, subject in cases(rooms, only):
        if end == math.inf:  # imports are not counted
            room.all_examples  # noqa: B018
            end = time.monotonic() + 60.0 * minutes
        if case is not None:
            number = case
        elif time.monotonic() > end:
            break
        try:
            failure = run_case(subject, number, seed, room.all_examples, room.sizes, limit_s)
        except NoExampleError as error:
            if subject.name not in unknown:
                unknown.add(subject.name)
                print(
                    f"not called: {subject.name} has a parameter without an example, {error}",
                    flush=True,
                )
            continue
        calls += 1
        if failure is not None and (failure.kind, failure.place) not in found:
            found[failure.kind, failure.place] = failure
            print(failure.line(seed), flush=True)
        if case is not None:
            break
    print(f"{calls} calls, seed {seed}: {len(found)} different faults")
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(room.name for room in ROOMS))
    parser.add_argument("--only", help="one subject, as printed")
    parser.add_argument("--case", type=int, help="one call, as printed")
    parser.add_argument("--limit_s", type=float, default=10.0, help="longest time of a call")
    flags = parser.parse_args()
    wanted = flags.rooms.split(",")
    rooms = [room for room in ROOMS if room.name in wanted]
    failures = fuzz(rooms, flags.minutes, flags.seed, flags.only, flags.case, flags.limit_s)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
