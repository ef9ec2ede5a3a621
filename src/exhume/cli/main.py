"""The ``exhume`` command: collects the commands; turns errors into one line and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from exhume.cli.audit import audit
from exhume.cli.bound import app as bound
from exhume.cli.cache import cache
from exhume.cli.commands import PlainCommand, PlainGroup
from exhume.cli.compare import compare
from exhume.cli.completion import answer_shell, completion
from exhume.cli.data import data
from exhume.cli.doctor import doctor
from exhume.cli.gate import gate
from exhume.cli.init import init
from exhume.cli.listing import list_all
from exhume.cli.report import report
from exhume.cli.show import show, view
from exhume.cli.study import study
from exhume.protocol.errors import ExhumeError
from exhume.protocol.version import __version__

app = typer.Typer(
    name="exhume",
    cls=PlainGroup,
    help="How much of a training record can be rebuilt from a release?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"exhume {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


def _register(*commands: Callable[..., None]) -> None:
    for command in commands:
        app.command(cls=PlainCommand)(command)


_register(init, audit, study, show, view, report, compare, gate)
app.add_typer(bound, name="bound")
app.command("list", cls=PlainCommand)(list_all)
_register(data, cache, doctor, completion)


def main() -> None:
    """Run the command line."""
    try:
        answer_shell()
        app(prog_name="exhume")
    except ExhumeError as error:
        # A path may contain any text, even ":bomb:", which Rich would replace by an emoji.
        console = Console(stderr=True, soft_wrap=True, emoji=False, highlight=False)
        console.print(f"[bold red]error:[/] {_escaped(error)}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _escaped(error: ExhumeError) -> str:
    from rich.markup import escape

    return escape(str(error))
