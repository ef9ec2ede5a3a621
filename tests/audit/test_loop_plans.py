"""The expected time of slow trainings, and what a run tells of itself while it trains."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.audit import small

from exhume.attacks import TrajectoryInversion
from exhume.audit import Plan, Serial, run
from exhume.audit.budget import Budget, with_deadline
from exhume.audit.costs import Estimate, costs_of, expenses
from exhume.audit.plan import Deadline
from exhume.audit.runner import chosen_before
from exhume.audit.stages import counted_trainings
from exhume.audit.stages.counted_trainings import (
    LoopTrainings,
    NetworkTrainings,
    slow_trainings,
)
from exhume.audit.stages.expense import Cost, Expense, FinishedWork

TOML = """
    [data]
    name = "digits"
    fixed_set = 40
    shadow_targets = 9
    [release]
    training = "tests.audit.test_loop_plans:counted"
    """


def counted(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A training that takes a while and leaves a file for each call."""
    (Path(os.environ["COUNTED"]) / f"{time.time_ns()}").touch()
    rng = np.random.default_rng(seed)
    return {"weight": rng.normal(size=3).astype(np.float32)}


def test_one_training_is_timed_and_the_others_are_counted() -> None:
    plan = small.plan(TOML, small.audit(5, membership="12", membership_models="8"))
    (expense,) = expenses(plan)
    assert isinstance(expense, LoopTrainings)
    # Targets, two with one seed and one to see what comes back, shadow models, games, 2 pairs × 16.
    assert expense.planned(plan) == 5 + 3 + 9 + 12 + 32
    estimate = Estimate(plan, {expense: Cost(1.0, 30.0, 1)}, FinishedWork(), workers=2)
    games = 44 * 30.0
    assert estimate.total() == 1.0 + games + (5 + 3 + 9) * 30.0 / 2


def test_the_plan_trains_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTED", str(tmp_path))
    plan = small.plan(TOML, small.audit(5))
    costs = costs_of(plan, FinishedWork(), lambda done, total: None)
    assert len(list(tmp_path.iterdir())) == 1
    ((expense, cost),) = costs.items()
    assert isinstance(expense, LoopTrainings)
    assert cost.each > 0


def test_a_run_says_what_it_is_doing(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    run(
        small.plan(small.PLAIN, small.audit(4)),
        tmp_path / "run",
        Serial(),
        phase=lambda doing, done, total: told.append((doing, done, total)),
    )
    assert told[0] == ("measuring", 0, 1)
    assert told[-1] == ("attacks", 1, 1)


DESCRIBED = """
    [data]
    name = "digits"
    fixed_set = 40
    shadow_targets = 9
    [release]
    model = "cnn"
    convolutions = [{ filters = 2, kernel = 3 }]
    [knowledge]
    training = { learning_rate = 0.1, epochs = 40 }
    """


def test_slow_trainings_of_a_network_are_counted_like_a_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted_trainings, "_SLOW_SECONDS", 0.0)
    plan = small.plan(DESCRIBED, small.audit(5))
    costs = costs_of(plan, FinishedWork(), lambda done, total: None)
    ((expense, cost),) = costs.items()
    assert isinstance(expense, NetworkTrainings)
    assert cost.each > 0
    # Each target's own and those that repeat it; 5 whose accuracy is measured, one to order by.
    targets = 5 * (1 + TrajectoryInversion.trainings)
    assert expense.planned(plan) == targets + 6 + 9
    estimate = Estimate(plan, {expense: Cost(1.0, 30.0, 1)}, workers=2)
    assert estimate.expenses == [expense]
    # Neither nine shadow models nor five targets are enough for two workers to share.
    assert estimate.total() == 1.0 + (6 + 9 + targets) * 30.0


@pytest.mark.parametrize(("step", "counted"), [(0.024, False), (0.026, True)])
def test_trainings_of_more_than_a_second_are_counted(
    step: float, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of the test's own: 40 epochs are 40 steps, of which 2 and then 12 are taken."""
    taken = iter((2 * step, 12 * step))

    def seconds_of(work: Callable[[], object]) -> float:
        work()
        return next(taken)

    monkeypatch.setattr(counted_trainings, "seconds_of", seconds_of)
    found = slow_trainings(small.plan(DESCRIBED, small.audit(5)))
    assert [cost.each for cost in found.values()] == [pytest.approx(40 * step)] * counted
    assert not slow_trainings(small.plan(small.PLAIN, small.audit(5)))


class TestBudgetOfRepeatedTrainings:
    """How often an attack repeats a training is a guess; the clock then decides what is begun."""

    EACH = 10.0

    def timed(self, budget: str) -> Plan:
        plan = small.plan(DESCRIBED, small.audit(5, attacks='["trajectory-inversion"]'))
        costs: dict[Expense, Cost] = {NetworkTrainings(0): Cost(0.0, self.EACH, 1)}
        estimate = Estimate(plan, costs, workers=2)
        return with_deadline(estimate, Budget(budget), 1000.0)

    def test_no_target_is_begun_that_would_end_far_behind(self) -> None:
        plan = self.timed("10h")
        half = self.EACH * (1 + TrajectoryInversion.trainings) / 2
        assert plan.deadline == Deadline((0,), 1000.0 + 36000.0 - half)
        assert [unit.targets for unit in plan.units()] == [(0,), (1,), (2,), (3,), (4,)]
        assert plan.identity == replace(plan, deadline=None).identity

    def test_workers_share_single_targets(self) -> None:
        plan = self.timed("10h")
        estimate = Estimate(plan, {NetworkTrainings(0): Cost(0.0, self.EACH, 1)}, workers=2)
        # Two of four targets each, and not all four in one unit.
        each = self.EACH * (1 + TrajectoryInversion.trainings)
        four = replace(estimate, plan=replace(plan, limits=(4,)))
        assert four.total() < 2.2 * each

    def test_other_settings_have_no_deadline(self) -> None:
        plan = small.plan(small.PLAIN, small.audit(5))
        assert with_deadline(Estimate(plan, {}), Budget("1h"), 0.0) == plan

    def test_what_was_not_begun_is_left_out_and_done_later(self, tmp_path: Path) -> None:
        small_one = DESCRIBED.replace("epochs = 40", "epochs = 2")
        plan = small.plan(small_one, small.audit(3, attacks='["oblivious"]'))
        late = replace(plan, deadline=Deadline((0,), 0.0), limits=(3,), budget="1h")
        found = run(late, tmp_path / "run", Serial())
        assert {row.trials for row in found.rows} == {1}
        before = chosen_before(plan, tmp_path / "run", "1h")
        assert before is not None
        assert before.limits == (1,)
        found = run(plan, tmp_path / "run", Serial())
        assert {row.trials for row in found.rows} == {3}

    def test_settings_keep_the_same_share(self) -> None:
        plan = small.plan(small.PLAIN, small.SCALED, small.audit(4))
        units = replace(plan, deadline=Deadline((0, 1), 0.0)).units()
        assert [unit.setting for unit in units] == [0, 1] * 4
