"""``exhume cache``: which shadow models are kept between runs, and how to delete them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from exhume.runtime.cache import Cache


def cache(
    empty: Annotated[bool, typer.Option("--empty", help="Delete the whole cache.")] = False,
) -> None:
    """Show the shadow models that are kept between runs, or delete them."""
    from exhume.runtime.cache import user_cache

    found = user_cache()
    if found.folder is None:
        typer.echo("The cache is switched off (EXHUME_CACHE=off): no models are kept.")
    elif empty:
        typer.echo(f"{_size(found.empty())} deleted from {found.folder}")
    else:
        _print(found)


def _print(found: Cache) -> None:
    from exhume.runtime.cache import survey

    shelves = survey(found)
    total = sum(shelf.size for shelf in shelves)
    typer.echo(f"folder   {found.folder}")
    typer.echo(f"kept     {_size(total)} of at most {_size(found.limit)}")
    if not shelves:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("entry", no_wrap=True)
    table.add_column("content")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("last used", no_wrap=True)
    for shelf in shelves:
        kind, _, key = shelf.name.partition("-")
        used = datetime.fromtimestamp(shelf.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(f"{kind}-{key[:8]}", shelf.content, _size(shelf.size), used)
    typer.echo()
    Console(highlight=False).print(table)


def _size(count: int) -> str:
    """Return a number of bytes in a readable unit: ``1.50 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"
