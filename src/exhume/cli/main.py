"""The ``exhume`` command: gathers the commands and turns errors into one line and exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import exhume
from exhume.cli.audit import audit
from exhume.cli.bound import app as bound
from exhume.cli.cache import cache
from exhume.cli.data import data
from exhume.cli.gate import gate
from exhume.cli.listing import list_all
from exhume.cli.report import report
from exhume.cli.study import study
from exhume.errors import ExhumeError

app = typer.Typer(
    name="exhume",
    help="How much of a training record can be rebuilt from a release?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"exhume {exhume.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


app.command()(audit)
app.command()(study)
app.command()(report)
app.command()(gate)
app.add_typer(bound, name="bound")
app.command("list")(list_all)
app.command()(data)
app.command()(cache)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except ExhumeError as error:
        # A path may hold anything, ":bomb:" too.
        console = Console(stderr=True, soft_wrap=True, emoji=False, highlight=False)
        console.print(f"[bold red]error:[/] {_escaped(error)}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _escaped(error: ExhumeError) -> str:
    from rich.markup import escape

    return escape(str(error))
