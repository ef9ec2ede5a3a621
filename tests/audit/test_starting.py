"""Searches that begin where a setting says, and where they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exhume.audit import Serial, make_plan, run
from exhume.audit.facts import measure
from exhume.audit.starting import COLUMNS, beginning, begun
from exhume.audit.store import Store
from exhume.config import Config, parse
from exhume.errors import InputError

TOML = """
[[setting]]
name = "alone"
targets = 6
attacks = ["bilevel"]
data = {{ name = "digits", classes = [3, 8], shadow_targets = {shadows} }}
release = {{ model = "mlp", hidden = [], batch_size = 6 }}
start = {start}

[setting.knowledge]
labels = true
training = {{ learning_rate = 0.1, momentum = 0.9, weight_decay = 1e-2, epochs = 200 }}
initial = false

[setting.options.bilevel]
steps = 10

[audit]
authenticity = 0
"""


def config(start: str, shadows: int = 40) -> Config:
    text = TOML.format(start=start, shadows=shadows)
    return parse(text, folder=Path(), source="a test")


def ends(start: str, folder: Path) -> dict[str, float]:
    run(make_plan(config(start)), folder, Serial())
    with Store.open(folder) as store:
        records = [r for r in store.records() if r.trial.attack == "bilevel"]
    assert {r.status for r in records} == {"APPROXIMATE"}
    return {name: float(np.mean([r.scores[name] for r in records])) for name in COLUMNS}


def test_every_search_ends_nearest_to_where_it_began(tmp_path):
    truth = ends("{ truth = 1.0 }", tmp_path / "truth")
    other = ends("{}", tmp_path / "other")
    noise = ends("{ noise = 1.0 }", tmp_path / "noise")
    assert truth["nearest-training"] < 0.2 * truth["nearest-shadow"]
    assert other["nearest-shadow"] < 0.2 * other["nearest-training"]
    assert noise["nearest-training"] > other["nearest-training"]
    assert truth["parameters"] < other["parameters"]


def test_a_partition_has_the_same_classes_and_none_of_the_records():
    setting = make_plan(config("{}")).setting(0)
    at = beginning(setting, range(6))
    labels = [
        setting.shadow_targets.labels[np.argmax((setting.shadow_targets.x == x).all(axis=(1, 2)))]
        for x in at.shadows
    ]
    assert labels == setting.targets.labels.tolist()
    assert not any((at.training == x).all(axis=(1, 2)).any() for x in at.shadows)


def test_too_few_shadow_targets_are_named():
    plan = make_plan(config("{}", shadows=2))
    with pytest.raises(InputError, match="too few shadow targets of class"):
        begun(plan.attacks[0], plan.setting(0), plan.config.setting[0], range(6))


def test_it_goes_with_weights_alone():
    text = TOML.format(start="{}", shadows=40).replace(", batch_size = 6", "")
    with pytest.raises(InputError, match="start goes with weights alone"):
        parse(text, folder=Path(), source="a test")


@pytest.mark.parametrize(("start", "told"), [("{ truth = 0.5 }", True), ("{}", False)])
def test_what_begins_at_the_truth_says_that_it_is_no_attack(start, told):
    threat = measure(make_plan(config(start)), 0).threat
    assert any("No attack: searches begin with 50% of the training" in s for s in threat) is told
