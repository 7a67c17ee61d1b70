"""The notebook and the page on audits of users' own trainings run, and say what they show."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "notebooks" / "audit_your_training.ipynb"


def test_the_examples_of_the_page_run(capsys) -> None:
    names: dict[str, Any] = {}
    code = re.findall(r"```python\n(.*?)```", (DOCS / "audit_training.md").read_text(), re.DOTALL)
    assert len(code) == 4
    for block in code:
        exec(block, names)
    printed = capsys.readouterr().out
    assert "REFUTED" in printed and "(5, 1)" in printed
    assert names["best"].shift > 0.0 and f"{names['best'].name} " in printed
    assert names["observe"](["below", None, "above"]) == [0, 2, 1]


def test_the_notebook_is_small_and_its_cells_give_the_outputs_it_shows(capsys) -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < 200_000
    assert "/site-packages/" not in text and "stderr" not in text
    names: dict[str, Any] = {}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("%matplotlib inline\n", ""), names)
    assert capsys.readouterr().out.splitlines()[0].startswith("claim  ")
    assert not names["honest"].report.refuted and names["broken"].report.refuted
    for result in ("honest", "broken"):
        assert names[result].report.verdict() in text


def test_the_notebook_runs_in_a_kernel() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(NOTEBOOK, as_version=4)
    before = [len(cell.get("outputs", ())) for cell in book.cells]
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    after = [
        len([one for one in cell.get("outputs", ()) if one.get("name") != "stderr"])
        for cell in book.cells
    ]
    assert after == before
    html = [
        output.data["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    assert len(html) == 1 and "REFUTED" in html[0]
