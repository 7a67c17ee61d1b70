"""Files of recorded scores: what is read, what is said, what is refused."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from dvrenyi_plugin.data import RecordedScores, ScoreColumns, read_scores

ROWS = [
    ("a", "with", 1.5, 0.25),
    ("a", "without", 0.5, 0.75),
    ("b", "with", 2.5, -1.0),
    ("b", "without", -0.5, 3.0),
]


def csv_file(folder: pathlib.Path, text: str, name: str = "scores.csv") -> pathlib.Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(folder: pathlib.Path, rows: Any = ROWS, header: str = "id,side,loss,margin") -> Any:
    lines = [",".join(map(str, row)) for row in rows]
    return csv_file(folder, "\n".join([header, *lines]) + "\n")


def check_rows(scores: RecordedScores) -> None:
    assert scores.columns == ("loss", "margin")
    assert scores.with_record.tolist() == [[1.5, 0.25], [2.5, -1.0]]
    assert scores.without.tolist() == [[0.5, 0.75], [-0.5, 3.0]]
    assert scores.remarks == ()


def test_a_table_of_text_is_read(tmp_path):
    check_rows(read_scores(table(tmp_path)))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_names_and_a_byte_order_mark(tmp_path, delimiter):
    text = table(tmp_path).read_text().replace(",", delimiter)
    text = text.replace("without", "OUT").replace("with", "In")
    check_rows(read_scores(csv_file(tmp_path, "\ufeff" + text, "scores.tsv")))


def test_parquet_is_read_with_whole_numbers_and_booleans(tmp_path):
    path = tmp_path / "scores.parquet"
    ids, _, loss, margin = zip(*ROWS, strict=True)
    columns = {"id": ids, "side": [True, False, True, False], "loss": loss, "margin": margin}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    check_rows(read_scores(path))
    numbers = {"side": [1, 0, 1, 0], "score": pyarrow.array([1, 2, None, 4])}
    pyarrow.parquet.write_table(pyarrow.table(numbers), path)
    scores = read_scores(path)
    assert scores.without.tolist() == [[2.0], [4.0]]
    assert np.isnan(scores.with_record[1, 0])


def test_what_an_audit_wrote_is_read(tmp_path):
    path = tmp_path / "observations.npz"
    np.savez(path, with_canary=np.arange(3.0), without_canary=np.ones((2, 1)))
    scores = read_scores(path)
    assert scores.with_record.tolist() == [[0.0], [1.0], [2.0]]
    assert "3 models with the record and 2 without it" in scores.remarks[0]


def test_columns_can_be_named(tmp_path):
    path = table(tmp_path, header="model,in_or_out,loss,margin")
    scores = read_scores(path, ScoreColumns(side="in_or_out", id="model", scores=("margin",)))
    assert scores.columns == ("margin",) and scores.without[:, 0].tolist() == [0.75, 3.0]


def test_missing_scores_and_lonely_ids_are_said_and_kept(tmp_path):
    rows = [*ROWS, ("c", "with", "", 1.0), ("d", "with", "NA", "inf")]
    scores = read_scores(table(tmp_path, rows))
    assert len(scores.with_record) == 4 and np.isnan(scores.with_record[2:, 0]).all()
    assert scores.with_record[3, 1] == np.inf
    text = " ".join(scores.remarks)
    assert "4 models with the record and 2 without it" in text
    assert "2 models have no score 'loss' (2 with the record, 0 without it)" in text
    assert "2 of 4 ids stand on one side only ('c', 'd')" in text


def test_files_are_joined_by_side_and_id(tmp_path):
    first = table(tmp_path)
    more = "side,id,logit\nwithout,b,7\nwith,a,5\nwithout,a,6\nwith,z,8\n"
    scores = read_scores([first, csv_file(tmp_path, more, "more.csv")])
    assert scores.columns == ("loss", "margin", "logit")
    assert scores.without[:, 2].tolist() == [6.0, 7.0]
    # b has no logit with the record, z has nothing else.
    assert np.isnan(scores.with_record).tolist() == [
        [False, False, False],
        [False, False, True],
        [True, True, False],
    ]
    assert any("1 of 3 ids" in remark for remark in scores.remarks)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with a line that names its columns"),
        ("id,loss\na,1\n", r"must have a column 'side' \(with or without\)"),
        ("side\nwith\n", "at least one column of scores"),
        ("side,loss,loss\nwith,1,2\n", "name each column once"),
        ("side,loss\nwith,1\nwithin,2\n", "got 'within' in line 3"),
        ("side,loss\nwith,1\nwithout,x\n", "numbers in column 'loss', got 'x' in line 3"),
        ("side,loss\nwith,1\nwithout\n", "2 fields in line 3, got 1"),
        ("side,loss\nwith,1\nwith,2\n", "rows of both sides, got none without"),
        ("id,side,loss\na,with,1\na,without,2\na,with,3\n", "each id once per side, got 1 rows"),
        ("id,side,loss\n ,with,1\n", "an id for every model, got none in line 2"),
        ('side,loss\nwith,"1\n', "cannot be read"),
    ],
)
def test_refusals_name_file_and_line(tmp_path, text, message):
    path = csv_file(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        read_scores(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["seed", "", "Unnamed: 0"])
def test_a_column_that_counts_is_no_score_unless_it_is_named(tmp_path, name):
    """Numbers of rows or seeds tell the sides apart: an honest training was refuted by them."""
    rows = "".join(f"{i},{'with' if i < 20 else 'without'},{np.sin(i):.3f}\n" for i in range(40))
    path = csv_file(tmp_path, f"{name},side,loss\n{rows}")
    with pytest.raises(ValueError, match=f"has a column '{name}' that nobody named as a score"):
        read_scores(path)
    assert read_scores(path, ScoreColumns(scores=("loss",))).columns == ("loss",)
    assert read_scores(path, ScoreColumns(id=name)).columns == ("loss",)
    assert read_scores(path, ScoreColumns(scores=(name,))).columns == (name,)


def test_whole_numbers_that_repeat_are_scores(tmp_path):
    rows = "".join(f"{'with' if i < 20 else 'without'},{i % 7}\n" for i in range(40))
    assert read_scores(csv_file(tmp_path, f"side,hits\n{rows}")).columns == ("hits",)


def test_other_refusals(tmp_path):
    first = table(tmp_path)
    with pytest.raises(ValueError, match=r"must be a file \.csv"):
        read_scores(tmp_path / "scores.xlsx")
    with pytest.raises(ValueError, match="scores of different names, got \\['loss', 'margin'\\]"):
        read_scores([first, first])
    strangers = csv_file(tmp_path, "id,side,x\nc,with,1\nc,without,2\n", "c.csv")
    with pytest.raises(ValueError, match=r"c\.csv must know a model of the other files"):
        read_scores([first, strangers])
    without_ids = csv_file(tmp_path, "side,x\nwith,1\nwithout,2\n", "n.csv")
    with pytest.raises(ValueError, match="a column of ids to be joined"):
        read_scores([first, without_ids])
    with pytest.raises(ValueError, match="must have a column 'name'"):
        read_scores(first, ScoreColumns(id="name"))
    with pytest.raises(ValueError, match="at least one file"):
        read_scores([])
    np.savez(tmp_path / "a.npz", losses=np.ones(3))
    with pytest.raises(ValueError, match="arrays named with_canary and without_canary, or with"):
        read_scores(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="has no ids"):
        read_scores([first, tmp_path / "a.npz"])
    (tmp_path / "wide.csv").write_text("side,x\nwith,1\nwithout,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"wide\.csv must be text in UTF-8, got byte 0xff at 0"):
        read_scores(tmp_path / "wide.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match=r"bad\.parquet cannot be read"):
        read_scores(tmp_path / "bad.parquet")
    with pytest.raises(OSError, match=r"none\.csv"):
        read_scores(tmp_path / "none.csv")
