"""The expected time of slow trainings, and what a run reports while it trains."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.audit import small

from exhume.attacks import TrajectoryInversion
from exhume.audit import Serial, run
from exhume.audit.costs import Estimate, costs_of, expenses
from exhume.audit.stages import counted_trainings
from exhume.audit.stages.counted_trainings import (
    LoopTrainings,
    NetworkTrainings,
    slow_trainings,
)
from exhume.audit.stages.expense import Cost, FinishedWork

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
