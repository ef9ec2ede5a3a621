"""Carrying out a plan from the command line: who works, what it will take, how far it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from exhume.audit import Executor as _Executor
    from exhume.audit import Plan, Summary


class Who(StrEnum):
    """The executors by the names that the command line knows them by."""

    SERIAL = "serial"
    PROCESSES = "processes"
    RAY = "ray"


Out = Annotated[Path, typer.Option(help="The run folder; an unfinished run in it is gone on with.")]
Executor = Annotated[
    Who | None, typer.Option(help="Who does the work; by default one process a core.")
]
Workers = Annotated[int, typer.Option(help="How many work at once; 0 takes one a core.", min=0)]
Address = Annotated[
    str | None, typer.Option(help="The Ray cluster, as host:port; else a private one (local).")
]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Say what it will take, and stop.")]
Budget = Annotated[
    str | None, typer.Option(help="Run as many targets as fit a time, such as 30m or 1h30m.")
]
Redact = Annotated[
    bool, typer.Option("--redact", help="Leave records' pictures and values out of the report.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]


@dataclass(frozen=True)
class Crew:
    """Who works, as the command line says it."""

    who: Who | None
    workers: int
    address: str | None


@dataclass(frozen=True)
class Done:
    """A run that came to its end, and its report."""

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
) -> Done | None:
    """Run a plan into a folder and render its report; None where only the plan was asked for."""
    from exhume.audit import run
    from exhume.report import render

    executor = _executor(crew, len(plan.units()))
    try:
        ready = _ready(plan, out, executor, budget, plan_only, quiet)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if ready is None:
        return None
    command = shlex.join(["exhume", *sys.argv[1:]])
    try:
        with _progress(quiet) as tell:
            summary = run(ready, out, executor, command=command, progress=tell)
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; finished trials are kept in {out}: run the same command to go on")
        raise typer.Exit(130) from None
    return Done(summary, render(out, redact=redact))


def _ready(
    plan: Plan, out: Path, crew: _Executor, budget: str | None, only: bool, quiet: bool
) -> Plan | None:
    """Return what to run: what fits the budget; None where only the plan was asked for."""
    from exhume.cli.planning import estimated, show_estimate, show_left_out, within

    if budget is None and not only:
        return plan
    with _progress(quiet, "calibrating") as tell:
        if budget is not None:
            plan, estimate = within(plan, out, crew, budget, tell)
        else:
            estimate = estimated(plan, out, crew, tell)
    if only and estimate is None:
        with _progress(quiet, "calibrating") as tell:
            estimate = estimated(plan, out, crew, tell)
    if estimate is not None and only:
        show_estimate(estimate)
    if budget is not None:
        show_left_out(plan)
    return None if only else plan


def _executor(crew: Crew, units: int) -> _Executor:
    import os

    from exhume.audit import Processes, Ray, Serial
    from exhume.errors import InputError

    who, workers, address = crew.who, crew.workers, crew.address
    if address is not None and who is not Who.RAY:
        raise InputError(f"--address {address} is a Ray cluster's: give --executor ray with it")
    if who is Who.SERIAL and workers > 1:
        raise InputError(f"--executor serial is one worker, got --workers {workers}")
    if who is Who.RAY:
        return Ray(address or "local", workers)
    count = min(workers or len(os.sched_getaffinity(0)), max(units, 1))
    if who is Who.PROCESSES:
        return Processes(count)
    return Serial() if count <= 1 or who is Who.SERIAL else Processes(count)


@contextmanager
def _progress(quiet: bool, what: str = "trials") -> Iterator[Callable[[int, int], None]]:
    if quiet:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # A bar in a log file is noise, and would stand before the one line of an error.
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
