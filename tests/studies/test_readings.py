"""Figures of gradients and of weights alone, read from a summary."""

from __future__ import annotations

import math
from typing import Any

import pytest

from exhume.studies import Reading, Run


def row(attack: str, error: float | None, ran: int) -> dict[str, Any]:
    metrics = {} if error is None else {"rmse": {"mean": error}}
    return {"setting": "a", "attack": attack, "ran": ran, "metrics": metrics}


def run(**facts: Any) -> Run:
    setting = {"name": "a", "bound_at": None, **facts}
    rows = [row("liu", 0.3, 0), row("geiping", 0.4, 2), row("cocktail", None, 0)]
    summary = {"settings": [setting], "rows": rows, "brackets": []}
    return Run("paper", "part", "laptop", {}, 0, (), summary)


def test_what_an_attack_left_counts_only_where_asked():
    assert run().read(Reading("rmse.mean", "a", "liu")) is None
    assert run().read(Reading("rmse.mean", "a", "liu", ended=False)) == 0.3
    assert run().read(Reading("rmse.mean", "a", "cocktail", ended=False)) is None


def test_the_strongest_attack_leaves_the_smallest_error():
    assert run().read(Reading("strongest", "a")) == 0.3


@pytest.mark.parametrize(
    ("losses", "mean"), [([1.0, 2.0], 1.5), ([1.0, None], math.inf), ([], None)]
)
def test_a_training_that_diverged_has_a_loss_without_limit(losses, mean):
    found = run(trainings=[{"training_loss": loss} for loss in losses])
    assert found.read(Reading("final_loss", "a")) == mean


def test_figures_within_tables():
    found = run(authenticity={"measured": {"area": 0.6}, "held_out": None})
    assert found.read(Reading("authenticity.measured.area", "a")) == 0.6
    assert found.read(Reading("authenticity.held_out.area", "a")) is None
