"""The pages of results say what the stored summaries say, to the letter."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from exhume.protocol.errors import InputError
from exhume.studies import Scale, find, papers, parts
from exhume.studies.drawing import figure_file, painted
from exhume.studies.leaderboard import leaderboard
from exhume.studies.page import render
from exhume.studies.publish import publish, published

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("paper", papers())
def test_the_page_is_what_its_summaries_say(paper):
    page = (RESULTS / f"{paper}.md").read_text(encoding="utf-8")
    assert page == render(paper, RESULTS), "exhume study --render docs/results"


@pytest.mark.parametrize("paper", papers())
def test_the_figures_are_what_the_summaries_say(paper):
    for name, run in published(RESULTS, paper).items():
        part = find(paper, name)
        for plot in part.plots(part.size(Scale(run.scale), run.changes)):
            path = RESULTS / "figures" / figure_file(paper, name, plot)
            drawn = painted(plot, run)
            assert drawn is None or drawn == path.read_text(encoding="utf-8"), path.name


def test_the_leaderboard_is_what_the_summaries_say():
    page = (RESULTS / "leaderboard.md").read_text(encoding="utf-8")
    assert page == leaderboard(RESULTS), "exhume study --render docs/results"


def test_another_figure_in_a_summary_is_another_page(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    path = tmp_path / "results" / "summaries" / "balle2022" / "default.json"
    before = render("balle2022", tmp_path / "results")
    plain = json.loads(path.read_text(encoding="utf-8"))
    row = next(r for r in plain["summary"]["rows"] if r["attack"] == "reconstructor")
    row["metrics"]["mse"]["mean"] *= 1.5
    path.write_text(json.dumps(plain), encoding="utf-8")
    assert before == render("balle2022", RESULTS)
    assert before != render("balle2022", tmp_path / "results")


@pytest.mark.parametrize("paper", papers())
def test_runs_are_complete_and_of_parts_that_are_declared(paper):
    runs = published(RESULTS, paper)
    assert set(runs) <= {part.name for part in parts(paper)}
    for run in runs.values():
        assert run.summary.complete
        assert run.summary.command.startswith(f"exhume study {run.paper} {run.part} ")
        assert f"--scale {run.scale}" in run.summary.command


@pytest.mark.parametrize("page", [*papers(), "leaderboard"])
def test_links_and_pictures_lead_somewhere(page):
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, heading = link.partition("#")
        assert not target or (RESULTS / target).is_file(), link
        assert target or heading in anchors, link


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"not a finished study: it has no study\.json"):
        publish(tmp_path / "results", [tmp_path])


@pytest.mark.parametrize("paper", papers())
def test_the_commands_on_the_page_are_those_of_the_runs(paper):
    """What is declared now is what was run: else the command would make other figures."""
    for name, run in published(RESULTS, paper).items():
        size = find(paper, name).size(Scale(run.scale), run.changes)
        assert {**size.plain(), **run.size} == size.plain(), f"run {run.command()} again"
