"""A budget for attacks that repeat slow trainings: how often is a guess, so the clock decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.audit import small

from exhume.attacks import TrajectoryInversion
from exhume.audit import Plan, Serial, run
from exhume.audit.budget import Budget, unlimited_by_guess, with_deadline
from exhume.audit.costs import Estimate
from exhume.audit.plan import Deadline, Unit
from exhume.audit.runner import chosen_before
from exhume.audit.stages.counted_trainings import NetworkTrainings
from exhume.audit.stages.expense import Cost, Expense
from exhume.cli.planning import show_left_out

EACH = 10.0
TARGET = EACH * (1 + TrajectoryInversion.trainings)
DESCRIBED = """
    [data]
    name = "digits"
    fixed_set = 40
    shadow_targets = 9
    [release]
    model = "cnn"
    convolutions = [{ filters = 2, kernel = 3 }]
    [knowledge]
    training = { learning_rate = 0.1, epochs = 2 }
    """


def timed(budget: str) -> Estimate:
    """Five targets of a training that takes ten seconds, and two workers."""
    plan = small.plan(DESCRIBED, small.audit(5, attacks='["trajectory-inversion"]'))
    costs: dict[Expense, Cost] = {NetworkTrainings(0): Cost(0.0, EACH, 1)}
    estimate = Estimate(plan, costs, workers=2)
    return replace(estimate, plan=with_deadline(estimate, Budget(budget), 1000.0))


def test_no_target_is_begun_that_would_end_far_behind() -> None:
    plan = timed("10h").plan
    assert plan.deadline == Deadline((0,), 1000.0 + 36000.0 - TARGET / 2)
    assert [unit.targets for unit in plan.units()] == [(0,), (1,), (2,), (3,), (4,)]
    assert plan.identity == replace(plan, deadline=None).identity


def test_workers_share_single_targets() -> None:
    estimate = timed("10h")
    together = replace(estimate, plan=replace(estimate.plan, deadline=None, limits=(4,)))
    apart = replace(estimate, plan=replace(estimate.plan, limits=(4,)))
    assert together.total() > 4 * TARGET
    assert apart.total() < 2.2 * TARGET


def test_the_clock_and_not_the_guess_limits_the_targets() -> None:
    guessed = replace(timed("10h").plan, limits=(2,))
    assert unlimited_by_guess(guessed).limits == (5,)
    assert unlimited_by_guess(replace(guessed, deadline=None)).limits == (2,)


def test_the_terminal_promises_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    show_left_out(unlimited_by_guess(replace(timed("10h").plan, limits=(2,), budget="10h")))
    assert capsys.readouterr().out == "audit: as many of its 5 targets as fit 10h\n"


def test_other_settings_have_no_deadline() -> None:
    plan = small.plan(small.PLAIN, small.audit(5))
    assert with_deadline(Estimate(plan, {}), Budget("1h"), 0.0) == plan


def test_the_first_target_is_attacked_at_any_hour() -> None:
    past = Deadline((1,), 0.0)
    late = [past.over(Unit(*one)) for one in ((0, (3,)), (1, (0, 1)), (1, (2, 3)))]
    assert late == [False, False, True]
    assert not Deadline((1,), np.inf).over(Unit(1, (2, 3)))


def test_what_was_not_begun_is_left_out_and_done_later(tmp_path: Path) -> None:
    plan = small.plan(DESCRIBED, small.audit(3, attacks='["oblivious"]'))
    late = replace(plan, deadline=Deadline((0,), 0.0), budget="1h")
    found = run(late, tmp_path / "run", Serial())
    assert {row.trials for row in found.rows} == {1}
    before = chosen_before(plan, tmp_path / "run", "1h")
    assert before is not None
    assert before.limits == (1,)
    assert found.complete
    found = run(plan, tmp_path / "run", Serial())
    assert {row.trials for row in found.rows} == {3}


def test_settings_keep_the_same_share() -> None:
    plan: Plan = small.plan(small.PLAIN, small.SCALED, small.audit(4))
    units = replace(plan, deadline=Deadline((0, 1), 0.0)).units()
    assert [unit.setting for unit in units] == [0, 1] * 4
