"""Liu et al. 2024: what its parts declare, and their direction at smoke scale."""

from __future__ import annotations

import pytest
from tests.studies.summaries import leaning

from exhume.audit import Serial, make_plan, run
from exhume.studies import Scale, find, parts
from exhume.studies.liu2024.published import DEFENCES, INVERSION, OURS, TABLE_4, TABLE_5
from exhume.studies.plots import Lines, Plane
from exhume.studies.publish import note

PARTS = {part.name: part for part in parts("liu2024")}

DIRECTION = {
    "bounds": [
        *("attack: hidden units m from 1568 to 6272", "attack: values d from 49 to 196"),
        *("attack: clipping", "attack: noise .3", "attack: records B from 1 to 4"),
        "attack: share sent (dropout) from 1 to 0.25",
        *("attack: dropout of .75, ignored", "attack: pruning 0.9"),
        *("floor: noise σ from 0.001 to 0.01", "floor: hidden units m from 1568 to 6272"),
        *("floor: values d from 49 to 196", "floor: pruning 0.9"),
    ],
    "features": [
        *("batch of 1, no defence", "batch of 2, no defence", "batch of 2, clip 2"),
        *("batch of 2, noise .1", "no defence: batch of 2 against 1"),
        *("batch of 2, no defence: a fit from there", "batch of 2, prune .7: a fit from there"),
        "batch of 2, prune .7: a fit that ignores it",
    ],
    "attacks": [
        "RMSE, batch of 2: the paper's attack",
        "RMSE, batch of 2: Geiping, with statistics",
    ],
    "defences": [
        *("RMSE, batch of 2, no defence", "RMSE, batch of 2, clip 2"),
        *("RMSE, batch of 2, noise .1", "RMSE, batch of 2, prune .99"),
        "RMSE, batch of 2, clip 2: Robbing The Fed",
        "strongest attack, batch of 2: prune .99 against prune .3",
        "strongest attack, batch of 2: noise .1 against clip 2",
        "strongest attack, batch of 2: clip 2 against no defence",
    ],
    "utility": [
        "final training loss, batch of 2, clip 2",
        "final training loss, batch of 2, prune .3",
    ],
    "ablation": ["PSNR, batch of 2: without GR and FM", "PSNR, batch of 2: all parts"],
}
"""The rows that must come out as the paper has them even at this size."""


def test_every_part_is_held_to_its_direction():
    assert set(DIRECTION) == set(PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTION)
def test_shows_the_papers_direction(name, tmp_path):
    part = PARTS[name]
    size = part.size(Scale.SMOKE)
    run(make_plan(part.config(size, seed=0)), tmp_path / "run", Serial())
    found = note(part, size, "smoke", 0, (), tmp_path / "run")
    assert found.summary.complete
    leans = leaning(part.rows(size), found)
    assert not [label for label in DIRECTION[name] if not leans[label]]
    statuses = [status for row in found.summary.rows for status in row.statuses]
    assert "CRASHED" not in statuses


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_is_a_plan_whose_rows_read_its_settings(part, scale):
    size = part.size(scale)
    plan = make_plan(part.config(size, seed=3))
    names = [table.name for table in plan.config.setting]
    assert len(set(names)) == len(names)
    labels = [row.label for row in part.rows(size)]
    assert len(set(labels)) == len(labels)
    assert {row.measured.setting for row in part.rows(size)} <= set(names)
    assert _drawn(part.plots(size)) <= set(names)


def _drawn(plots):
    """Return the settings that lines and planes read."""
    found = set()
    for plot in plots:
        if isinstance(plot, Lines):
            found |= {reading.setting for line in plot.lines for _, reading in line.points}
        if isinstance(plot, Plane):
            found |= {reading.setting for _, *pair in plot.points for reading in pair}
    return found


def test_the_papers_network_and_images():
    part = find("liu2024", "attacks")
    tables = part.config(part.size(Scale.PAPER), seed=0).setting
    assert [table.batch for table in tables] == [16, 32]
    release = tables[0].release
    assert (release.model, release.width, release.wide_head) == ("resnet18", 64, 16_384)
    assert (tables[0].data.name, tables[0].data.shrink) == ("cifar-10", 1)
    options = {one.attack: one.values() for one in tables[0].options}
    assert options["liu"]["steps"] == 10_000


def test_the_papers_tables():
    assert len(DEFENCES) == 15
    assert TABLE_4[4][INVERSION]["noise .01"] == 0.31
    assert TABLE_4[8][OURS]["prune .3"] == 0.15
    assert TABLE_5[8]["noise .1"] == 1.540
    better = [TABLE_4[b][OURS][d] <= TABLE_4[b][INVERSION][d] for b in TABLE_4 for d in DEFENCES]
    assert all(better)
