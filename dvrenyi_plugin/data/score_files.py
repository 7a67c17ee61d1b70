"""Reader of recorded scores: what was observed of models trained with and without a record, from
CSV, Parquet and NumPy's `.npz`.

Every row of a file is kept, or the file is refused: a score that is missing stays as NaN, which is
an observation like others, and what was noticed (missing scores, an id on one side only, unequal
numbers of rows) is said. No file can run code.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvrenyi_plugin.data.file_formats import check_data_file, errors_that_name, read_npz_arrays
from dvrenyi_plugin.data.score_columns import Places, ScoreColumns, refuse_counters

WITH, WITHOUT = "with", "without"
_SIDES = {
    **dict.fromkeys(("with", "with_canary", "in", "member", "1", "1.0", "true"), WITH),
    **dict.fromkeys(
        ("without", "without_canary", "out", "nonmember", "0", "0.0", "false"), WITHOUT
    ),
}
_MISSING = ("", "nan", "na", "n/a", "null", "none")
_DELIMITERS = ",;\t"
_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class RecordedScores:
    """Scores of models trained with and without a record, NaN where one is missing.

    Attributes:
      with_record: shape (n, k), float64, in the order of the file.
      without: shape (m, k), float64.
      columns: names of the k scores.
      remarks: what a reader should know of the file, in sentences.
    """

    with_record: NDArray[np.float64]
    without: NDArray[np.float64]
    columns: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def read_scores(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: ScoreColumns | None = None,
) -> RecordedScores:
    """Returns the scores of one file, or of several that are joined by side and id.

    - `.csv` (also `.tsv`, `.txt`): a header line; comma, semicolon or tab between fields.
    - `.parquet`: needs pyarrow.
    - `.npz`: arrays `with_canary` and `without_canary` (as the reports of audits hold them) or
      `with` and `without`, shape (n,) or (n, k). It has no ids, so it cannot be joined.

    Args:
      paths: the file, or the files. Of several, each must have an id column, and scores of other
        names; a model that a file does not know has no scores there.
      columns: which columns hold what; None for those of `ScoreColumns()`.

    Raises:
      ValueError: no such columns, a side of another name, a score that is no number, a column that
        counts or seeds rather than scores, a model that stands twice, a side without any, or a file
        of another kind.
      ImportError: a Parquet file without pyarrow.
      OSError: a file cannot be read.
    """
    columns = columns or ScoreColumns()
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not names:
        raise ValueError("scores must name at least one file, got none")
    files = [os.fspath(name) for name in names]
    if len(files) == 1:
        if files[0].lower().endswith(".npz"):
            pairs = ("with_canary", "without_canary"), (WITH, WITHOUT)
            with_record, without = read_npz_arrays(files[0], *pairs)
            return scores_of_arrays(with_record, without, files[0])
        table = _read_table(files[0], columns)
    else:
        table = _join([(name, _read_table(name, columns)) for name in files])
    return _recorded(table, files)


@dataclasses.dataclass
class _Table:
    """Rows in the order of the file.

    Attributes:
      is_with: shape (rows,), bool.
      scores: shape (rows, k), NaN where missing.
      columns: names of the scores.
      ids: one per row; None without an id column.
    """

    is_with: NDArray[np.bool_]
    scores: NDArray[np.float64]
    columns: tuple[str, ...]
    ids: list[str] | None


def _score_rows(name: str, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Returns scores of shape (n,) or (n, k) as float64 of shape (n, k).

    Raises:
      ValueError: no numbers, or of another shape; the message has the name.
    """
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise ValueError(
            f"{name} must be numbers, shape (n,) or (n, k), got {values.dtype} of shape"
            f" {values.shape}"
        )
    return values.astype(np.float64).reshape(len(values), -1)


def scores_of_arrays(
    with_record: NDArray[np.generic], without: NDArray[np.generic], source: str = "scores"
) -> RecordedScores:
    """Returns the scores that two arrays hold, shape (n,) or (n, k) and (m,) or (m, k).

    Args:
      with_record: of models trained with the record; NaN where a score is missing.
      without: of the others.
      source: where they are from, for messages.

    Raises:
      ValueError: no numbers, other shapes, or a side without models.
    """
    sides = [
        _score_rows(f"{source} {side} the record", np.asarray(rows))
        for side, rows in ((WITH, with_record), (WITHOUT, without))
    ]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise ValueError(
            f"{source} must have as many columns on both sides, got {sides[0].shape[1]} with the"
            f" record and {sides[1].shape[1]} without it"
        )
    is_with = np.repeat([True, False], [len(sides[0]), len(sides[1])])
    columns = tuple(f"score {index}" for index in range(sides[0].shape[1]))
    return _recorded(_Table(is_with, np.concatenate(sides), columns, None), [source])


def _read_table(path: str, columns: ScoreColumns) -> _Table:
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npz":
        raise ValueError(f"{path} has no ids, so it cannot be joined with others")
    if suffix not in (".csv", ".tsv", ".txt", ".parquet"):
        raise ValueError(f"scores must be a file .csv, .tsv, .txt, .parquet or .npz, got {path!r}")
    if suffix == ".parquet":
        table = _read_parquet(path, columns)
    else:
        with errors_that_name(check_data_file(path)):
            table = _read_csv(path, columns)
    if not columns.scores:
        refuse_counters(path, table.columns, table.scores, table.is_with)
    if table.ids is not None:
        _refuse_repeated(path, table)
    return table


def _read_csv(path: str, columns: ScoreColumns) -> _Table:
    with open(path, encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(_DELIMITERS, key=first.count)
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(lines, [])]
        if not header:
            raise ValueError(f"{path} must begin with a line that names its columns, got none")
        places = Places.of(path, header, columns)
        is_with, scores = array("b"), array("d")
        ids: list[str] | None = None if places.id is None else []
        for row in lines:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(
                    f"{path} must have {len(header)} fields in line {lines.line_num}, got"
                    f" {len(row)}"
                )
            is_with.append(_side(row[places.side], path, lines.line_num))
            for place in places.scores:
                scores.append(_score(row[place], path, lines.line_num, header[place]))
            if ids is not None and places.id is not None:
                ids.append(_id(row[places.id], path, lines.line_num))
    names = tuple(header[place] for place in places.scores)
    rows = np.asarray(scores, dtype=np.float64).reshape(-1, len(names))
    return _Table(np.asarray(is_with, dtype=np.bool_), rows, names, ids)


def _side(text: str, path: str, line: int) -> bool:
    side = _SIDES.get(text) or _SIDES.get(text.strip().lower())
    if side is None:
        raise ValueError(
            f"{path} must say with or without in the column of sides, got {text!r} in line {line}"
        )
    return side == WITH


def _score(text: str, path: str, line: int, column: str) -> float:
    try:
        return float(text)
    except ValueError:
        if text.strip().lower() in _MISSING:
            return math.nan
        raise ValueError(
            f"{path} must have numbers in column {column!r}, got {text!r} in line {line}"
        ) from None


def _id(text: str, path: str, line: int) -> str:
    if not text.strip():
        raise ValueError(f"{path} must have an id for every model, got none in line {line}")
    return text.strip()


def _read_parquet(path: str, columns: ScoreColumns) -> _Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError(
            f"{path} needs pyarrow: install it, or dvrenyi_plugin with [parquet]"
        ) from None
    with errors_that_name(check_data_file(path)):
        file = parquet.ParquetFile(path)
        header = list(file.schema_arrow.names)
        places = Places.of(path, header, columns)
        names = [header[place] for place in places.scores]
        wanted = [*names, header[places.side]]
        table = file.read(columns=wanted if places.id is None else [*wanted, header[places.id]])
        sides = table[header[places.side]].to_pylist()
        # Rows are numbered from 1, as if the file were a table.
        is_with = [_side(str(side), path, row) for row, side in enumerate(sides, 1)]
        scores = np.empty((len(sides), len(names)))
        for index, name in enumerate(names):
            scores[:, index] = _parquet_numbers(table[name], f"column {name!r} of {path}")
        ids = None
        if places.id is not None:
            found = table[header[places.id]].to_pylist()
            ids = [
                _id("" if name is None else str(name), path, row)
                for row, name in enumerate(found, 1)
            ]
    return _Table(np.asarray(is_with, dtype=np.bool_), scores, tuple(names), ids)


def _parquet_numbers(column: Any, name: str) -> NDArray[np.float64]:
    # Integers with missing entries come as float64 with NaN.
    values = column.to_numpy(zero_copy_only=False) if column.num_chunks else np.empty(0)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got {column.type}")
    return np.asarray(values, dtype=np.float64)


def _join(tables: Sequence[tuple[str, _Table]]) -> _Table:
    """Returns one row per side and id, with the scores of all tables; NaN where a table has no such
    row."""
    for path, table in tables:
        if table.ids is None:
            raise ValueError(f"{path} must have a column of ids to be joined with other files")
    names = [name for _, table in tables for name in table.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"joined files must have scores of different names, got {repeated} twice")
    row_of: dict[tuple[bool, str], int] = {}
    for path, table in tables:
        if row_of and row_of.keys().isdisjoint(_keys(table)):
            raise ValueError(f"{path} must know a model of the other files, got none of their ids")
        for key in _keys(table):
            row_of.setdefault(key, len(row_of))
    scores = np.full((len(row_of), len(names)), math.nan)
    done = 0
    for _, table in tables:
        rows = [row_of[key] for key in _keys(table)]
        scores[rows, done : done + len(table.columns)] = table.scores
        done += len(table.columns)
    is_with = np.fromiter((side for side, _ in row_of), dtype=np.bool_, count=len(row_of))
    return _Table(is_with, scores, tuple(names), [name for _, name in row_of])


def _keys(table: _Table) -> Iterator[tuple[bool, str]]:
    return zip(table.is_with.tolist(), table.ids or (), strict=True)


def _refuse_repeated(path: str, table: _Table) -> None:
    seen: set[tuple[bool, str]] = set()
    repeated = []
    for key in _keys(table):
        if key in seen:
            repeated.append(key)
        seen.add(key)
    if repeated:
        raise ValueError(
            f"{path} must have each id once per side, got {len(repeated)} rows of ids"
            f" that stand there before: {_some(name for _, name in repeated)}. A model that counts"
            " twice makes every bound wrong"
        )


def _recorded(table: _Table, paths: Sequence[str]) -> RecordedScores:
    sides = table.scores[table.is_with], table.scores[~table.is_with]
    for name, rows in zip((WITH, WITHOUT), sides, strict=True):
        if not len(rows):
            raise ValueError(f"{', '.join(paths)} must have rows of both sides, got none {name}")
    remarks = []
    if len(sides[0]) != len(sides[1]):
        remarks.append(
            f"There are {len(sides[0]):,} models with the record and {len(sides[1]):,} without it:"
            " all of them count."
        )
    remarks += _missing_remarks(table)
    if table.ids is not None:
        known, other = (
            {name for side, name in _keys(table) if side is wanted} for wanted in (True, False)
        )
        alone, every = known ^ other, known | other
        if 0 < len(alone) < len(every):
            remarks.append(
                f"{len(alone):,} of {len(every):,} ids stand on one side only"
                f" ({_some(sorted(alone))}): their models count like the others."
            )
    return RecordedScores(*sides, table.columns, tuple(remarks))


def _missing_remarks(table: _Table) -> Iterator[str]:
    for name, column in zip(table.columns, table.scores.T, strict=True):
        missing = np.isnan(column)
        if missing.any():
            with_record = int(missing[table.is_with].sum())
            yield (
                f"{int(missing.sum()):,} models have no score {name!r} ({with_record:,} with the"
                f" record, {int(missing.sum()) - with_record:,} without it): no score is an"
                " observation, too, and they count."
            )


def _some(names: Iterable[str]) -> str:
    found = list(names)
    shown = ", ".join(repr(name) for name in found[:_SHOWN])
    return shown + (", ..." if len(found) > _SHOWN else "")
