"""The released models of a user's own training loop, trained by all workers before anything else.

Later stages need them in several places, and find them in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from exhume.audit.loops import kept_release, loop_of, repeated, untrained
from exhume.audit.plan import Plan, Unit
from exhume.audit.stages.attack import units_left
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.counted_trainings import LoopTrainings, by_a_loop
from exhume.audit.stages.expense import Expense
from exhume.runlog.store import Store
from exhume.runtime import Executor
from exhume.runtime.threads import one_thread


@dataclass(frozen=True)
class VictimTask:
    """Train with one group of targets; with none, train twice with one seed and compare."""

    setting: int
    group: tuple[int, ...]


class TrainOwnLoops(Stage):
    """Trains the released models of unfinished units; a task is one training."""

    doing: ClassVar[str] = "released models"

    def workers(self, executor: Executor) -> Executor | None:
        """Leave the stage out where workers would not find each other's models."""
        return executor if executor.shares_files else None

    def expenses(self, plan: Plan) -> Sequence[Expense]:
        """Return the trainings of every setting with a loop, shadow models and games included."""
        settings = range(len(plan.config.setting))
        return [LoopTrainings(index) for index in settings if by_a_loop(plan, index)]

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, VictimTask, None]]:
        """Train what the cache does not hold."""
        names = [table.name for table in plan.config.setting]
        todo = victim_tasks(plan, units_left(plan, frozenset(log.keys())))
        yield Job(
            train_victim,
            plan,
            todo,
            lambda task, nothing: 0,
            lambda task: f"setting {names[task.setting]!r}, your own loop",
        )


def victim_tasks(plan: Plan, units: Sequence[Unit]) -> list[VictimTask]:
    """Return what isn't in the cache yet of the units' releases."""
    found = []
    for index in range(len(plan.config.setting)):
        release = plan.config.setting[index].release
        own = [unit for unit in units if unit.setting == index]
        if release.file is not None or not own or loop_of(plan.setting(index)) is None:
            continue
        setting = plan.setting(index)
        groups = [group for unit in own for group in setting.groups(unit.targets)]
        left = untrained(setting, groups, plan.config.audit.seed)
        found += [VictimTask(index, group) for group in ((), *left)] if left else []
    return found


def train_victim(plan: Plan, task: VictimTask) -> None:
    """Train one model in whatever process this is; the cache takes it."""
    plan.require_same_files()
    with one_thread():
        setting = plan.setting(task.setting)
        if task.group:
            kept_release(setting, task.group, plan.config.audit.seed)
        else:
            repeated(setting)
