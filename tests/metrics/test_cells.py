"""The share of a row's values that are right, and whole records right."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.metrics import RecordsRight, ValuesRight, make, match
from exhume.protocol.errors import InputError
from exhume.protocol.schema import Column, ColumnKind, Schema

SCHEMA = Schema(
    (
        Column("age", ColumnKind.INTEGER),
        Column("smoker", ColumnKind.CATEGORICAL, ("former", "never", "yes")),
        Column("bmi", ColumnKind.CONTINUOUS, missing=True, fill=25.0),
    )
)
SCALE = np.array([10.0, 1.0, 1.0, 1.0, 4.0, 1.0])
ROW = np.array([[41.0, 0.0, 1.0, 0.0, 29.0, 0.0]])
ABSENT = np.array([[41.0, 0.0, 1.0, 0.0, 25.0, 1.0]])


@pytest.mark.parametrize(
    ("sample", "share"),
    [
        ([41.0, 0.0, 1.0, 0.0, 29.0, 0.0], 1.0),
        # Within .319 deviations, after rounding of the integer, and with levels that lean right.
        ([44.4, 0.3, 0.4, 0.3, 30.2, 0.4], 1.0),
        ([45.0, 0.3, 0.4, 0.3, 30.2, 0.4], 2 / 3),
        ([44.0, 0.5, 0.4, 0.1, 30.3, 0.0], 1 / 3),
        # A cell that is there is not missing, whatever number stands in for it.
        ([41.0, 0.0, 1.0, 0.0, 29.0, 1.0], 2 / 3),
    ],
)
def test_cells_are_compared_column_by_column(sample: list[float], share: float) -> None:
    found = np.array([sample])
    assert ValuesRight(schema=SCHEMA, scale=SCALE)(ROW, found)[0] == pytest.approx(share)
    whole = RecordsRight(schema=SCHEMA, scale=SCALE)(ROW, found)[0]
    assert whole == float(share == 1.0)


def test_a_missing_cell_is_right_where_it_is_called_missing() -> None:
    metric = ValuesRight(schema=SCHEMA, scale=SCALE)
    assert metric(ABSENT, np.array([[41.0, 0, 1, 0, 90.0, 0.8]]))[0] == 1.0
    assert metric(ABSENT, np.array([[41.0, 0, 1, 0, 25.0, 0.2]]))[0] == pytest.approx(2 / 3)


def test_known_columns_do_not_count() -> None:
    metric = make("values-right", scale=SCALE, schema=SCHEMA, unknown=("smoker",))
    assert metric(ROW, np.array([[0.0, 0, 1, 0, 0, 1]]))[0] == 1.0
    assert metric(ROW, np.array([[41.0, 1, 0, 0, 29, 0]]))[0] == 0.0


def test_a_batch_is_matched_by_what_is_right() -> None:
    rows = np.concatenate([ROW, ABSENT])
    assert match(rows, rows[::-1], ValuesRight(schema=SCHEMA, scale=SCALE)).indices.tolist() == [
        1,
        0,
    ]


def test_records_without_columns_are_refused() -> None:
    with pytest.raises(InputError, match="records-right is for tables"):
        make("records-right", scale=SCALE)
    with pytest.raises(InputError, match=r"scale has shape \(2,\)"):
        ValuesRight(schema=SCHEMA, scale=np.ones(2))
    with pytest.raises(InputError, match="tolerance must be at least 0"):
        ValuesRight(schema=SCHEMA, scale=SCALE, tolerance=-1.0)
