"""Run a plan from the command line: choose the executor, estimate the cost, show progress."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from exhume.audit import Bracket, Plan, Summary
    from exhume.audit import Executor as _Executor


class Who(StrEnum):
    """The names of the executors on the command line."""

    SERIAL = "serial"
    PROCESSES = "processes"
    RAY = "ray"


Out = Annotated[Path, typer.Option(help="The run folder. Unfinished runs are resumed.")]
Executor = Annotated[
    Who | None, typer.Option(help="Where the work runs. Default: one process per core.")
]
Workers = Annotated[int, typer.Option(help="Number of workers; 0 means one per core.", min=0)]
Address = Annotated[
    str | None, typer.Option(help="The Ray cluster, as host:port. Default: a private local one.")
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Show the expected time and memory, and exit.")
]
Budget = Annotated[
    str | None, typer.Option(help="Run only as many targets as fit this time, such as 1h30m.")
]
Redact = Annotated[
    bool, typer.Option("--redact", help="Omit the records' pictures and values from the report.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]


@dataclass(frozen=True)
class Crew:
    """The executor options, as given on the command line."""

    who: Who | None
    workers: int
    address: str | None


@dataclass(frozen=True)
class FinishedAudit:
    """A finished run, and its report."""

    summary: Summary
    report: Path


def carry_out(
    plan: Plan,
    out: Path,
    crew: Crew,
    *,
    plan_only: bool,
    budget: str | None,
    redact: bool,
    quiet: bool,
    as_json: bool = False,
) -> FinishedAudit | None:
    """Run a plan into a folder and render its report; return None if only the plan was wanted."""
    from exhume.audit import Processes, run
    from exhume.report import render

    executor = _executor(crew, _tasks(plan))
    try:
        ready = _ready(plan, out, executor, budget, plan_only, quiet, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if ready is None:
        return None
    if isinstance(executor, Processes):
        executor.start_loading()
    command = shlex.join(["exhume", *sys.argv[1:]])
    try:
        with progress_bar(quiet, workers=executor.at_once()) as tell:
            summary = run(
                ready,
                out,
                executor,
                command=command,
                progress=tell,
                phase=tell.phase,
                finished=tell.finished,
            )
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; finished trials are kept in {out}: run the same command to resume")
        raise typer.Exit(130) from None
    return FinishedAudit(summary, render(out, summary, redact=redact))


def _ready(
    plan: Plan,
    out: Path,
    crew: _Executor,
    budget: str | None,
    only: bool,
    quiet: bool,
    as_json: bool,
) -> Plan | None:
    """Return the part of the plan that fits the budget; None if only the plan was wanted."""
    from exhume.cli.planning import estimated, print_estimate, show_estimate, show_left_out, within

    if budget is None and not only:
        return plan
    with progress_bar(quiet, "calibrating") as tell:
        if budget is not None:
            plan, estimate = within(plan, out, crew, budget, tell)
        else:
            estimate = estimated(plan, out, crew, tell)
    if only and estimate is None:
        with progress_bar(quiet, "calibrating") as tell:
            estimate = estimated(plan, out, crew, tell)
    if estimate is not None and only:
        (print_estimate if as_json else show_estimate)(estimate)
    # In JSON, the summary says what was left out.
    if budget is not None and not as_json:
        show_left_out(plan)
    return None if only else plan


def _tasks(plan: Plan) -> int:
    """Return how many workers can have something to do: each training by a loop is a task."""
    from exhume.audit.stages.counted_trainings import by_a_loop

    settings = range(len(plan.config.setting))
    trained = sum(plan.planned(index) for index in settings if by_a_loop(plan, index))
    return max(len(plan.units()), trained)


def _executor(crew: Crew, units: int) -> _Executor:
    import os

    from exhume.audit import Processes, Ray, Serial
    from exhume.protocol.errors import InputError

    who, workers, address = crew.who, crew.workers, crew.address
    if address is not None and who is not Who.RAY:
        raise InputError(f"--address {address} is a Ray cluster: it needs --executor ray")
    if who is Who.SERIAL and workers > 1:
        raise InputError(f"--executor serial has one worker, got --workers {workers}")
    if who is Who.RAY:
        return Ray(address or "local", workers)
    count = min(workers or len(os.sched_getaffinity(0)), max(units, 1))
    if who is Who.PROCESSES:
        return Processes(count)
    return Serial() if count <= 1 or who is Who.SERIAL else Processes(count)


class Tell:
    """Receives the progress of a run; this one shows nothing."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of what is done of the whole run."""

    def phase(self, doing: str, done: int, total: int) -> None:
        """Take note of what is being done, and of how many of its tasks are done."""

    def finished(self, bracket: Bracket) -> None:
        """Take note of a setting whose trials are all done."""


@dataclass(frozen=True)
class Bars(Tell):
    """A bar for the whole run, and one for what is being done, with the time that it will take."""

    shown: Progress
    whole: TaskID
    now: TaskID

    def __call__(self, done: int, total: int) -> None:
        """Move the bar of the whole run."""
        (task,) = (one for one in self.shown.tasks if one.id == self.whole)
        if task.total is None:
            # A resumed run has not taken any time for these.
            self.shown.update(self.whole, already=done)
        self.shown.update(self.whole, completed=done, total=total)

    def phase(self, doing: str, done: int, total: int) -> None:
        """Move the other bar; a new phase starts its clock again."""
        if not done:
            self.shown.reset(self.now, description=doing, total=total, visible=True)
        self.shown.update(self.now, completed=done)

    def finished(self, bracket: Bracket) -> None:
        """Print the setting above the bars, on a terminal."""
        if self.shown.console.is_terminal:
            self.shown.console.print(in_a_line(bracket), highlight=False, markup=False)


def in_a_line(bracket: Bracket) -> str:
    """Return one setting's bracket in a line."""
    reached, ceiling = bracket.reached, bracket.ceiling
    if reached is None:
        return f"{bracket.setting}: nothing judged"
    limit = "none" if ceiling is None or ceiling >= 1.0 else f"{ceiling:.0%}"
    guess = "" if bracket.blind is None else f", blind guess {bracket.blind.rate:.0%}"
    return (
        f"{bracket.setting}: {bracket.attack} reached {reached.rate:.0%} "
        f"[{reached.low:.0%}–{reached.high:.0%}]{guess}, proven limit {limit}"
    )


@contextmanager
def progress_bar(quiet: bool, what: str = "trials", *, workers: int = 1) -> Iterator[Tell]:
    """Show what is done of a run on a terminal; yield what to call with done and total."""
    if quiet:
        yield Tell()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from exhume.cli.time_left import TimeLeft

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeft(workers),
    )
    console = Console(stderr=True)
    # A bar in a log file is noise, and would precede the single line of an error.
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield Bars(bar, bar.add_task(what, total=None), bar.add_task("", visible=False, tasks=True))
