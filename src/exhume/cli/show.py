"""``exhume show`` and ``exhume view``: a run's verdict on the terminal, or in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.audit import show as print_brackets
from exhume.cli.running import Json

Run = Annotated[Path, typer.Argument(help="The run folder.")]


def show(run: Run, as_json: Json = False) -> None:
    """Print the verdict of a run, finished or not: the bracket of every setting.

    With --json, everything that summary.json has.
    """
    from exhume.audit import Store, summarise
    from exhume.report.verdict import verdict
    from exhume.runlog.summary import summary_text

    with Store.open(run) as store:
        summary = summarise(store.run())
    if as_json:
        typer.echo(summary_text(summary), nl=False)
        return
    if not summary.complete:
        typer.echo(f"unfinished: {summary.trials:,} of {summary.expected:,} trials are done")
    said = verdict(summary)
    typer.echo(said.headline)
    if said.explanation:
        typer.echo(said.explanation)
    if summary.brackets:
        print_brackets(summary)


def view(run: Run) -> None:
    """Open the report of a run in the browser; render it first if it is not there yet."""
    import webbrowser

    from exhume.audit import Store
    from exhume.report import render

    page = run / "report.html"
    if not page.is_file():
        # Whoever wanted a redacted report gets that one.
        redacted = run / "report-redacted.html"
        page = redacted if redacted.is_file() else render(run)
    else:
        Store.open(run).close()
    opened = webbrowser.open(page.resolve().as_uri())
    typer.echo(f"report: {page}" if opened else f"no browser was found; open {page}")
