"""The survey of scikit-learn's estimators: its page is its rows, and its rows come out again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from survey_cases import estimator_cases, pipeline_cases  # noqa: E402
from survey_estimators import PAGE, ROWS, judge, with_the_rest  # noqa: E402
from survey_page import FLOOR, SurveyRow, page  # noqa: E402


@pytest.fixture(scope="module")
def rows() -> list[SurveyRow]:
    kept = [SurveyRow(**json.loads(line)) for line in ROWS.read_text("utf-8").splitlines()]
    cases = [*estimator_cases(), *pipeline_cases()]
    return with_the_rest({row.name: row for row in kept}, cases)


def test_the_page_is_made_of_the_rows(rows):
    assert PAGE.read_text("utf-8") == page(rows)


def test_hardly_any_estimator_is_left_out(rows):
    assert len([row for row in rows if row.kind == "pipeline"]) == 12
    assert sum(row.answer == "not run" for row in rows) <= 0.08 * len(rows)


def test_the_floor_holds(rows):
    assert sum(row.counts for row in rows) / len(rows) >= FLOOR
    for row in rows:
        assert row.answer in (
            "rebuilt",
            "carries records",
            "cells",
            "not rebuilt",
            "refused",
            "not run",
        )
        # Trees are answered by columns, and whatever has no record says why.
        assert row.answer != "cells" or (row.pinned is not None and row.width is not None)
        assert row.answer not in ("not rebuilt", "refused") or row.note, row


@pytest.mark.parametrize(
    "name", ["Ridge", "KNeighborsClassifier", "DecisionTreeClassifier", "CalibratedClassifierCV"]
)
def test_rows_come_out_again(rows, name):
    case = next(case for case in estimator_cases() if case.name == name)
    again, kept = judge(case, targets=3), next(row for row in rows if row.name == name)
    assert (again.answer, again.attack) == (kept.answer, kept.attack)
    if again.answer == "rebuilt":
        assert again.ratio is not None
        assert kept.ratio is not None
        assert again.ratio < 100 * kept.ratio
