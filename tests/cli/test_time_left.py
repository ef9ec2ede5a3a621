"""The time left beside a progress bar, with a clock that the test sets."""

from __future__ import annotations

import pytest
from rich.progress import Task, TaskID

from exhume.cli.time_left import TimeLeft, clock


def task(done: float, total: float | None, seconds: float, **fields: object) -> Task:
    made = Task(TaskID(0), "", total, done, _get_time=lambda: seconds, fields=dict(fields))
    made.start_time = 0.0
    return made


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        # One of two workers' first trainings has run for 20 s: 31 of them take 15.5 times as long.
        (task(0, 31, 20.0, tasks=True), f"> {clock(20 * 14.5)}"),
        (task(0, 2, 20.0, tasks=True), "> 0:00:00"),
        (task(1, 31, 30.0, tasks=True), clock(900)),
        (task(4, 31, 60.0, tasks=True), clock(15 * 27)),
        # Trials come in groups, when much else is done: nothing is known of them.
        (task(0, 48, 20.0), "-:--:--"),
        (task(12, 48, 60.0), "0:03:00"),
        (task(40, 48, 20.0, already=40), "-:--:--"),
        (task(44, 48, 20.0, already=40), "0:00:20"),
        (task(0, None, 1.0), "-:--:--"),
    ],
)
def test_what_is_left(one: Task, shown: str) -> None:
    assert str(TimeLeft(workers=2).render(one)) == shown
