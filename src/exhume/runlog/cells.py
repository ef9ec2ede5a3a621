"""The cells of rebuilt records beside the true ones: which came out, and how far off others are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.runlog.table_columns import TableColumn, cells_of

_SAME = 1e-6
"""Relative difference of equal numbers, where it is not known to which place they are written."""


@dataclass(frozen=True, eq=False)
class ComparedCells:
    """Cells by record and column, (n, columns).

    ``right``: the cell reads as the true one. ``error`` is the distance of numbers and dates (in
    days), NaN for levels and missing cells.
    """

    right: Array
    error: FloatArray


def compare_cells(columns: Sequence[TableColumn], targets: Array, samples: Array) -> ComparedCells:
    """Compare records with their targets, both (n, entries).

    >>> bmi = TableColumn("bmi", "continuous", step=0.1)
    >>> sex = TableColumn("sex", "categorical", ("f", "m"))
    >>> found = compare_cells([bmi, sex], np.array([[29.9, 0, 1]]), np.array([[29.93, 1, 0]]))
    >>> found.right.tolist(), found.error.round(2).tolist()
    ([[True, False]], [[0.03, nan]])
    """
    pairs = zip(columns, cells_of(columns, targets), cells_of(columns, samples), strict=True)
    compared = [_compared(column, true, found) for column, true, found in pairs]
    return ComparedCells(
        np.column_stack([right for right, _ in compared]),
        np.column_stack([error for _, error in compared]),
    )


def _compared(column: TableColumn, true: Array, found: Array) -> tuple[Array, FloatArray]:
    if not column.numeric:
        return np.asarray(true == found), np.full(len(true), np.nan)
    if true.dtype.kind == "M":
        true, found = (_days(cells) for cells in (true, found))
    error = np.abs(found - true)
    near = column.step / 2 * (1 + _SAME) if column.step else _SAME * np.maximum(1.0, np.abs(true))
    both_missing = np.isnan(true) & np.isnan(found)
    return np.asarray((error <= near) | both_missing), error


def _days(cells: Array) -> FloatArray:
    seconds = cells.astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86_400)
