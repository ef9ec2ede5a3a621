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


def _said(folder: Path, toml: str, games: int, **more: str) -> str:
    audit = small.audit(6, membership=str(games), attacks='["oblivious"]', **more)
    summary = run(small.plan(toml, audit), folder, Serial())
    return summary.settings[0].membership.text


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
    assert _said(tmp_path / "run", gradient(), 20).startswith("not played: it needs a training")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"membership_test": '"retraining"'}, "retraining"),
        ({"membership_test": '"shadow-models"'}, "shadow-models"),
        ({"membership_test": '"nearest-mean"'}, "nearest-mean"),
        ({"membership_test": '"loss-threshold"'}, "loss-threshold"),
        (
            {"membership_test": '"by-reconstruction"', "membership_attack": '"glm"'},
            "by-reconstruction",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_test_by_its_name(tmp_path: Path, options: dict[str, str], name: str) -> None:
    text = _said(tmp_path / "run", small.PLAIN, 20, **options)
    assert text.startswith(f"{name}: advantage")
    assert _advantage(text) > 0.2
    page = render(tmp_path / "run").read_text()
    assert f"trained on? {name.capitalize()}: advantage" in page


def test_naming_the_default_changes_nothing(tmp_path: Path) -> None:
    named = _said(tmp_path / "named", small.NOISY, 30, membership_test='"retraining"')
    assert named == _said(tmp_path / "default", small.NOISY, 30)


def test_a_test_that_does_not_apply_says_why(tmp_path: Path) -> None:
    secret = NETWORK.format(initial="false")
    text = _said(tmp_path / "run", secret, 20, membership_test='"retraining"')
    assert text.startswith("no test ran: the training gives a different result each time")
