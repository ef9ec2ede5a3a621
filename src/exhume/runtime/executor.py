"""The executor protocol: run tasks anywhere, and return the results as they arrive."""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from exhume.protocol.errors import ExhumeError

ATTEMPTS = 3
"""After this many lost workers, a task is assumed to be the cause."""

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerLostError(ExhumeError):
    """The worker of the task at ``place`` was ended from outside, again and again."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"task {place}: {reason}")
        self.place, self.reason = place, reason


class Executor(ABC):
    """Runs independent tasks and yields their results, in the order in which they finish.

    The records are the same bit for bit on every executor: a task is a specification, from which
    the worker rebuilds what it needs.
    """

    @abstractmethod
    def map(
        self,
        work: Callable[[Common, Task], Result],
        common: Common,
        tasks: Sequence[Task],
    ) -> Generator[tuple[int, Result]]:
        """Yield each task's place and ``work(common, task)``, every task once.

        ``work`` is a function of a module; ``common`` and the tasks are plain data, so that they
        can be sent to other machines. If a worker is killed, another one repeats its task; after
        the third time, WorkerLostError is raised. Errors of ``work`` are raised here. Stopping the
        iteration stops the work.
        """

    @abstractmethod
    def at_once(self) -> int:
        """Return how many tasks run at the same time."""

    @property
    @abstractmethod
    def shares_files(self) -> bool:
        """Whether all workers share one cache with this process."""


class Losses:
    """Counts the workers that each task has cost."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, place: int, reason: str) -> None:
        """Count one more; too many are an error."""
        self._counts[place] += 1
        if self._counts[place] >= ATTEMPTS:
            raise WorkerLostError(place, reason)


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task: a result, or the error that it raised."""

    result: Any = None
    error: Exception | None = None

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def attempt(work: Callable[[Any, Any], Any], common: Any, task: Any) -> bytes:
    """Run a task and return its pickled outcome, also if it fails."""
    try:
        return pickle.dumps(TaskResult(work(common, task)))
    except Exception as error:
        if not isinstance(error, ExhumeError):
            # Stack frames cannot be sent, so their text is.
            error.add_note(traceback.format_exc())
        return _pickled(error)


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(TaskResult(error=error))
        pickle.loads(content)
    except Exception:
        text = "".join(traceback.format_exception(error))
        return pickle.dumps(TaskResult(error=RuntimeError(text)))
    return content
