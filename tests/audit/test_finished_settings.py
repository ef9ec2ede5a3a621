"""Settings are reported as they finish, each once, with the bracket that the summary has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.small import PLAIN, SCALED, audit, config
from tests.cli.command import invoke

from exhume.audit import Bracket, Serial, Store, make_plan, run
from exhume.audit.stages.attack import AttackFirst, needs_shadows


def test_each_setting_is_told_of_once_before_the_run_ends(tmp_path: Path) -> None:
    plan = make_plan(config(PLAIN, SCALED, audit(3)))
    told: list[Bracket] = []
    steps: list[tuple[int, int]] = []
    when: list[int] = []

    def finished(bracket: Bracket) -> None:
        told.append(bracket)
        when.append(steps[-1][0])

    summary = run(
        plan,
        tmp_path / "run",
        Serial(),
        progress=lambda done, total: steps.append((done, total)),
        finished=finished,
    )
    assert tuple(told) == summary.brackets
    # The first one was reported while trials of the second were still to come.
    assert when[0] < when[1] == steps[-1][1]


def test_what_was_finished_before_is_not_told_of_again(tmp_path: Path) -> None:
    plan = make_plan(config(PLAIN, audit(2)))
    run(plan, tmp_path / "run", Serial())
    told: list[Bracket] = []
    run(plan, tmp_path / "run", Serial(), finished=told.append)
    assert told == []


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_a_terminal_shows_a_line_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool, shown: bool
) -> None:
    (tmp_path / "audit.toml").write_text(f"{PLAIN}\n{audit(2)}")
    monkeypatch.setenv("FORCE_COLOR", "1")
    found = invoke(
        "audit",
        tmp_path / "audit.toml",
        *("--out", tmp_path / "run", "--executor", "serial"),
        *(["--quiet"] if quiet else []),
    )
    assert found.code == 0
    assert ("plain: glm reached 100% [" in found.err) == shown


def test_a_log_file_gets_no_line(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(f"{PLAIN}\n{audit(2)}")
    found = invoke(
        "audit", tmp_path / "audit.toml", "--out", tmp_path / "run", "--executor", "serial"
    )
    assert found.err == ""


NETWORK = """
[[setting]]
name = "network"
data = { name = "breast-cancer", fixed_set = 40, shadow_targets = 60, units = "fixed-set" }
release = { model = "mlp", hidden = [3] }
knowledge = { training = { learning_rate = 0.1, epochs = 2 } }
"""


def test_settings_without_shadow_models_do_not_wait_for_those_with() -> None:
    plan = make_plan(config(NETWORK, PLAIN, audit(2)))
    network, plain = plan.units()
    assert needs_shadows(plan, network)
    assert not needs_shadows(plan, plain)


@pytest.mark.parametrize(("texts", "first"), [((PLAIN, NETWORK), ["plain"]), ((PLAIN,), [])])
def test_the_first_attacks_are_those_that_can_start_at_once(
    tmp_path: Path, texts: tuple[str, ...], first: list[str]
) -> None:
    plan = make_plan(config(*texts, audit(2)))
    with Store.create(tmp_path / "run") as log:
        jobs = list(AttackFirst().jobs(plan, log))
    names = [plan.config.setting[task.unit.setting].name for job in jobs for task in job.tasks]
    assert names == first
