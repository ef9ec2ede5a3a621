"""The typed log and JSON: what was written once is read, and written again as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from exhume.runlog.codec import decoded, encoded, finite
from exhume.runlog.setting import Setting, VictimTraining
from exhume.runlog.summary import Row, Summary

SUMMARIES = Path(__file__).parents[2] / "docs" / "results" / "summaries"


@pytest.mark.parametrize(
    "path", sorted(SUMMARIES.glob("*/*.json")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_every_published_summary_comes_back_as_it_was(path: Path) -> None:
    plain = json.loads(path.read_text(encoding="utf-8"))["summary"]
    again = finite(encoded(decoded(Summary, plain)))
    assert json.dumps(again, sort_keys=True) == json.dumps(plain, sort_keys=True)


def test_there_are_published_summaries() -> None:
    assert len(list(SUMMARIES.glob("*/*.json"))) > 30


def test_a_setting_is_flat_in_json_and_nested_in_python() -> None:
    plain = {"name": "a", "bound_at": {"closeness": 1.0, "kappa": 0.1, "gamma": 0.4}, "floor": 0.2}
    setting = decoded(Setting, plain)
    assert setting.ceiling.at is not None
    assert (setting.ceiling.at.gamma, setting.floor.value) == (0.4, 0.2)
    again = encoded(setting)
    assert {key: again[key] for key in plain} == plain


def test_what_an_older_run_lacks_is_empty() -> None:
    assert decoded(Setting, {"name": "a"}) == Setting("a")
    training = decoded(VictimTraining, {"seed": 1, "accuracy": 0.5})
    assert training == VictimTraining(1, None, None, 0.5)
    row = decoded(Row, {"setting": "a", "attack": "glm"})
    assert (row.trials, row.success, row.metrics, row.message) == (0, None, {}, "")


def test_a_setting_without_trainings_and_judge_has_no_keys_for_them() -> None:
    assert not {"trainings", "authenticity"} & set(encoded(Setting("a")))


def test_null_where_a_number_must_stand_is_not_a_number() -> None:
    point = {"closeness": 1.0, "kappa": None, "gamma": 0.4}
    setting = decoded(Setting, {"name": "a", "bound": [point]})
    assert math.isnan(setting.ceiling.points[0].kappa)
    assert finite(encoded(setting))["bound"] == [point]


@pytest.mark.parametrize(
    ("key", "value"),
    [("title", 3), ("targets", "many"), ("bound", [1]), ("threat", None), ("value_range", [1.0])],
)
def test_what_is_of_another_type_is_refused(key: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        decoded(Setting, {"name": "a", key: value})
