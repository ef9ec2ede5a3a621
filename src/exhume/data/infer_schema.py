"""Which columns a table has, from its cells: kinds, levels, missing values, and what is odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exhume.data.reading import listed
from exhume.protocol.errors import InputError
from exhume.protocol.schema import Cell, Column, ColumnKind, Level, Schema, number_of

MOST_LEVELS = 1000
"""More levels than that are names or numbers of persons, not a category."""
_FEW = 12
"""An integer column with at most this many different values may stand for a category."""
IGNORED = "ignored"


@dataclass(frozen=True)
class ColumnWish:
    """What the user says of a column: its kind or ``ignored``, its levels, its unit."""

    kind: str | None = None
    levels: tuple[Level, ...] = ()
    unit: str = ""


def infer_schema(
    cells: Mapping[str, Sequence[Cell]],
    wishes: Mapping[str, ColumnWish] | None = None,
    *,
    source: str = "the table",
    first: int = 1,
) -> Schema:
    """Return the schema of cells by column; InputError names the column and the row.

    ``wishes`` are what the user says of some columns; columns that it ignores are left out.
    ``first`` is the number of the first row, as errors count rows.
    """
    wishes = wishes or {}
    for name in wishes:
        if name not in cells:
            raise InputError(f"{source}: has no column {name!r}; its columns are {_few(cells)}")
    kept = [name for name in cells if wishes.get(name, ColumnWish()).kind != IGNORED]
    if not kept:
        raise InputError(f"{source}: every column is ignored: nothing is left")
    columns = []
    for name in kept:
        try:
            columns.append(_column(name, cells[name], wishes.get(name, ColumnWish()), first))
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
    return Schema(tuple(columns))


def notes_on(schema: Schema, rows: int) -> list[str]:
    """Return a sentence for each column that says nothing, or that names single rows."""
    found = []
    for column in schema.columns:
        told = f"column {column.name!r}"
        if len(column.levels) == 1 and not column.missing:
            found.append(f"{told} has one value, {column.levels[0]}, in all {rows} rows")
        alone = [
            str(level)
            for level, count in zip(column.levels, column.counts, strict=False)
            if count == 1
        ]
        if alone and not column.kind.numeric:
            shown = ", ".join(alone[:5]) + (", …" if len(alone) > 5 else "")
            found.append(f"{told}: a single row has the level {shown}; an encoder stores it")
    return found


def _column(name: str, cells: Sequence[Cell], wish: ColumnWish, first: int) -> Column:
    there = [cell for cell in cells if cell is not None]
    if not there:
        raise InputError(
            f"column {name!r}: every cell is missing; drop it, or leave it out: "
            f'[data.columns] {name} = "{IGNORED}"'
        )
    kind = _kind(name, cells, first) if wish.kind is None else ColumnKind(wish.kind)
    if wish.kind is not None:
        _require_kind(name, cells, kind, first)
    if not kind.numeric:
        _require_few(name, len(set(there)))
    missing = len(there) < len(cells)
    column = Column(name, kind, missing=missing, unit=wish.unit)
    if kind.numeric:
        return _number_column(column, there, wish)
    return _levelled(column, there, wish, first, cells)


def _number_column(column: Column, there: Sequence[Cell], wish: ColumnWish) -> Column:
    if wish.levels and column.kind is not ColumnKind.INTEGER:
        raise InputError(f"column {column.name!r}: levels go with categorical, not {column.kind}")
    numbers = np.array([number_of(cell) for cell in there])
    # One digit: what stands for a missing cell must not tell the median of private cells.
    column = replace(column, fill=float(f"{np.median(numbers):.1g}"))
    values, counts = np.unique(numbers, return_counts=True)
    few = len(values) <= min(_FEW, len(numbers) // 4)
    if len(values) == 1 or (column.kind is ColumnKind.INTEGER and few):
        if column.kind is ColumnKind.DATE:
            return column
        typed: tuple[Level, ...] = tuple(
            int(v) if column.kind is ColumnKind.INTEGER else float(v) for v in values
        )
        return replace(column, levels=wish.levels or typed, counts=tuple(counts.tolist()))
    return column


def _levelled(
    column: Column, there: Sequence[Cell], wish: ColumnWish, first: int, cells: Sequence[Cell]
) -> Column:
    counts = Counter(there)
    levels: tuple[Level, ...] = wish.levels
    if column.kind is ColumnKind.BOOLEAN:
        levels = (False, True)
    levels = levels or tuple(sorted(counts, key=_order))  # type: ignore[arg-type]
    for row, cell in enumerate(cells):
        if cell is not None and cell not in levels:
            raise InputError(
                f"column {column.name!r}, row {row + first}: holds {cell!r}, which is none of its "
                f"levels: {', '.join(map(str, levels[:12]))}"
            )
    return replace(column, levels=levels, counts=tuple(counts.get(one, 0) for one in levels))


def _require_few(name: str, levels: int) -> None:
    if levels > MOST_LEVELS:
        raise InputError(
            f"column {name!r}: has {levels:,} levels, more than {MOST_LEVELS:,}; leave it out "
            f'([data.columns] {name} = "{IGNORED}") or say what its numbers are'
        )


def _order(level: object) -> tuple[str, object]:
    return ("", level) if not isinstance(level, str) else ("text", level)


def kind_of(cell: Cell) -> ColumnKind:
    """Return the kind that a single cell has."""
    if isinstance(cell, bool | np.bool_):
        return ColumnKind.BOOLEAN
    if isinstance(cell, int | np.integer):
        return ColumnKind.INTEGER
    if isinstance(cell, float | np.floating):
        return ColumnKind.CONTINUOUS
    return ColumnKind.DATE if isinstance(cell, np.datetime64) else ColumnKind.CATEGORICAL


def _kind(name: str, cells: Sequence[Cell], first: int) -> ColumnKind:
    types = [type(cell) for cell in cells]
    # One cell of each type shows the kind of all of them.
    found: dict[ColumnKind, int] = {}
    for row in sorted(types.index(one) for one in set(types)):
        if cells[row] is not None:
            found.setdefault(kind_of(cells[row]), row)
    if set(found) == {ColumnKind.INTEGER, ColumnKind.CONTINUOUS}:
        whole = all(float(c).is_integer() for c in cells if c is not None)
        return ColumnKind.INTEGER if whole else ColumnKind.CONTINUOUS
    if len(found) > 1:
        (_, row), (other, later) = sorted(found.items(), key=lambda pair: pair[1])[:2]
        raise InputError(
            f"column {name!r}: holds {cells[row]!r} in row {row + first} and {cells[later]!r} "
            f"({other}) in row {later + first}: correct one of them, or say what they are: "
            f'[data.columns] {name} = "categorical"'
        )
    return next(iter(found))


def _require_kind(name: str, cells: Sequence[Cell], kind: ColumnKind, first: int) -> None:
    if kind is ColumnKind.CATEGORICAL:
        return
    fitting = {ColumnKind.CONTINUOUS: {ColumnKind.CONTINUOUS, ColumnKind.INTEGER}}.get(kind, {kind})
    for row, cell in enumerate(cells):
        if cell is None or kind_of(cell) in fitting:
            continue
        whole = isinstance(cell, float) and cell.is_integer()
        if kind is ColumnKind.INTEGER and whole:
            continue
        raise InputError(
            f"column {name!r}, row {row + first}: holds {cell!r}, which is not {kind}; "
            "data.columns says that it is"
        )


def _few(cells: Mapping[str, Sequence[Cell]]) -> str:
    return listed([str(name) for name in cells])
