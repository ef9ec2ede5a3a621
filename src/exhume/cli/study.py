"""``exhume study``: reproduce a part of a paper, which is declared as an audit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhume.cli.running import (
    Address,
    Budget,
    Crew,
    Executor,
    Out,
    PlanOnly,
    Quiet,
    Redact,
    Workers,
    carry_out,
)

if TYPE_CHECKING:
    from exhume.studies import Part, Size, StudyRun


def study(
    paper: Annotated[str | None, typer.Argument(help="The paper, such as balle2022.")] = None,
    part: Annotated[str | None, typer.Argument(help="Its part, such as width.")] = None,
    scale: Annotated[
        str, typer.Option(help="The size: smoke (a minute), laptop (15 minutes), or paper.")
    ] = "laptop",
    data: Annotated[
        Path | None, typer.Option(help="The folder with data sets. Default: $EXHUME_DATA.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a number of the size, as key=value. Repeatable."),
    ] = None,
    out: Out = Path("exhume-study"),
    executor: Executor = None,
    workers: Workers = 0,
    address: Address = None,
    plan_only: PlanOnly = False,
    budget: Budget = None,
    redact: Redact = False,
    quiet: Quiet = False,
    list_parts: Annotated[
        bool, typer.Option("--list", help="List the parts, what each reproduces, and its duration.")
    ] = False,
    render: Annotated[
        Path | None,
        typer.Option(help="Rewrite the pages of results in this folder, and exit."),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--from", help="With --render: a run folder to publish. Repeatable."),
    ] = None,
) -> None:
    """Reproduce a part of a paper, and compare it with the published figures.

    Ctrl-C stops the run. The same command resumes it.
    """
    from exhume.protocol.errors import InputError

    if list_parts or (paper is None and render is None):
        _show_parts(paper)
        return
    if render is not None:
        from exhume.studies.publish import publish

        for path in publish(render, runs or []):
            typer.echo(f"written: {path}")
        return
    assert paper is not None
    if data is not None:
        os.environ["EXHUME_DATA"] = str(data)
    if part is None:
        from exhume.studies import parts

        names = ", ".join(one.name for one in parts(paper))
        raise InputError(f"name a part of {paper}: {names}")
    chosen, size = _chosen(paper, part, scale, changes or [])
    found = _carried_out(
        chosen, size, scale, seed, tuple(changes or ()), out,
        Crew(executor, workers, address), plan_only, budget, redact, quiet,
    )  # fmt: skip
    if found is not None:
        show_verdicts(chosen, found)


def _chosen(paper: str, part: str, scale: str, changes: list[str]) -> tuple[Part[Any], Size]:
    from exhume.protocol.errors import InputError
    from exhume.studies import Scale, find

    found = find(paper, part)
    if scale not in list(Scale):
        raise InputError(f"--scale {scale}: there are {', '.join(Scale)}")
    return found, found.size(Scale(scale), changes)


def _carried_out(
    part: Part[Any],
    size: Size,
    scale: str,
    seed: int,
    changes: tuple[str, ...],
    out: Path,
    crew: Crew,
    plan_only: bool,
    budget: str | None,
    redact: bool,
    quiet: bool,
) -> StudyRun | None:
    from exhume.audit import make_plan
    from exhume.studies.publish import note

    done = carry_out(
        make_plan(part.config(size, seed=seed)),
        out,
        crew,
        plan_only=plan_only,
        budget=budget,
        redact=redact,
        quiet=quiet,
    )
    if done is None:
        return None
    typer.echo(f"report: {done.report}")
    return note(part, size, scale, seed, changes, out)


def show_verdicts(part: Part[Any], run: StudyRun) -> None:
    """Print the published figure, the measured figure and the verdict of each row."""
    from rich.console import Console
    from rich.table import Table

    from exhume.stats.interval import LEVEL
    from exhume.studies.page import measured, printed
    from exhume.studies.verdicts import judged

    table = Table(box=None, padding=(0, 1))
    for heading in (f"{part.paper} {part.name}", "published", "measured", "verdict"):
        right = heading in ("published", "measured")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in judged(part, run, LEVEL, LEVEL).rows:
        table.add_row(row.row.label, printed(row.row), measured(run, row), row.describe(run))
    Console(highlight=False).print(table)


def _show_parts(paper: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from exhume.studies import Scale, papers, parts

    console = Console(highlight=False)
    for name, title in papers().items():
        if paper not in (None, name):
            continue
        table = Table(box=None, padding=(0, 1), title=title, title_justify="left")
        table.add_column("part", no_wrap=True)
        table.add_column("what", overflow="fold")
        for scale in Scale:
            table.add_column(scale, no_wrap=True, justify="right")
        for part in parts(name):
            times = [part.minutes[scale].replace("under ", "< ") for scale in Scale]
            table.add_row(part.name, f"{part.title} ({part.reference})", *times)
        console.print(table)
    if paper is not None:
        parts(paper)
