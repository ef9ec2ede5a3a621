"""What every executor does: work on tasks, wherever, and hand the results over as they come."""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar, final

from exhume.audit.plan import Plan, Unit
from exhume.audit.trial import Batch, run_unit
from exhume.errors import ExhumeError

ATTEMPTS = 3
"""A task that ended this many workers would end the next one, too."""

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerLostError(ExhumeError):
    """The worker of the task at ``place`` was ended from outside, again and again."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"task {place}: {reason}")
        self.place, self.reason = place, reason


class Executor(ABC):
    """Does independent tasks and yields their results, in whatever order they finish.

    The records are the same bit for bit whoever does the work: a task carries a specification, and
    whoever gets it rebuilds what it needs.
    """

    @abstractmethod
    def map(
        self,
        work: Callable[[Common, Task], Result],
        common: Common,
        tasks: Sequence[Task],
    ) -> Generator[tuple[int, Result]]:
        """Yield each task's place and ``work(common, task)``, every task once.

        ``work`` is a function of a module, ``common`` and the tasks plain data: they may be sent
        elsewhere. A task whose worker is ended from outside is done again by another one; after
        the third time WorkerLostError is raised. What ``work`` raises is raised here. Stopping
        the iteration stops the work.
        """

    @abstractmethod
    def at_once(self) -> int:
        """Return how many tasks are worked on at the same time."""

    @property
    @abstractmethod
    def shares_files(self) -> bool:
        """Whether several workers find in the cache what one of them, or this process, keeps."""

    @final
    def run(
        self, plan: Plan, units: Sequence[Unit], done: frozenset[str]
    ) -> Iterator[tuple[Unit, list[Batch]]]:
        """Run every unit once, leaving out attacks whose trials are all done."""
        tasks = [UnitTask(unit, plan.keys(unit) & done if done else done) for unit in units]
        with closing(self.map(run_task, plan, tasks)) as results:
            try:
                for place, batches in results:
                    yield units[place], batches
            except WorkerLostError as error:
                raise ExhumeError(_lost(plan, units[error.place], error.reason)) from None


@dataclass(frozen=True)
class UnitTask:
    """A unit of work, and the keys of its trials that are done."""

    unit: Unit
    done: frozenset[str]


def run_task(plan: Plan, task: UnitTask) -> list[Batch]:
    """Run a unit in whatever process this is, on the files that the plan was made for."""
    plan.require_same_files()
    return run_unit(plan, task.unit, task.done)


def _lost(plan: Plan, unit: Unit, reason: str) -> str:
    name = plan.config.setting[unit.setting].name
    return (
        f"setting {name!r}, targets {unit.targets[0]} to {unit.targets[-1]}: {reason} {ATTEMPTS} "
        "times (out of memory?); what was finished is kept: run the same command again, perhaps "
        "with fewer --workers"
    )


class Losses:
    """Counts the workers that each task has cost."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, place: int, reason: str) -> None:
        """Note one more; too many are an error."""
        self._counts[place] += 1
        if self._counts[place] >= ATTEMPTS:
            raise WorkerLostError(place, reason)


@dataclass(frozen=True)
class Outcome:
    """What a task came to: a result, or the error that it raised."""

    result: Any = None
    error: Exception | None = None

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def attempt(work: Callable[[Any, Any], Any], common: Any, task: Any) -> bytes:
    """Do a task and return its pickled outcome, whatever happens."""
    try:
        return pickle.dumps(Outcome(work(common, task)))
    except Exception as error:
        if not isinstance(error, ExhumeError):
            # The frames stay behind, so their text goes along.
            error.add_note(traceback.format_exc())
        return _pickled(error)


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(Outcome(error=error))
        pickle.loads(content)
    except Exception:
        text = "".join(traceback.format_exception(error))
        return pickle.dumps(Outcome(error=RuntimeError(text)))
    return content
