"""``exhume bound``: ceilings on the success of reconstruction, and floors on its error."""

from __future__ import annotations

import typer

from exhume.cli.bound import floors
from exhume.cli.bound.figure import figure, table
from exhume.cli.bound.rero import kappa, rero
from exhume.cli.commands import PlainCommand, PlainGroup

app = typer.Typer(
    name="bound",
    cls=PlainGroup,
    help="Limits for every attack: ceilings on success, floors on error.",
    no_args_is_help=True,
)
for command in (rero, kappa, figure, table, floors.floor, floors.rates):
    app.command(cls=PlainCommand)(command)
