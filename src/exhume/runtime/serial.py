"""One task after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from exhume.runtime.executor import Common, Executor, Result, Task


@dataclass(frozen=True)
class Serial(Executor):
    """Runs one task after the other, in this process."""

    def at_once(self) -> int:
        """Return one."""
        return 1

    @property
    def shares_files(self) -> bool:
        """There is only one worker."""
        return False

    def map(
        self,
        work: Callable[[Common, Task], Result],
        common: Common,
        tasks: Sequence[Task],
    ) -> Generator[tuple[int, Result]]:
        """Run the tasks in order."""
        for place, task in enumerate(tasks):
            yield place, work(common, task)
