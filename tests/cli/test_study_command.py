"""``exhume study`` from the command line: lists, refuses, runs, and takes runs over."""

from __future__ import annotations

import json

from tests.cli.command import invoke

from exhume.studies import parts


def test_lists_every_part(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = invoke("study", "--list")
    assert shown.code == 0
    for part in parts("balle2022"):
        assert part.name in shown.out
        assert part.reference in shown.out


def test_refuses_what_is_not_there():
    assert "there are balle2022" in invoke("study", "nobody2020", "x").error
    refused = invoke("study", "balle2022", "widths").error
    assert refused == "balle2022: there is no part called 'widths'; did you mean 'width'?"
    assert "name a part of balle2022: glm" in invoke("study", "balle2022").error
    assert "smoke, laptop, paper" in invoke("study", "balle2022", "glm", "--scale", "big").error
    refused = invoke("study", "balle2022", "glm", "--set", "records=3")
    assert "one of the keys data, shadow_targets" in refused.error


def test_runs_a_part_and_puts_it_on_the_pages(tmp_path):
    out, results = tmp_path / "glm", tmp_path / "results"
    command = ("study", "balle2022", "glm", "--scale", "smoke", "--set", "targets=3")
    done = invoke(*command, "--executor", "serial", "--quiet", "--out", out)
    assert done.code == 0
    assert "confirmed" in done.out
    noted = json.loads((out / "study.json").read_text(encoding="utf-8"))
    assert noted["changes"] == ["targets=3"]
    assert noted["summary"] == json.loads((out / "summary.json").read_text(encoding="utf-8"))
    rendered = invoke("study", "--render", results, "--from", out)
    assert rendered.code == 0
    page = (results / "balle2022.md").read_text(encoding="utf-8")
    assert "exhume study balle2022 glm --scale smoke --set targets=3" in page
    assert "**confirmed**" in page
    assert "| glm | 100% of 5 | 100% [" in (results / "leaderboard.md").read_text(encoding="utf-8")
    assert (results / "summaries" / "balle2022" / "glm.json").is_file()
