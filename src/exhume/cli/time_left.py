"""The last column of a progress bar: how long what is being done will still take."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class TimeLeft(ProgressColumn):
    """The time that the tasks so far took each, for those that are left.

    Until one of ``workers`` has finished its first task, each takes at least as long as it has
    taken so far: that is a limit from below. A bar whose steps are no ``tasks`` has none. What was
    there ``already`` took no time.
    """

    max_refresh = 0.5

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers

    def render(self, task: Task) -> Text:
        """Return for example ``0:01:20``, or ``> 0:01:20`` where only a limit is known."""
        if task.total is None or task.elapsed is None:
            return Text("-:--:--")
        total, elapsed = task.total, task.elapsed
        done = task.completed - task.fields.get("already", 0)
        if done > 0:
            return Text(clock(elapsed / done * (total - task.completed)))
        if not task.fields.get("tasks"):
            return Text("-:--:--")
        return Text(f"> {clock(elapsed * max(0.0, total / self.workers - 1.0))}")


def clock(seconds: float) -> str:
    """Return a duration as a clock shows it.

    >>> clock(4000)
    '1:06:40'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
