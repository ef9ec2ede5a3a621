"""What an audit will cost: seconds and memory, from an earlier run or from small trials now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from exhume.audit.plan import Plan
from exhume.audit.stages import STAGES
from exhume.audit.stages.counted_trainings import (
    CountedTrainings,
    NetworkTrainings,
    by_a_loop,
    slow_trainings,
)
from exhume.audit.stages.expense import Cost, Expense, FinishedWork, TriedExpense
from exhume.runlog.store import Store
from exhume.runtime import Processes
from exhume.runtime.threads import one_thread

Progress = Callable[[int, int], None]


def done_in(folder: Path) -> FinishedWork:
    """Return what is done in a folder; nothing if it is not a run folder yet."""
    if not (folder / "records.sqlite").is_file():
        return FinishedWork()
    seconds = defaultdict(list)
    with Store.open(folder) as store:
        outcomes, settings, artefacts = store.outcomes(), store.settings(), store.artefacts()
    for outcome in outcomes:
        seconds[outcome.trial.settings].append(outcome.seconds)
    return FinishedWork(
        frozenset(outcome.trial.key for outcome in outcomes),
        {settings: tuple(found) for settings, found in seconds.items()},
        {one.name: tuple(run.seconds for run in one.trainings) for one in settings},
        artefacts,
    )


def expenses(plan: Plan) -> list[Expense]:
    """Return everything that a plan spends time on, setting by setting."""
    found = [
        one
        for stage in STAGES
        for one in stage.expenses(plan)
        # Beside trainings by a loop nothing counts, and trying anything else would train.
        if isinstance(one, CountedTrainings) or not by_a_loop(plan, one.setting)
    ]
    return sorted(found, key=lambda one: one.setting)


def costs_of(plan: Plan, done: FinishedWork, progress: Progress) -> dict[Expense, Cost]:
    """Return the cost of every expense of a plan that does not follow from the others.

    What an earlier run in the folder has done costs what it cost there. The rest is tried, in a
    process of its own that shows how much memory it takes. Where trainings are slow, they are
    counted and nothing else is tried.
    """
    with one_thread():
        slow = slow_trainings(plan)
    known: dict[Expense, Cost] = dict(slow.items())
    wanted = [one for one in _beside(slow, plan) if isinstance(one, TriedExpense)]
    stored = {one: one.stored(plan, done) for one in wanted}
    known |= {one: cost for one, cost in stored.items() if cost is not None}
    todo = [one for one in wanted if one not in known]
    progress(0, len(todo))
    for count, (place, cost) in enumerate(Processes(1).map(tried, plan, todo), start=1):
        known[todo[place]] = cost
        progress(count, len(todo))
    return known


def _beside(slow: Iterable[Expense], plan: Plan) -> list[Expense]:
    """Return the expenses of settings whose trainings are not slow."""
    counted = {one.setting for one in slow}
    return [one for one in expenses(plan) if one.setting not in counted]


def tried(plan: Plan, expense: TriedExpense) -> Cost:
    """Try one expense in whatever process this is."""
    with one_thread():
        return expense.tried(plan)


@dataclass(frozen=True)
class Estimate:
    """The remaining work of a plan, and its duration with ``workers``."""

    plan: Plan
    costs: Mapping[Expense, Cost]
    done: FinishedWork = field(default_factory=FinishedWork)
    workers: int = 1

    @cached_property
    def expenses(self) -> list[Expense]:
        """Every expense of the plan, setting by setting."""
        slow = [one for one in self.costs if isinstance(one, NetworkTrainings)]
        return sorted([*slow, *_beside(slow, self.plan)], key=lambda one: one.setting)

    def total(self) -> float:
        """Return how long everything takes: some is done before workers start, they share the rest.

        Workers take at least as long as the longest task of any of them.
        """
        alone = sum(one.alone(self) for one in self.expenses)
        shared = sum(one.seconds(self) for one in self.expenses) - alone
        longest: dict[tuple[type[Expense], int], float] = defaultdict(float)
        for one in self.expenses:
            longest[type(one), one.setting] += one.longest(self)
        return alone + max([shared / self.workers, *longest.values()])

    def memory(self) -> int:
        """Return the bytes of one worker, if they were measured."""
        return max((cost.memory for cost in self.costs.values()), default=0)
