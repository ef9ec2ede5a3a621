"""Bilevel reconstruction in an audit: by its name, and for what it can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from exhume.audit import Serial, make_plan, run
from exhume.audit.attack_options import attack_names
from exhume.config import Config, parse
from exhume.runlog.outcome import Outcome
from exhume.runlog.store import Store

TOML = """
[[setting]]
name = "alone"
targets = 8
attacks = ["bilevel"]
data = {{ name = "fashion-mnist-small", classes = [8, 9], shadow_targets = 40 }}
release = {{ model = "mlp", hidden = {hidden}, activation = "relu", batch_size = 8 }}

[setting.knowledge]
labels = {labels}
training = {{ learning_rate = 0.1, momentum = 0.9, weight_decay = {decay}, epochs = 300 }}
initial = false

[setting.options.bilevel]
steps = {steps}

[audit]
authenticity = 0
"""


def config(hidden: str, *, labels: str = "true", decay: str = "1e-2", steps: int = 20) -> Config:
    text = TOML.format(hidden=hidden, labels=labels, decay=decay, steps=steps)
    return parse(text, folder=Path(), source="a test")


def outcomes(plan: Config, folder: Path) -> list[Outcome]:
    run(make_plan(plan), folder, Serial())
    with Store.open(folder) as store:
        return [one for one in store.outcomes() if one.trial.attack == "bilevel"]


@pytest.mark.parametrize("hidden", ["[]", "[12]"])
def test_it_makes_training_on_its_records_end_nearer_to_the_weights(hidden, tmp_path):
    found = outcomes(config(hidden), tmp_path / "run")
    assert [one.status for one in found] == ["APPROXIMATE"] * 8
    stats = found[0].stats
    assert stats["distance"] < 0.8 * stats["initial_distance"]
    # The default start is noise that has nothing of the truth: it stays noise.
    assert not any(one.success for one in found)
    assert all(one.label_correct is not None for one in found)


@pytest.mark.parametrize(
    ("hidden", "labels", "decay", "status", "reason"),
    [
        ("[12]", "true", "0", "REFUSED", "without weight decay training does not converge"),
        (
            "[]",
            "false",
            "1e-2",
            "UNINFORMED",
            "the number of records must be given, or their labels",
        ),
    ],
)
def test_what_it_can_not_do_it_says(hidden, labels, decay, status, reason, tmp_path):
    found = outcomes(config(hidden, labels=labels, decay=decay), tmp_path / "run")
    assert {one.status for one in found} == {status}
    assert reason in found[0].message


def test_it_is_not_run_unless_named():
    plan = config("[]")
    unnamed = plan.setting[0].model_copy(update={"attacks": None})
    assert "bilevel" not in attack_names(unnamed, plan.audit)
    assert "bilevel" in attack_names(plan.setting[0], plan.audit)
