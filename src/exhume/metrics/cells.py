"""Tables: the share of a row's values that are right, and whether the whole row is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError
from exhume.protocol.metric import BoolArray, Metric, Range
from exhume.protocol.schema import Column, ColumnKind, Schema

TOLERANCE = 0.319
"""A number is right within this many deviations of its column (Vero et al. 2023, section 5).

The mean alone is right for a quarter of a normal column.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class CellMetric(Metric):
    """Compares rows cell by cell, each column of ``schema`` once.

    A level is right or wrong, and so is a missing cell. A number is right within ``tolerance``
    times the ``scale`` of its entry (record shape), the column's deviation. ``unknown`` are the
    columns that count, by default all.
    """

    higher_is_better: ClassVar[bool] = True
    schema: Schema
    scale: Array
    tolerance: float = TOLERANCE
    unknown: tuple[str, ...] = ()
    value_range: Range | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", frozen(self.scale, dtype=np.float64))
        if self.scale.shape != (self.schema.width,):
            raise InputError(
                f"scale has shape {self.scale.shape}, the table's records {(self.schema.width,)}"
            )
        if not self.tolerance >= 0:
            raise InputError(f"tolerance must be at least 0, got {self.tolerance}")

    def right(self, truth: FloatArray, samples: FloatArray) -> BoolArray:
        """Return which cells of k rows are right, (k, columns that count)."""
        wanted, found = self.schema.snap(truth), self.schema.snap(samples)
        hits = []
        for column, place in zip(self.schema.columns, self.schema.places, strict=True):
            if not self.unknown or column.name in self.unknown:
                limit = self.tolerance * float(self.scale[place.start])
                hits.append(_right(column, wanted[:, place], found[:, place], limit))
        return np.stack(hits, axis=1)


@dataclass(frozen=True, eq=False, kw_only=True)
class ValuesRight(CellMetric):
    """The share of a row's values that are right, in [0, 1].

    >>> schema = Schema((Column("age", ColumnKind.CONTINUOUS),
    ...                  Column("smoker", ColumnKind.CATEGORICAL, ("former", "never"))))
    >>> metric = ValuesRight(schema=schema, scale=np.array([10.0, 1.0, 1.0]))
    >>> metric(np.array([[41.0, 0.0, 1.0]]), np.array([[43.0, 0.8, 0.2]]))
    array([0.5])
    """

    name: ClassVar[str] = "values-right"

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        return np.asarray(self.right(truth, samples).mean(axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordsRight(CellMetric):
    """1 if every value of a row is right, otherwise 0."""

    name: ClassVar[str] = "records-right"

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        return np.asarray(self.right(truth, samples).all(axis=1), dtype=np.float64)


def _right(column: Column, truth: FloatArray, sample: FloatArray, limit: float) -> BoolArray:
    """Return which cells of one column are right, (k,); the rows are admissible ones."""
    if not column.kind.numeric:
        return np.asarray((truth == sample).all(axis=1))
    found = sample[:, 0]
    if column.kind is ColumnKind.INTEGER:
        found = np.rint(found)
    near = np.abs(truth[:, 0] - found) <= limit
    if not column.missing:
        return np.asarray(near)
    absent = truth[:, 1] > 0.5
    return np.asarray((absent == (sample[:, 1] > 0.5)) & (near | absent))
