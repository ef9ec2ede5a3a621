"""Cells of rebuilt rows compared with the true ones."""

from __future__ import annotations

import numpy as np

from exhume.runlog.cells import compare_cells
from exhume.runlog.table_columns import TableColumn


def test_half_of_the_last_place_is_the_limit() -> None:
    column = (TableColumn("bmi", "continuous", step=0.1),)
    samples = np.array([[29.949], [29.951], [29.851]])
    found = compare_cells(column, np.full((3, 1), 29.9), samples)
    assert found.right[:, 0].tolist() == [True, False, True]


def test_dates_are_compared_in_days() -> None:
    column = (TableColumn("visit", "date", step=1.0),)
    found = compare_cells(
        column, np.array([[19000.0], [19000.0]]), np.array([[19000.3], [19002.0]])
    )
    assert found.right[:, 0].tolist() == [True, False]
    np.testing.assert_allclose(found.error[:, 0], [0.3, 2.0], atol=1e-4)


def test_a_missing_cell_comes_out_only_as_missing() -> None:
    column = (TableColumn("bmi", "continuous", missing=True, step=0.1),)
    missing, there = [26.0, 1.0], [26.0, 0.0]
    found = compare_cells(column, np.array([missing, missing]), np.array([missing, there]))
    assert found.right[:, 0].tolist() == [True, False]


def test_levels_are_right_or_wrong() -> None:
    column = (TableColumn("sex", "categorical", ("f", "m")),)
    found = compare_cells(column, np.eye(2), np.array([[0.9, 0.2], [0.6, 0.4]]))
    assert found.right[:, 0].tolist() == [True, False]
    assert np.isnan(found.error).all()


def test_records_in_deviations_are_compared_in_the_units_of_the_table() -> None:
    column = (TableColumn("age", "integer", step=1.0, mean=40.0, scale=10.0),)
    found = compare_cells(column, np.array([[0.5]]), np.array([[0.53]]))
    assert found.right.all()
    np.testing.assert_allclose(found.error, [[0.3]])


def test_a_level_is_rare_below_one_in_twenty_rows() -> None:
    column = TableColumn("smoker", "categorical", ("never", "pipe", "cigar"), counts=(90, 4, 6))
    assert column.rare == ("pipe",)
    assert TableColumn("age", "integer").rare == ()
