"""``exhume audit --plan`` and ``--budget``: what is shown, what is run, what is left for later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.audit import small
from tests.cli.command import invoke

from exhume.audit import Plan, Serial, make_plan, run
from exhume.audit.costs import costs_of, done_in, tried
from exhume.audit.stages.attack import AttackTrials
from exhume.audit.stages.expense import Cost, Expense
from exhume.audit.stages.measure import Preparation
from exhume.config import load

TEXT = small.PLAIN + small.SCALED + small.audit(20, seed=3)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(TEXT)
    return path


def a_second_a_trial(plan: Plan, done: object, progress: object) -> dict[Expense, Cost]:
    """Costs as they would be measured, only rounder: 6 attacks in two settings, a second each."""
    trials = [AttackTrials(index, place) for index in range(2) for place in range(3)]
    free: dict[Expense, Cost] = {Preparation(index): Cost(0.0, 0.0, 1) for index in range(2)}
    return free | {one: Cost(0.0, 1.0, 2, 10**9) for one in trials}


@pytest.fixture
def round_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.audit.costs.costs_of", a_second_a_trial)


def test_a_plan_from_a_real_calibration(toml: Path) -> None:
    """Shown and not run; nothing is written."""
    found = invoke("audit", toml, "--out", toml.parent / "run", "--plan", "--executor", "serial")
    assert found.code == 0
    lines = found.out.splitlines()
    assert [line.split()[:3] for line in lines if " glm " in line] == [
        ["plain", "glm", "20"],
        ["scaled", "glm", "20"],
    ]
    # What the process itself holds counts too, and that is much where many tests ran before.
    assert re.match(r"about .+ with 1 worker, \d+\.\d GB of memory each", lines[0])
    assert lines[1] == "120 trials, 0 of them done"
    assert lines[2].startswith("times were measured just now, on this machine")
    assert not re.search(r" 0\.0\d+ s", found.out)
    assert not (toml.parent / "run").exists()


def test_times_of_an_earlier_run_are_used_again(toml: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(make_plan(load(toml)), folder, Serial())
    found = invoke("audit", toml, "--out", folder, "--plan", "--workers", "1")
    assert found.out.startswith("about 0 s with 1 worker, at least ")
    assert "\n120 trials, 120 of them done\n" in found.out
    assert "times are taken from 120 trials in the run folder" in found.out


def test_costs_are_the_seconds_on_record(toml: Path, tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", make_plan(load(toml))
    run(plan, folder, Serial())
    costs = costs_of(plan, done_in(folder), lambda done, total: None)
    rows = [
        r for r in small.rows(folder).values() if (r["setting"], r["attack"]) == ("plain", "glm")
    ]
    cost = costs[AttackTrials(0, [attack.name for attack in plan.attacks].index("glm"))]
    assert cost.stored
    assert cost.units == 20
    assert cost.each == pytest.approx(sum(r["seconds"] for r in rows) / 20)
    assert costs[Preparation(0)].memory > 50_000_000


def test_one_off_work_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that learns for half a second first, then needs a twentieth each."""
    plan = small.plan(small.PLAIN, small.audit(5), extra=(small.Learning(0.5, 0.05),))
    clock = SimpleNamespace(perf_counter=lambda: small.Learning.clock[-1])
    monkeypatch.setattr(small.Learning, "clock", [0.0])
    monkeypatch.setattr("exhume.audit.stages.attack.time", clock)
    cost = tried(plan, AttackTrials(0, len(plan.attacks) - 1))
    assert (cost.once, cost.each) == pytest.approx((0.5, 0.05))


@pytest.mark.usefixtures("round_costs")
def test_a_budget_runs_part_and_says_so_everywhere(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    where = ("--out", out, "--executor", "serial", "--quiet")
    found = invoke("audit", toml, *where, "--budget", "1m1s")
    assert found.code == 0
    assert "left out to fit 1m1s: plain 10 of 20 targets; scaled 10 of 20 targets" in found.out
    assert "left out to fit 1m1s: scaled was run on 10 of 20 targets" in found.out
    assert len(small.rows(out)) == 60
    summary = small.strict_json(out / "summary.json")
    assert summary["budget"] == "1m1s"
    assert summary["left_out"][1] == {"setting": "scaled", "run": 10, "of": 20}
    assert summary["complete"]
    assert {(b["targets"], b["unanswered"]) for b in summary["brackets"]} == {(10, 0)}
    page = (out / "report.html").read_text()
    assert "To fit a budget of 1m1s, some targets were omitted: plain was run on 10 of 20;" in page
    # The same command again has nothing to do, a longer one goes on, none at all does the rest.
    before = small.seconds(out)
    assert invoke("audit", toml, *where, "--budget", "1m1s").code == 0
    assert small.seconds(out) == before
    assert "plain 15 of 20" in invoke("audit", toml, *where, "--budget", "31s").out
    assert len(small.rows(out)) == 90
    assert "left out" not in invoke("audit", toml, *where).out
    assert before.items() <= small.seconds(out).items()
    assert "left-out" not in (out / "report.html").read_text()
    run(make_plan(load(toml)), tmp_path / "whole", Serial())
    found, whole = small.rows(out), small.rows(tmp_path / "whole")
    assert set(found) == set(whole)
    # Cut into other units, matrix products may round differently.
    for key, row in found.items():
        assert row["status"] == whole[key]["status"]
        if row["distance"] is not None:
            assert row["distance"] == pytest.approx(whole[key]["distance"], rel=1e-9, abs=1e-12)


@pytest.mark.usefixtures("round_costs")
def test_a_plan_within_a_budget(toml: Path, tmp_path: Path) -> None:
    found = invoke(
        "audit", toml, "--out", tmp_path / "run", "--plan", "--budget", "31s", "--workers", "2"
    )
    assert found.out.startswith("about 30 s with 2 workers, 1.0 GB of memory")
    assert "\n60 trials, 0 of them done\n" in found.out
    assert "each (2.0 GB together)" in found.out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["30", "soon", "0m"])
def test_budgets_that_are_no_times(toml: Path, text: str) -> None:
    found = invoke("audit", toml, "--out", toml.parent / "run", "--budget", text)
    assert found.error == f"a budget is a time such as 90s, 30m, 1h30m or 2d, got {text!r}"


@pytest.mark.usefixtures("round_costs")
def test_a_budget_that_is_too_small(toml: Path) -> None:
    found = invoke("audit", toml, "--out", toml.parent / "run", "--budget", "2s")
    assert "a budget of 2s is too small: one release of every setting takes about " in found.error
    assert not (toml.parent / "run").exists()


@pytest.mark.usefixtures("round_costs")
def test_a_plan_as_json(toml: Path, tmp_path: Path) -> None:
    options = ("--out", tmp_path / "run", "--workers", "1", "--plan", "--json", "--quiet")
    found = json.loads(invoke("audit", toml, *options).out)
    assert (found["trials"], found["done"], found["workers"]) == (120, 0, 1)
    assert found["seconds"] == pytest.approx(120.0)
    glm = [one for one in found["expenses"] if (one["setting"], one["what"]) == ("plain", "glm")]
    assert [(one["planned"], one["left"], one["seconds"]) for one in glm] == [(20, 20, 20.0)]
