"""The columns of an audited table, as a run's log keeps them: for reports in the user's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.schema import Column, ColumnKind, Schema


@dataclass(frozen=True)
class TableColumn:
    """A column's name, kind, levels as text, unit, and whether cells may be missing.

    ``counts`` are the rows of each level, ``step`` is the last place that numbers are written to
    (0 if it is not known). A record's entry is (cell − ``mean``) / ``scale``. ``given`` says
    whether the adversary has the target's cell.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    missing: bool = False
    unit: str = ""
    counts: tuple[int, ...] = ()
    step: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    given: bool = False

    @property
    def numeric(self) -> bool:
        """Whether its cells lie on a line: numbers and dates."""
        return ColumnKind(self.kind).numeric

    @property
    def rare(self) -> tuple[str, ...]:
        """Levels of fewer than one in twenty rows."""
        rows = sum(self.counts)
        if self.numeric or len(self.counts) != len(self.levels):
            return ()
        return tuple(n for n, c in zip(self.levels, self.counts, strict=True) if 20 * c < rows)


def schema_of(columns: Sequence[TableColumn]) -> Schema:
    """Return the schema of plain data; levels are text.

    >>> schema_of([TableColumn("sex", "categorical", ("f", "m"))]).told([0.0, 1.0])
    'sex m'
    """
    return Schema(
        tuple(
            # A boolean's levels are text here, as those of any category.
            Column(c.name, _kind(c.kind), c.levels, c.missing, c.unit)
            for c in columns
        )
    )


def cells_of(columns: Sequence[TableColumn], records: Array) -> list[Array]:
    """Return the cells of records (n, entries) by column, in the units of the table.

    Numbers are NaN and dates NaT where a cell is missing; levels are text, or None.

    >>> years = TableColumn("age", "integer", mean=40.0, scale=10.0)
    >>> cells_of([years], np.array([[0.5]]))
    [array([45.])]
    """
    schema = schema_of(columns)
    x: FloatArray = np.array(records, dtype=np.float64).reshape(len(records), -1)
    for column, place in zip(columns, schema.places, strict=True):
        if column.numeric:
            x[:, place.start] = x[:, place.start] * column.scale + column.mean
    cells = schema.decode(x)
    return [cells[column.name] for column in columns]


def _kind(name: str) -> ColumnKind:
    kind = ColumnKind(name)
    return ColumnKind.CATEGORICAL if kind is ColumnKind.BOOLEAN else kind
