"""The columns of a table: their kinds, levels and units, and how their cells become numbers.

A record is a vector of numbers everywhere else. A number or a date takes one entry, and one more if
cells may be missing; a category takes one entry per level, 1 for its own and 0 for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError

Cell: TypeAlias = str | int | float | bool | np.datetime64 | None
"""What a table shows at one place; None where the cell is missing."""
Level: TypeAlias = str | int | float | bool


class ColumnKind(StrEnum):
    """What the cells of a column are. The value is its name in a TOML file."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    DATE = "date"

    @property
    def numeric(self) -> bool:
        """Whether its cells lie on a line: numbers and dates."""
        return self not in (ColumnKind.CATEGORICAL, ColumnKind.BOOLEAN)


@dataclass(frozen=True)
class Column:
    """One column. ``levels`` are a category's values, or an integer's if it has only a few.

    ``missing`` says whether cells may be missing; ``fill`` is the number that then stands in a
    numeric column. ``counts`` are the rows of each level.
    """

    name: str
    kind: ColumnKind
    levels: tuple[Level, ...] = ()
    missing: bool = False
    unit: str = ""
    fill: float = 0.0
    counts: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """How many entries of a record it takes."""
        return (1 if self.kind.numeric else len(self.levels)) + self.missing

    def entries(self) -> tuple[str, ...]:
        """Return a name for each of its entries."""
        own: tuple[str, ...] = (self.name,)
        if not self.kind.numeric:
            own = tuple(f"{self.name} = {level}" for level in self.levels)
        return (*own, f"{self.name} missing") if self.missing else own


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    >>> schema = Schema((Column("bmi", ColumnKind.CONTINUOUS, unit="kg/m²"),
    ...                  Column("smoker", ColumnKind.CATEGORICAL, ("former", "never"))))
    >>> rows = schema.encode({"bmi": [29.9, 21.0], "smoker": ["never", "former"]})
    >>> rows.tolist()
    [[29.9, 0.0, 1.0], [21.0, 1.0, 0.0]]
    >>> schema.row(rows[0])
    (29.9, 'never')
    >>> schema.told(rows[0])
    'bmi 29.9 kg/m², smoker never'
    """

    columns: tuple[Column, ...]
    label: str = field(default="")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """How many entries a record has."""
        return sum(column.width for column in self.columns)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """The entries of each column."""
        ends = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))

    @property
    def mixed(self) -> bool:
        """Whether it has more than numbers that are always there."""
        return any(column.missing or not column.kind.numeric for column in self.columns)

    @cached_property
    def numbers(self) -> Array:
        """Which entries of a record are numbers, (width,): no levels, and no missing cells."""
        mask = np.zeros(self.width, dtype=bool)
        for column, place in zip(self.columns, self.places, strict=True):
            mask[place.start] = column.kind.numeric
        return mask

    def place(self, name: str) -> int:
        """Return the number of a column; InputError if there is none of that name."""
        if name not in self.names:
            raise InputError(f"there is no column {name!r}; the columns are {_listed(self.names)}")
        return self.names.index(name)

    def entries_of(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the entries of a record that these columns take."""
        found = [self.places[self.place(name)] for name in names]
        return tuple(entry for place in found for entry in range(place.start, place.stop))

    def encode(self, cells: Mapping[str, Sequence[Cell]]) -> FloatArray:
        """Return records (n, width) from cells by column; InputError names column and row."""
        return np.column_stack([_encoded(column, cells[column.name]) for column in self.columns])

    def decode(self, x: Array) -> dict[str, Array]:
        """Return arrays of cells by column, from records (n, width).

        Numbers are float64 with NaN where missing, dates datetime64, levels objects with None.
        """
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        pairs = zip(self.columns, self.places, strict=True)
        return {column.name: _decoded(column, rows[:, place]) for column, place in pairs}

    def snap(self, x: Array) -> FloatArray:
        """Return the nearest records (n, width) that a table can hold.

        Each category gets its largest entry, and a missing number its fill. Numbers stay as they
        are; integers are not rounded.
        """
        rows = np.array(x, dtype=np.float64).reshape(len(x), -1)
        for column, place in zip(self.columns, self.places, strict=True):
            rows[:, place] = _snapped(column, rows[:, place])
        return rows

    def row(self, x: Array) -> tuple[Cell, ...]:
        """Return the cells of one record, integers rounded."""
        cells = self.decode(np.asarray(x, dtype=np.float64).reshape(1, -1))
        return tuple(_cell(column, cells[column.name][0]) for column in self.columns)

    def told(self, x: Array) -> str:
        """Return one record in words: each column's name, cell and unit."""
        return ", ".join(
            f"{column.name} {written_cell(column, cell)}"
            for column, cell in zip(self.columns, self.row(x), strict=True)
        )

    def scale(self, x: Array) -> FloatArray:
        """Return a unit for each entry, so that all columns weigh the same in a distance.

        A number's unit is its deviation; a category's entries share the deviation of its levels.
        """
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        squares, out = rows.var(axis=0), np.ones(self.width)
        for column, place in zip(self.columns, self.places, strict=True):
            own = squares[place]
            if column.kind.numeric:
                out[place] = np.sqrt(own)
            else:
                out[place] = np.sqrt(own.sum())
        usual = float(out[out > 0].mean()) if (out > 0).any() else 1.0
        return np.where(out > 1e-12 * usual, out, usual)


def written_cell(column: Column, cell: Cell) -> str:
    """Return a cell as text, with its unit.

    >>> written_cell(Column("age", ColumnKind.INTEGER, unit="years"), 41)
    '41 years'
    >>> written_cell(Column("age", ColumnKind.INTEGER, missing=True), None)
    'missing'
    """
    if cell is None:
        return "missing"
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return f"{text} {column.unit}" if column.unit else text


def _encoded(column: Column, cells: Sequence[Cell]) -> FloatArray:
    absent = np.array([cell is None for cell in cells], dtype=bool)
    if absent.any() and not column.missing:
        row = int(np.argmax(absent)) + 1
        raise InputError(f"column {column.name!r}, row {row}: is empty, and no other row is")
    if column.kind.numeric:
        values = np.array([column.fill if c is None else number_of(c) for c in cells])
        return np.column_stack([values, absent]) if column.missing else values[:, None]
    known: dict[object, int] = {level: place for place, level in enumerate(column.levels)}
    out = np.zeros((len(cells), column.width))
    for row, cell in enumerate(cells):
        if cell is not None and cell not in known:
            raise InputError(
                f"column {column.name!r}, row {row + 1}: holds {cell!r}, which is none of its "
                f"levels: {_listed(column.levels)}"
            )
        out[row, len(known) if cell is None else known[cell]] = 1.0
    return out


def number_of(cell: Cell) -> float:
    """Return a number, or a date as days since 1970."""
    if isinstance(cell, np.datetime64):
        return float(cell.astype("datetime64[s]").astype(np.int64)) / 86_400
    assert cell is not None
    return float(cell)


def _decoded(column: Column, rows: FloatArray) -> Array:
    absent = _absent(column, rows)
    if column.kind.numeric:
        values = np.where(absent, np.nan, rows[:, 0])
        if column.kind is not ColumnKind.DATE:
            return values
        seconds = np.round(np.where(absent, 0.0, values) * 86_400).astype(np.int64)
        dates = seconds.astype("datetime64[s]")
        dates[absent] = np.datetime64("NaT")
        return dates
    if column.kind is ColumnKind.BOOLEAN and not column.missing:
        return np.asarray(rows.argmax(axis=1) == 1)
    levels = np.empty(column.width, dtype=object)
    levels[: len(column.levels)] = column.levels
    return np.asarray(levels[rows.argmax(axis=1)])


def _absent(column: Column, rows: FloatArray) -> Array:
    if not column.missing:
        return np.zeros(len(rows), dtype=bool)
    if column.kind.numeric:
        return np.asarray(rows[:, 1] > 0.5)
    return np.asarray(rows.argmax(axis=1) == len(column.levels))


def _snapped(column: Column, rows: FloatArray) -> FloatArray:
    if not column.kind.numeric:
        return np.asarray(np.eye(column.width)[rows.argmax(axis=1)])
    if not column.missing:
        return rows
    absent = _absent(column, rows)
    return np.column_stack([np.where(absent, column.fill, rows[:, 0]), absent])


def _cell(column: Column, value: object) -> Cell:
    if value is None or (isinstance(value, np.datetime64) and np.isnat(value)):
        return None
    if isinstance(value, np.datetime64):
        whole = value.astype("datetime64[D]")
        return whole if whole == value else value
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return None
        return round(float(value)) if column.kind is ColumnKind.INTEGER else float(value)
    return value  # type: ignore[return-value]


def _listed(names: Sequence[object], most: int = 12) -> str:
    shown = [str(name) if str(name).isprintable() else ascii(name) for name in names[:most]]
    return ", ".join([*shown, *(["…"] if len(names) > most else [])])
