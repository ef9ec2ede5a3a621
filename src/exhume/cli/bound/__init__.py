"""``exhume bound``: ceilings on reconstruction success and floors on its error."""

from __future__ import annotations

import typer

from exhume.cli.bound import floors
from exhume.cli.bound.figure import figure, table
from exhume.cli.bound.rero import kappa, rero

app = typer.Typer(
    name="bound",
    help="What no attack can beat: ceilings on success, floors on error.",
    no_args_is_help=True,
)
app.command("rero")(rero)
app.command("kappa")(kappa)
app.command("figure")(figure)
app.command("table")(table)
floors.register(app)
