"""``exhume audit``: run an audit, or go on with one that was interrupted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from exhume.audit import Bracket, Executor, Plan, Summary
    from exhume.config import Config


class Who(StrEnum):
    """The executors by the names that the command line knows them by."""

    SERIAL = "serial"
    PROCESSES = "processes"
    RAY = "ray"


def audit(
    file: Annotated[
        Path | None, typer.Argument(help="The audit's TOML file; else the embedded example.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The run folder; an unfinished run in it is gone on with.")
    ] = Path("exhume-run"),
    executor: Annotated[
        Who | None, typer.Option(help="Who does the work; by default one process a core.")
    ] = None,
    workers: Annotated[
        int, typer.Option(help="How many work at once; 0 takes one a core.", min=0)
    ] = 0,
    address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster, as host:port; else a private one (local)."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say what it will take, and stop.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Run as many targets as fit a time, such as 30m or 1h30m."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave records' pictures and values out of the report.")
    ] = False,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code", help="Import the models that the file names as package.module:function."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    show_example: Annotated[
        bool, typer.Option("--show-example", help="Print the embedded example's TOML and stop.")
    ] = False,
) -> None:
    """Attack a release, bound what any attack could do, and write a report.

    Ctrl-C stops it; the same command goes on where it stopped.
    """
    if show_example:
        typer.echo(example_text(), nl=False)
        return
    from exhume.audit import make_plan, run
    from exhume.report import render

    config = _config(file)
    _admit_code(config, file, trusted=trust_code)
    plan = make_plan(config)
    crew = _executor(executor, workers, address, len(plan.units()))
    try:
        ready = _ready(plan, out, crew, budget, plan_only, quiet)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if ready is None:
        return
    plan, command = ready, shlex.join(["exhume", *sys.argv[1:]])
    try:
        with _progress(quiet) as tell:
            summary = run(plan, out, crew, command=command, progress=tell)
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; finished trials are kept in {out}: run the same command to go on")
        raise typer.Exit(130) from None
    report = render(out, redact=redact)
    show(summary)
    typer.echo(f"report: {report}")


def example_text() -> str:
    """Return the embedded example's TOML."""
    from importlib.resources import files

    return files("exhume").joinpath("example.toml").read_text(encoding="utf-8")


def _config(file: Path | None) -> Config:
    from exhume.config import load, parse

    if file is None:
        return parse(example_text(), folder=Path(), source="the embedded example")
    return load(file)


def _admit_code(config: Config, file: Path | None, *, trusted: bool) -> None:
    """Refuse models that are code unless they are trusted; look for them beside the file."""
    from exhume.config import NetworkReleaseTable
    from exhume.errors import InputError

    releases = [setting.release for setting in config.setting]
    foreign = [r.model for r in releases if isinstance(r, NetworkReleaseTable) and r.foreign]
    if not foreign:
        return
    if not trusted:
        raise InputError(
            f"{file}: the model {foreign[0]!r} is code that would be run; "
            "give --trust-code if you trust it"
        )
    if file is not None:
        sys.path.insert(0, str(file.resolve().parent))


def _ready(
    plan: Plan, out: Path, crew: Executor, budget: str | None, only: bool, quiet: bool
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


def _executor(who: Who | None, workers: int, address: str | None, units: int) -> Executor:
    import os

    from exhume.audit import Processes, Ray, Serial
    from exhume.errors import InputError

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


def show(summary: Summary) -> None:
    """Print the bracket of every setting."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("setting", "strongest attack", "reached", "blind", "at most"):
        table.add_column(heading, justify="left" if "e a" in heading or "g" in heading else "right")
    for bracket in summary.brackets:
        table.add_row(*_cells(bracket))
    console = Console(highlight=False)
    console.print(table)
    for one in summary.left_out:
        text = f"left out to fit {summary.budget}: {one.setting} was run on {one.run} of {one.of}"
        console.print(f"{text} targets", soft_wrap=True)
    console.print(f"reached: targets rebuilt {_within(summary.closeness)}", style="dim")


def _within(closeness: float) -> str:
    if closeness == 1.0:
        return "closer than any record the adversary had, with interval"
    return f"within {closeness:g} × the distance to the nearest known record"


def _cells(bracket: Bracket) -> tuple[str, ...]:
    blind = bracket.blind
    return (
        bracket.setting,
        bracket.attack or "",
        _reached(bracket),
        "" if blind is None else f"{blind.rate:.0%}",
        "no bound" if bracket.ceiling is None else f"{bracket.ceiling:.0%}",
    )


def _reached(bracket: Bracket) -> str:
    reached = bracket.reached
    if reached is not None:
        return f"{reached.rate:.0%} [{reached.low:.0%}–{reached.high:.0%}]"
    # Without the truth attacks run, but nobody can say how close they came.
    return "no truth" if bracket.unanswered < bracket.targets else "none ran"
