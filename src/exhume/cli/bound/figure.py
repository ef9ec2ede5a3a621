"""``exhume bound figure`` and ``exhume bound table``: the protection that an epsilon gives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exhume.protocol.errors import InputError


def figure(
    out: Annotated[Path, typer.Option(help="Where to write the SVG.")],
) -> None:
    """Draw the ceiling on reconstruction against epsilon."""
    from exhume.bounds.figure import draw

    if out.suffix != ".svg":
        raise InputError(f"--out must end in .svg, got {out}")
    if not out.parent.is_dir():
        raise InputError(f"{out} cannot be written: there is no folder {out.parent}")
    try:
        draw(out)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {out}")


def table() -> None:
    """Print the ceilings as Markdown: by epsilon, and for DP-SGD settings used in practice."""
    from exhume.bounds.figure import epsilon_table, settings_table

    typer.echo(epsilon_table() + "\n\n" + settings_table())
