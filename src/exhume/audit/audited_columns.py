"""What a run's log keeps of a table's columns: names, levels, units, and places of digits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exhume.audit.setting import ThreatSetting
from exhume.protocol.arrays import FloatArray
from exhume.protocol.schema import Column, ColumnKind, Schema
from exhume.runlog.table_columns import TableColumn

_MOST = 1000
"""Entries of a record that reports can name; more are no table that anybody reads."""
_MOST_DECIMALS = 8
_DIGITS_OF_DEVIATION = 2


def audited_columns(setting: ThreatSetting, names: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return the columns of a setting's records; none for pictures and records of other shapes.

    ``names`` are those of a table of numbers, if they are known.
    """
    shape = setting.fixed_set.record_shape
    if len(shape) != 1 or shape[0] > _MOST or setting.value_range is not None:
        return ()
    schema = setting.schema or _of_numbers(names, shape[0])
    rows = np.asarray(setting.fixed_set.x, dtype=np.float64)
    units, known = setting.units, set(setting.known_columns)
    return tuple(
        _audited(
            column,
            rows[:, place.start],
            (0.0, 1.0)
            if units is None
            else (float(units.mean[place.start]), float(units.deviation[place.start])),
            given=place.start in known,
        )
        for column, place in zip(schema.columns, schema.places, strict=True)
    )


def _of_numbers(names: Sequence[str], width: int) -> Schema:
    named = names or [f"column {place + 1}" for place in range(width)]
    return Schema(tuple(Column(name, ColumnKind.CONTINUOUS) for name in named))


def _audited(
    column: Column, entries: FloatArray, unit: tuple[float, float], *, given: bool
) -> TableColumn:
    mean, scale = unit
    numeric = column.kind.numeric
    return TableColumn(
        column.name,
        column.kind.value,
        () if numeric else tuple(map(str, column.levels)),
        column.missing,
        column.unit,
        () if numeric else column.counts,
        _step(column, entries * scale + mean) if numeric else 0.0,
        mean,
        scale,
        given,
    )


def _step(column: Column, cells: FloatArray) -> float:
    """Return the last place that a column's cells are written to.

    Where they have more than eight decimals, it is the third digit of their deviation.
    """
    if column.kind in (ColumnKind.INTEGER, ColumnKind.DATE) or not len(cells):
        return 1.0
    # Cells that were scaled and scaled back differ by rounding.
    near = 1e-9 * max(1.0, float(np.abs(cells).max()))
    for decimals in range(_MOST_DECIMALS + 1):
        if np.abs(cells - cells.round(decimals)).max() <= near:
            return float(10.0**-decimals)
    deviation = float(cells.std()) or 1.0
    return float(10.0 ** (np.floor(np.log10(deviation)) - _DIGITS_OF_DEVIATION))
