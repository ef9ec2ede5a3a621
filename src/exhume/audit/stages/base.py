"""What every stage of an audit is: jobs of independent tasks, whose results go to the run folder.

One rule of resumption holds for all of them: a task is done if the run folder (or the cache of
shadow models) has its result. Nothing else is remembered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from exhume.audit.plan import Plan
from exhume.audit.stages.expense import Expense
from exhume.protocol.errors import ExhumeError
from exhume.runlog.store import Store
from exhume.runtime.executor import ATTEMPTS, Common, Executor, Result, Task, WorkerLostError

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all: trainings, trials, networks to judge by."""


Phase = Callable[[str, int, int], None]
"""Called with what is being done, how many of its tasks are done, and how many there are."""


class Steps:
    """Counts steps of progress over all stages, and reports each change to ``progress``.

    ``phase`` gets the name of the running job.
    """

    def __init__(
        self, total: int, done: int, progress: Progress | None, phase: Phase | None = None
    ) -> None:
        self._total, self._done, self._progress = total, done, progress
        self._phase = phase
        self._tell()

    def at(self, doing: str, done: int, total: int) -> None:
        """Tell how far the job at work is."""
        if self._phase is not None:
            self._phase(doing, done, total)

    def add(self, count: int) -> None:
        """Count steps that were just done."""
        self._done += count
        if count:
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True, eq=False)
class Job(Generic[Common, Task, Result]):
    """Independent tasks of one kind.

    ``work`` is a function of a module, ``common`` and the tasks are plain data: an executor may
    send them to other processes. ``keep`` is called here with each result: it stores the result,
    all of it or nothing, and returns how many steps of progress it was. ``named`` names a task in
    an error message.
    """

    work: Callable[[Common, Task], Result]
    common: Common
    tasks: Sequence[Task]
    keep: Callable[[Task, Result], int]
    named: Callable[[Task], str]

    def carry_out(self, executor: Executor, steps: Steps, doing: str = "") -> None:
        """Do every task, and keep each result as soon as it is there."""
        if not self.tasks:
            return
        steps.at(doing, 0, len(self.tasks))
        with closing(self.results(executor)) as results:
            for count, (task, result) in enumerate(results, start=1):
                steps.add(self.keep(task, result))
                steps.at(doing, count, len(self.tasks))

    def results(self, executor: Executor) -> Generator[tuple[Task, Result]]:
        """Yield every task with its result, in the order in which they are finished."""
        with closing(executor.map(self.work, self.common, self.tasks)) as found:
            try:
                for place, result in found:
                    yield self.tasks[place], result
            except WorkerLostError as error:
                raise ExhumeError(
                    f"{self.named(self.tasks[error.place])}: {error.reason} {ATTEMPTS} times "
                    "(out of memory?); finished trials are kept: run the same command again, "
                    "perhaps with fewer --workers"
                ) from None


class Stage(ABC):
    """One step of an audit, for all settings of a plan; ``doing`` says which, on a progress bar."""

    doing: ClassVar[str]

    @abstractmethod
    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Any, Any, Any]]:
        """Return the work that is not done yet."""

    def workers(self, executor: Executor) -> Executor | None:
        """Return who does the work; None to leave the stage out."""
        return executor

    def finish(self, plan: Plan, log: Store) -> None:
        """Conclude from all results together."""
        return

    def size(self, plan: Plan) -> int:
        """Return how many steps of progress the whole stage is."""
        return 0

    def done(self, plan: Plan, log: Store) -> int:
        """Return how many of them are done."""
        return 0

    def expenses(self, plan: Plan) -> Sequence[Expense]:
        """Return what the stage spends time on, for ``--plan``."""
        return ()
