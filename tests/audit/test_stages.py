"""What all stages of an audit share: jobs, progress, and who lost a worker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from exhume.audit import Executor, Serial
from exhume.audit.stages.base import Job, Steps
from exhume.protocol.errors import ExhumeError
from exhume.runtime import WorkerLostError


def product(common: int, task: int) -> int:
    return common * task


def job(kept: list[int], tasks: Sequence[int] = (1, 2, 3)) -> Job[int, int, int]:
    """Multiply by ten; a task is as many steps of progress as it says."""

    def keep(task: int, result: int) -> int:
        kept.append(result)
        return task

    return Job(product, 10, tasks, keep, lambda task: f"setting 'a', task {task}")


@dataclass(frozen=True)
class Losing(Executor):
    """Does tasks in order until one ends its worker; refuses to be called for nothing."""

    place: int

    def at_once(self) -> int:
        return 1

    @property
    def shares_files(self) -> bool:
        return False

    def map(
        self, work: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]
    ) -> Generator[tuple[int, Any]]:
        assert tasks, "there is no work"
        for place, task in enumerate(tasks):
            if place == self.place:
                raise WorkerLostError(place, "its worker was killed")
            yield place, work(common, task)


def test_results_are_kept_one_by_one_and_counted() -> None:
    kept: list[int] = []
    told: list[tuple[int, int]] = []
    job(kept).carry_out(Serial(), Steps(10, 4, lambda *counts: told.append(counts)))
    assert kept == [10, 20, 30]
    assert told == [(4, 10), (5, 10), (7, 10), (10, 10)]


def test_what_is_no_progress_is_not_told() -> None:
    told: list[tuple[int, int]] = []
    job([], tasks=(0, 0)).carry_out(Serial(), Steps(1, 0, lambda *counts: told.append(counts)))
    assert told == [(0, 1)]


def test_whose_worker_is_lost_is_named_and_the_rest_is_kept() -> None:
    kept: list[int] = []
    with pytest.raises(ExhumeError, match=r"^setting 'a', task 3: its worker was killed 3 times"):
        job(kept).carry_out(Losing(2), Steps(6, 0, None))
    assert kept == [10, 20]


def test_no_executor_is_asked_for_nothing() -> None:
    job([], tasks=()).carry_out(Losing(0), Steps(0, 0, None))


def test_the_work_is_stopped_where_progress_stops_it() -> None:
    """As Ctrl-C does: what was done is kept, and the executor's iteration is closed."""
    closed: list[bool] = []

    class Watched(Losing):
        def map(self, work, common, tasks):  # type: ignore[no-untyped-def]
            try:
                yield from super().map(work, common, tasks)
            finally:
                closed.append(True)

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    kept: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        job(kept).carry_out(Watched(9), Steps(6, 0, stop))
    assert (kept, closed) == ([10], [True])
