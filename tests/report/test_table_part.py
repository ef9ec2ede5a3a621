"""Tables in the report: rows under the columns' names, each column's rate, exposed records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.report.pages import Page, read
from tests.report.runs import BLIND, Attempt, Made, write

from exhume.report import render
from exhume.runlog.table_columns import TableColumn

COLUMNS = (
    TableColumn("age", "integer", unit="years", step=1.0, mean=40.0, scale=5.0),
    TableColumn("bmi", "continuous", step=0.1),
    TableColumn("smoker", "categorical", ("never", "pipe"), counts=(97, 3)),
    TableColumn("ward", "categorical", ("a", "b"), counts=(50, 50), given=True),
)
# Errors of 0.02 are 0.1 years and 0.02 of the body mass; those of 0.06 turn a bmi into another.
MADE = Made("patients", (Attempt("refit", (0.02, 0.06)), BLIND), columns=COLUMNS, count=4)


def cells(page: Page, column: str) -> list[str]:
    """The cells of a column's line in the table of columns."""
    part = page.source.split('<table class="columns">')[1].split("</table>")[0]
    (row,) = [row for row in part.split("<tr") if f'row">{column}<' in row]
    return re.findall(r'class="number" data-of="[^"]*">([^<]*)', row.replace("\u00a0", " "))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return read(render(write(tmp_path_factory.mktemp("table") / "run", MADE)))


def test_a_cell_came_out_if_it_reads_as_the_true_one(page: Page) -> None:
    assert cells(page, "age")[:2] == ["100 % (4 of 4)", "0.2 years"]
    assert cells(page, "bmi")[:2] == ["50 % (2 of 4)", "0.04"]


def test_beside_the_blind_guess(page: Page) -> None:
    # It is 0.25 to 0.35 off in every entry: 1.2 to 1.8 years, and no level is changed.
    assert cells(page, "age")[2:4] == ["0 % (0 of 4)", "1.4 years"]
    assert cells(page, "smoker")[2] == "100 % (4 of 4)"


def test_what_rare_levels_add(page: Page) -> None:
    assert cells(page, "smoker")[-1] == "2 of 2; other levels 2 of 2"
    assert cells(page, "age")[-1] == "–"
    assert "Rare in" in page.text


def test_what_was_given_is_neither_counted_nor_marked(page: Page) -> None:
    assert "The adversary was given ward; every other column" in page.text
    assert cells(page, "ward") == []
    assert page.source.count('class="number given"') == 1 + 3
    assert "3 of 3" in page.text, "cells of the most exposed record"


def test_rows_stand_under_their_names_in_the_units_of_the_table(page: Page) -> None:
    targets = MADE.targets()
    assert "age (years)" in page.text
    assert f'came-out">{targets[0, 0] * 5 + 40:.0f}</td>' in page.source
    assert f'came-out">{targets[0, 1]:.1f}</td>' in page.source


def test_the_most_exposed_records_come_first(page: Page) -> None:
    part = page.source.split('<table class="exposed">')[1].split("</table>")[0]
    order = [int(row.split("<")[0]) for row in part.split("no. ")[1:]]
    assert set(order[:2]) == {0, 2}, "those whose bmi came out"


def test_redacted_the_columns_stay_and_no_row_does(tmp_path: Path) -> None:
    page = read(render(write(tmp_path / "run", MADE), redact=True))
    assert cells(page, "bmi")[0] == "50 % (2 of 4)"
    assert 'class="values"' not in page.source
    assert "pipe" not in page.text
