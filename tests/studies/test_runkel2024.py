"""Runkel et al. 2024: what its parts declare, and their direction at smoke scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from exhume.audit import Serial, make_plan, run
from exhume.studies import Kind, Reading, Run, Scale, find, judged, parts
from exhume.studies.publish import note

PARTS = {part.name: part for part in parts("runkel2024")}

DIRECTION = {
    "initialisation": [
        *(
            f"{kind}, {text}"
            for kind in ("affine", "hidden")
            for text in (
                "ground truth start: distance to the nearest training image",
                "partition start: distance to the nearest of the partition",
                "random start: distance to the nearest training image",
            )
        ),
    ],
    "decoreco": [
        "ground truth start: distance to the nearest training image",
        "untuned random start: correlation with the training images",
    ],
    "landscape": [
        "bilevel λ₁=1 λ₂=1: distance to the nearest training image",
        "bilevel λ₁=0 λ₂=1: distance to the nearest of the partition",
        "kkt λ₁=1 λ₂=1: distance to the nearest training image",
        "from the truth: bilevel against kkt, distance to the nearest training image",
    ],
}
"""The rows that must come out as the paper has them even at this size."""


def _run(name: str, folder: Path) -> Run:
    part = PARTS[name]
    size = part.size(Scale.SMOKE)
    run(make_plan(part.config(size, seed=0)), folder, Serial())
    found = note(part, size, "smoke", 0, (), folder)
    assert found.summary["complete"]
    return found


@pytest.mark.slow
def test_real_candidates_are_not_told_from_inventions(tmp_path):
    found = _run("authenticity", tmp_path / "run")
    (facts,) = found.summary["settings"]
    assert facts["authenticity"]["tells"] is False
    area, low = (Reading(f"authenticity.measured.{end}", "row-space") for end in ("area", "low"))
    assert found.read(low) < 0.5
    assert 0.0 <= found.read(area) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTION)
def test_shows_the_papers_direction(name, tmp_path):
    part, found = PARTS[name], _run(name, tmp_path / "run")
    size = part.size(Scale.SMOKE)
    verdicts = {row.label: verdict for row, verdict in judged(part.rows(size), found)}
    told = {label: verdicts[label] for label in DIRECTION[name]}
    assert not {k: v.describe() for k, v in told.items() if v.kind is not Kind.CONFIRMED}
    statuses = [status for row in found.summary["rows"] for status in row["statuses"]]
    assert "CRASHED" not in statuses


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_is_a_plan_whose_rows_read_its_settings(part, scale):
    size = part.size(scale)
    plan = make_plan(part.config(size, seed=3))
    names = {table.name for table in plan.config.setting}
    labels = [row.label for row in part.rows(size)]
    assert len(set(labels)) == len(labels)
    assert {row.measured.setting for row in part.rows(size)} <= names


def test_the_papers_networks_and_mixtures():
    part = find("runkel2024", "initialisation")
    tables = part.config(part.size(Scale.PAPER), seed=0).setting
    assert [table.release.hidden for table in tables] == [()] * 3 + [(6144,)] * 3
    assert [table.data.shrink for table in tables] == [1] * 6
    landscape = find("runkel2024", "landscape")
    mixtures = landscape.config(landscape.size(Scale.PAPER), seed=0).setting
    assert len(mixtures) == 2 * 5 * 5
    starts = {(table.start.truth, table.start.noise) for table in mixtures}
    assert {(0.25, 0.75), (1.0, 0.0), (0.0, 1.0)} <= starts
