"""Figures of gradients and of weights alone, read from a summary."""

from __future__ import annotations

import math
from typing import Any

import pytest

from exhume.runlog.codec import decoded
from exhume.runlog.summary import Summary
from exhume.studies import StudyReading, StudyRun


def row(attack: str, error: float | None, ran: int) -> dict[str, Any]:
    metrics = {} if error is None else {"rmse": {"mean": error}}
    return {"setting": "a", "attack": attack, "ran": ran, "metrics": metrics, "error": error}


def run(**facts: Any) -> StudyRun:
    setting = {"name": "a", "bound_at": None, **facts}
    rows = [row("liu", 0.3, 0), row("geiping", 0.4, 2), row("cocktail", None, 0)]
    summary = decoded(Summary, {"settings": [setting], "rows": rows, "brackets": []})
    return StudyRun("paper", "part", "laptop", {}, 0, (), summary)


def test_what_an_attack_left_counts_only_where_asked():
    assert run().read(StudyReading("rmse.mean", "a", "liu")) is None
    assert run().read(StudyReading("rmse.mean", "a", "liu", ended=False)) == 0.3
    assert run().read(StudyReading("rmse.mean", "a", "cocktail", ended=False)) is None


def test_the_strongest_attack_leaves_the_smallest_error():
    assert run().read(StudyReading("strongest", "a")) == 0.3


@pytest.mark.parametrize(
    ("losses", "mean"), [([1.0, 2.0], 1.5), ([1.0, None], math.inf), ([], None)]
)
def test_a_training_that_diverged_has_a_loss_without_limit(losses, mean):
    found = run(trainings=[{"training_loss": loss} for loss in losses])
    assert found.read(StudyReading("final_loss", "a")) == mean


def test_figures_within_tables():
    found = run(authenticity={"measured": {"area": 0.6}, "held_out": None})
    assert found.read(StudyReading("authenticity.measured.area", "a")) == 0.6
    assert found.read(StudyReading("authenticity.held_out.area", "a")) is None
