"""Searches that begin where a setting says, and where they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exhume.audit import Serial, make_plan, run
from exhume.audit.given_starts import COLUMNS, beginning, begun, drawn_noise
from exhume.audit.stages.measure import measure
from exhume.config import Config, parse
from exhume.protocol.errors import InputError
from exhume.runlog.store import Store

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
        records = [r for r in store.outcomes() if r.trial.attack == "bilevel"]
    assert {r.status for r in records} == {"APPROXIMATE"}
    assert all(set(COLUMNS) <= set(r.scores) for r in records)
    assert {r.scores["residual"] for r in records} == {None}  # of stationarity, not of training
    own = [name for name in COLUMNS if name != "residual"]
    return {name: float(np.mean([r.scores[name] for r in records])) for name in own}


def test_every_search_ends_nearest_to_where_it_began(tmp_path):
    truth = ends("{ truth = 1.0 }", tmp_path / "truth")
    other = ends("{}", tmp_path / "other")
    noise = ends("{ noise = 1.0 }", tmp_path / "noise")
    assert truth["nearest-training"] < 0.2 * truth["nearest-shadow"]
    assert other["nearest-shadow"] < 0.2 * other["nearest-training"]
    assert noise["nearest-training"] > other["nearest-training"]
    assert noise["nearest-noise"] < 0.2 * noise["nearest-training"]
    assert other["nearest-noise"] > other["nearest-shadow"]
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


def test_noise_is_drawn_once_for_a_release_and_is_what_was_asked_for():
    plan = make_plan(config("{ noise = 1.0, deviation = 0.05 }"))
    setting, table = plan.setting(0), plan.config.setting[0]
    noise = drawn_noise(setting, table.start, range(6), 0)
    begins = [begun(plan.attacks[0], setting, table, range(6), seed=0).start for _ in range(2)]
    rngs = [np.random.default_rng(k) for k in range(2)]
    for start, rng in zip(begins, rngs, strict=True):
        assert np.array_equal(start.draw(6, (8, 8), rng), noise)
    # Of 384 draws the mean is off by .05/√384 = .0026, the deviation by .05/√768 = .0018.
    assert noise.mean() == pytest.approx(setting.pool.mean(), abs=4 * 0.0026)
    assert noise.std() == pytest.approx(0.05, abs=4 * 0.0018)
    assert not np.array_equal(noise, drawn_noise(setting, table.start, range(6), 1))
    free = begun(plan.attacks[0], setting, table, range(6)).start
    drawn = [free.draw(6, (8, 8), rng) for rng in rngs]
    assert not np.array_equal(*drawn)


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
    threat = measure(make_plan(config(start)), 0).setting.threat
    assert (
        any("Not an attack: searches start with 50% of the training" in s for s in threat) is told
    )
