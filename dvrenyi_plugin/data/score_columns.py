"""Which columns of a table of recorded scores hold what."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Fewer whole numbers may be all different by chance.
_FEWEST_OF_A_COUNTER = 10


@dataclasses.dataclass(frozen=True)
class ScoreColumns:
    """Which columns of a table hold what.

    Attributes:
      side: holds "with" or "without" (also in and out, member and nonmember, 1 and 0, true and
        false).
      id: holds what tells models apart. "id" if there is such a column, and None for no such
        column at all.
      scores: the scores; empty for all columns but those two, none of which may count rows or hold
        seeds.
    """

    side: str = "side"
    id: str | None = "id"
    scores: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Places:
    """Positions of the columns of a table.

    Attributes:
      side: of the column of sides.
      id: of that of ids, None without one.
      scores: of those of scores, at least one.
    """

    side: int
    id: int | None
    scores: tuple[int, ...]

    @classmethod
    def of(cls, path: str, header: Sequence[str], columns: ScoreColumns) -> Places:
        """Returns the positions that these columns have in a header.

        Raises:
          ValueError: a column is missing or named twice, or there is none of scores.
        """
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise ValueError(f"{path} must name each column once, got {repeated} twice")

        def place(role: str, name: str) -> int:
            if name not in header:
                raise ValueError(
                    f"{path} must have a column {name!r} ({role}), got columns {list(header)[:20]}"
                )
            return header.index(name)

        side = place("with or without", columns.side)
        ids = header.index(columns.id) if columns.id in header else None
        if ids is None and columns.id not in (None, ScoreColumns.id):
            place("the models' ids", str(columns.id))
        if columns.scores:
            scores = tuple(place("a score", name) for name in columns.scores)
        else:
            scores = tuple(i for i in range(len(header)) if i not in (side, ids))
        if not scores or {side, ids} & set(scores):
            raise ValueError(
                f"{path} must have at least one column of scores beside those of side and id, got"
                f" columns {list(header)[:20]}"
            )
        return cls(side, ids, scores)


def refuse_counters(
    path: str, names: Sequence[str], scores: NDArray[np.float64], is_with: NDArray[np.bool_]
) -> None:
    """Raises ValueError if a column that nobody named as a score holds whole numbers that are all
    different on either side: numbers of rows, runs or seeds tell the sides apart without telling
    anything of the models.

    Args:
      path: of the file, for the message.
      names: of the columns.
      scores: shape (rows, columns).
      is_with: shape (rows,), the side of each row.
    """
    for name, column in zip(names, scores.T, strict=True):
        if np.isfinite(column).all() and np.all(column == np.floor(column)):
            sides = column[is_with], column[~is_with]
            counts = [len(side) for side in sides]
            if min(counts) >= _FEWEST_OF_A_COUNTER and all(
                len(np.unique(side)) == count for side, count in zip(sides, counts, strict=True)
            ):
                raise ValueError(
                    f"{path} has a column {name!r} that nobody named as a score, of whole numbers"
                    " that are all different on either side, as numbers of rows, runs and seeds"
                    " are: name the scores (score_columns), or this as the ids (id_column)"
                )


__all__ = ["Places", "ScoreColumns", "refuse_counters"]
