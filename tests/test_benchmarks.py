"""Every line of `make bench` runs to its end, with the small settings of --quick, and leaves the
documentation alone.
"""

import os
import pathlib
import re
import runpy
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
MAKEFILE = ROOT / "Makefile"
LINES = (
    re.findall(r"^\t\$\(BIN\)/python (benchmarks/.*)$", MAKEFILE.read_text(), re.MULTILINE)
    if MAKEFILE.exists()
    else []
)


def docs_state():
    return {path: path.stat().st_mtime_ns for path in (ROOT / "docs").rglob("*")}


@pytest.mark.skipif(not MAKEFILE.exists(), reason="needs a checkout")
def test_f15_make_bench_runs_every_benchmark_that_needs_no_other_framework():
    named = {line.split()[0] for line in LINES}
    other = {"against_dp_auditorium", "blind_hunt", "engine_agreement"}
    # These look for faults and measure nothing.
    other |= {"fuzz_public_functions", "random_kills"}
    # This compares two versions of the program.
    other |= {"same_results"}
    helpers = {"certified_fraction_page", "known_pairs", "quick"}
    helpers |= {"fuzz_arguments", "fuzz_calls", "fuzz_examples", "fuzz_rooms"}
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - other - helpers
    assert named == {f"benchmarks/{stem}.py" for stem in files}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.filterwarnings("ignore")
def test_f15_each_benchmark_runs_to_its_end(line, monkeypatch, tmp_path, capsys):
    script, *arguments = line.replace("$(QUICK)", "--quick").split()
    before = docs_state()
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    except SystemExit as finished:
        assert finished.code in (None, 0)
    assert capsys.readouterr().out
    assert docs_state() == before
    assert not os.path.exists("docs") or pathlib.Path("docs").resolve() == ROOT / "docs"
