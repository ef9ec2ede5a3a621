"""The membership game inside an audit: asked for by a number, reported in a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.audit import small
from tests.audit.test_batches import text as gradient

from exhume.audit import Serial, run
from exhume.report import render

NETWORK = """
[[setting]]
name = "network"
data = {{ name = "digits", fixed_set = 60 }}
release = {{ model = "mlp", hidden = [6] }}
knowledge = {{ training = {{ learning_rate = 0.2, epochs = 10 }}, initial = {initial} }}
"""


def _said(folder: Path, toml: str, games: int) -> str:
    plan = small.plan(toml, small.audit(6, membership=str(games), attacks='["oblivious"]'))
    summary = run(plan, folder, Serial())
    return str(summary.settings[0]["membership"])


def _advantage(text: str) -> float:
    found = re.search(r"advantage (-?[\d.]+)", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize(
    ("toml", "attack"),
    [
        (small.PLAIN, "retraining"),
        (NETWORK.format(initial="true"), "retraining"),
        (NETWORK.format(initial="false"), "shadow-models"),
    ],
    ids=["linear model", "network", "network from an unknown start"],
)
def test_the_strongest_test_that_applies_is_run(tmp_path: Path, toml: str, attack: str) -> None:
    text = _said(tmp_path / "run", toml, 40)
    assert text.startswith(f"{attack}: advantage")
    assert "in 40 trials" in text
    if attack == "retraining":
        assert _advantage(text) == 1.0


def test_noise_has_a_ceiling(tmp_path: Path) -> None:
    text = _said(tmp_path / "run", small.NOISY, 60)
    assert "at most 0.683 for any attack" in text
    assert _advantage(text) < 0.683


def test_it_is_said_in_the_report(tmp_path: Path) -> None:
    said = _said(tmp_path / "run", small.PLAIN, 20)
    page = render(tmp_path / "run").read_text()
    assert "Which of two records was trained on?" in page
    assert said.removeprefix("retraining") in page


def test_nothing_is_said_unasked(tmp_path: Path) -> None:
    assert _said(tmp_path / "run", small.PLAIN, 0) == ""
    assert "Which of two records" not in render(tmp_path / "run").read_text()


def test_a_gradient_is_not_asked_of(tmp_path: Path) -> None:
    assert _said(tmp_path / "run", gradient(), 20).startswith("not asked: it needs a training")
