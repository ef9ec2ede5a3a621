"""``exhume data``: which data sets this machine has, or what the columns of a table are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.data.survey import Survey, SurveyEntry


def data(
    file: Annotated[
        Path | None,
        typer.Argument(help="A .csv or .parquet table: show its columns as an audit reads them."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The table's label column. Default: the last.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Search this folder instead of $EXHUME_DATA.", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read and verify all files that are found.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets: where each was found, or how to get it. With FILE: its columns."""
    if file is not None:
        from exhume.cli.table_columns import show_table

        show_table(file, label, as_json=as_json)
        return
    if label is not None:
        raise InputError("--label goes with a FILE")
    from exhume.data.survey import survey

    found = survey(folder=folder)
    if found.problem is not None and not as_json:
        raise InputError(found.problem)
    if check:
        found = replace(found, entries=_read_through(found))
    if as_json:
        typer.echo(json.dumps(_as_json(found, was_read=check), indent=2, ensure_ascii=False))
    else:
        _print(found, was_read=check)
    if not found.sound:
        raise typer.Exit(2)


def _read_through(found: Survey) -> tuple[SurveyEntry, ...]:
    from exhume.data.survey import checked

    entries = []
    columns = (SpinnerColumn(), TextColumn("reading {task.description}"))
    # On stderr, so that the table or JSON can be piped.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        results = checked(found)
        for entry in found.entries:
            progress.update(task, description=entry.name)
            entries.append(next(results))
    return tuple(entries)


def _print(found: Survey, *, was_read: bool) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("data set", no_wrap=True)
    table.add_column("task", no_wrap=True)
    table.add_column("record", no_wrap=True)
    table.add_column("train", justify="right", no_wrap=True)
    table.add_column("test", justify="right", no_wrap=True)
    table.add_column("found", overflow="fold")
    for entry in found.entries:
        table.add_row(*_cells(entry, found, was_read=was_read))
    console.print(table)
    for line in _notes(found):
        console.print(f"\n{line}", highlight=False)


def _cells(entry: SurveyEntry, found: Survey, *, was_read: bool) -> tuple[str, ...]:
    sizes = entry.sizes
    return (
        entry.name,
        "" if entry.task is None else entry.task.value,
        "" if entry.record_shape is None else "×".join(str(side) for side in entry.record_shape),
        "" if sizes is None else f"{sizes.train:,}",
        "" if sizes is None or sizes.test is None else f"{sizes.test:,}",
        _place(entry, found, was_read=was_read),
    )


def _place(entry: SurveyEntry, found: Survey, *, was_read: bool) -> str:
    if entry.where is None:
        return "[yellow]missing[/]"
    if entry.problem is not None:
        return "[bold red]broken[/]"
    place = entry.where.value if entry.path is None else _short(entry.path, found)
    return f"{escape(place)} [green]✓[/]" if was_read else escape(place)


def _short(path: Path, found: Survey) -> str:
    # The first folder searched is the user's own, and is named below the table.
    first = found.folders[0]
    return str(path.relative_to(first)) if path.is_relative_to(first) else str(path)


def _notes(found: Survey) -> list[str]:
    searched = f"Searched: {escape(', '.join(str(folder) for folder in found.folders))}"
    broken = [
        f"[bold red]{entry.name} is broken:[/] {escape(entry.problem)}"
        for entry in found.entries
        if entry.problem is not None
    ]
    missing = [
        f"[yellow]{entry.name} is missing:[/] {escape(entry.remedy)}"
        for entry in found.entries
        if entry.where is None and entry.remedy is not None
    ]
    return [searched, *broken, *missing]


def _as_json(found: Survey, *, was_read: bool) -> dict[str, object]:
    return {
        "folders": [str(folder) for folder in found.folders],
        "problem": found.problem,
        "entries": [_entry_as_json(entry, was_read=was_read) for entry in found.entries],
    }


def _entry_as_json(entry: SurveyEntry, *, was_read: bool) -> dict[str, object]:
    if entry.where is None:
        status = "missing"
    elif entry.problem is not None:
        status = "broken"
    else:
        status = "verified" if was_read else "found"
    return {
        "name": entry.name,
        "status": status,
        "where": None if entry.where is None else entry.where.value,
        "path": None if entry.path is None else str(entry.path),
        "task": None if entry.task is None else entry.task.value,
        "record_shape": entry.record_shape,
        "train": None if entry.sizes is None else entry.sizes.train,
        "test": None if entry.sizes is None else entry.sizes.test,
        "problem": entry.problem,
        "remedy": entry.remedy,
    }
