"""``exhume report``: render a run folder again, from its records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave records' pictures and values out.")
    ] = False,
) -> None:
    """Render report.html and summary.json from a run's records; nothing is run again."""
    from exhume.audit import Store, summarise
    from exhume.audit.summary import write_summary
    from exhume.report import render

    with Store.open(run) as store:
        write_summary(summarise(store), run)
    typer.echo(f"report: {render(run, redact=redact)}")
