"""Every part at smoke scale: it runs, and shows the paper's direction (who beats whom)."""

from __future__ import annotations

import os

import pytest
from tests.studies.summaries import leaning

from exhume.audit import Serial, make_plan, run
from exhume.metrics import lpips_unavailable
from exhume.studies import Scale, StudyReading, StudyRun, parts
from exhume.studies.publish import note

PARTS = {part.name: part for part in parts("balle2022")}

DIRECTION = {
    "glm": [
        f"{model} regression, error of a value, in standard deviations"
        for model in ("linear", "ridge", "logistic", "multinomial", "poisson")
    ],
    "default": ["mean squared error on MNIST", "the same, by inverting the training"],
    "default-cifar": ["mean squared error on CIFAR-10", "the same, by inverting the training"],
    "oracle": ["nearest known record against a blind guess, digits"],
    "shadows": ["400 shadow models", "MSE, 40 → 400 shadow models"],
    "metrics": ["MSE and LPIPS"],
    "seeds": ["seed 0", "seed 1", "seed 1 against seed 0"],
    "transfer": ["fine-tuned on 64 against 64 from scratch"],
    "width": ["width 2", "width 10", "width 10, second layer only"],
    "fixed-size": ["fixed set of 30", "fixed set of 60"],
    "epochs": ["5 epochs", "60 epochs"],
    "optimisers": ["GD + momentum, 20 epochs", "Adam, 20 epochs"],
    "blackbox": ["only logits are released"],
    "factors": [
        *("default", "another fixed set", "larger network", "some layers", "more epochs", "ReLU"),
        *("smaller learning rate", "random initialisation", "black box"),
    ],
    "factors-cifar": ["default", "another fixed set", "random initialisation"],
    "ood": ["shadow targets from CIFAR-100"],
    "warmstart": ["initial parameters known", "near convergence, against that"],
    "easy-hard": ["easiest against hardest targets"],
    "gradient-norm": ["error and gradient norm"],
    "dead-gradients": ["parameters without a gradient"],
    "init": [
        "learning rate 0.2, momentum 0, initial parameters known",
        "learning rate 0.2, momentum 0, random",
        "membership inference, known initial parameters",
    ],
    "minibatch": [
        "batches of 16, learning rate .01, order known",
        "batches of 16, learning rate .2, order known",
        "batches of 16, learning rate .2, order unknown against known",
    ],
    "dp": ["without privacy", "ε = 10"],
    "dp-cifar": ["without privacy", "ε = 10"],
    "rero": ["ε = 1: share of targets rebuilt", "ε = 1: Theorem 2", "ε = 1: κ of the prior"],
}
"""The rows that must come out as the paper has them even at this size."""
LARGER = {"epochs": ("60 epochs", "5 epochs"), "warmstart": ("near convergence", "from scratch")}
"""Settings of which the first must be the harder one for ridge, which varies less than φ here."""


def test_every_part_is_held_to_its_direction():
    assert set(DIRECTION) == set(PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_shows_the_papers_direction(name, tmp_path):
    if name == "metrics" and lpips_unavailable() is not None:
        pytest.skip("LPIPS has no weights here: set EXHUME_DATA")
    found = _run(name, tmp_path / "run")
    rows = PARTS[name].rows(PARTS[name].size(Scale.SMOKE))
    as_published = leaning(rows, found)
    assert [label for label in DIRECTION[name] if not as_published[label]] == []
    if name in LARGER:
        harder, easier = (found.read(StudyReading("mse.mean", s), "ridge") for s in LARGER[name])
        assert harder > 1.2 * easier
    _require_attacks_ran(name, found)


def _run(name: str, folder: os.PathLike[str]) -> StudyRun:
    part = PARTS[name]
    size = part.size(Scale.SMOKE)
    run(make_plan(part.config(size, seed=0)), folder, Serial())
    found = note(part, size, "smoke", 0, (), folder)
    assert found.summary.complete
    return found


def _require_attacks_ran(name: str, found: StudyRun) -> None:
    """No attack crashed, and the paper's own ran on every target."""
    statuses = [status for row in found.summary.rows for status in row.statuses]
    assert "CRASHED" not in statuses
    if PARTS[name].attacks:
        own = [r for r in found.summary.rows if r.attack == PARTS[name].attacks[0]]
        assert len(own) == len(found.settings())
        assert all(row.ran == row.trials for row in own)
