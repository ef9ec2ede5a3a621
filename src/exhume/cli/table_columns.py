"""``exhume data FILE``: the columns of a table, as an audit reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

if TYPE_CHECKING:
    from exhume.data.frames import MixedTable
    from exhume.protocol.schema import Column

_MOST = 6


def show_table(file: Path, label: str | None, *, as_json: bool) -> None:
    """Print each column's kind, values and missing cells; then the label and what is odd."""
    from exhume.data.frames import read_table
    from exhume.data.infer_schema import notes_on

    table = read_table(file, label=label)
    notes = notes_on(table.schema, len(table.records))
    if as_json:
        typer.echo(json.dumps(_as_json(table, notes), indent=2, ensure_ascii=False))
        return
    _print(table, notes)


def _print(table: MixedTable, notes: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Lines

    console, lines = Console(), Lines(box=None, pad_edge=False, header_style="bold")
    lines.add_column("column", overflow="fold")
    lines.add_column("kind", no_wrap=True)
    lines.add_column("values", overflow="fold")
    lines.add_column("missing", justify="right", no_wrap=True)
    for column in table.schema.columns:
        absent = _absent(table, column)
        cells = (column.name, column.kind.value, _values(table, column))
        lines.add_row(*map(escape, cells), f"{absent:,}" if absent else "")
    console.print(lines)
    rows = len(table.records) + table.left_out
    told = f"{rows:,} rows"
    if table.left_out:
        told += f", {table.left_out:,} of them without a label: left out"
    found = [f"{told}; label: {_label(table)}.", *(f"{note}." for note in notes)]
    for text in found:
        console.print(f"\n{escape(text)}", highlight=False, soft_wrap=True)
    name = table.schema.names[0]
    hint = f'To read a column otherwise: [data.columns] "{name}" = "categorical", or "ignored".'
    console.print(f"\n{escape(hint)}", highlight=False, soft_wrap=True)


def _values(table: MixedTable, column: Column) -> str:
    if column.levels:
        shown = ", ".join(map(str, column.levels[:_MOST]))
        more = len(column.levels) - _MOST
        return f"{shown}, … ({len(column.levels)} levels)" if more > 0 else shown
    from exhume.protocol.schema import ColumnKind

    cells = table.schema.decode(table.records.x)[column.name]
    there = cells[~np.isnat(cells)] if column.kind is ColumnKind.DATE else cells[~np.isnan(cells)]
    low, high = there.min(), there.max()
    if column.kind is ColumnKind.DATE:
        return f"{low.astype('datetime64[D]')} to {high.astype('datetime64[D]')}"
    return f"{low:g} to {high:g}"


def _absent(table: MixedTable, column: Column) -> int:
    if not column.missing:
        return 0
    place = table.schema.places[table.schema.place(column.name)]
    return int(table.records.x[:, place.stop - 1].sum())


def _label(table: MixedTable) -> str:
    labels = table.records.labels
    values = np.unique(labels)
    name = table.schema.label
    if labels.dtype.kind in "fiu" and len(values) > 20:
        return f"{name}, numbers from {values[0]:g} to {values[-1]:g}"
    shown = ", ".join(map(str, values[:_MOST].tolist()))
    return f"{name}, {len(values)} classes: {shown}{', …' if len(values) > _MOST else ''}"


def _as_json(table: MixedTable, notes: list[str]) -> dict[str, object]:
    columns = [
        {
            "name": column.name,
            "kind": column.kind.value,
            "levels": [str(level) for level in column.levels],
            "missing": _absent(table, column),
        }
        for column in table.schema.columns
    ]
    return {
        "file": table.source,
        "rows": len(table.records) + table.left_out,
        "without_label": table.left_out,
        "label": table.schema.label,
        "columns": columns,
        "notes": notes,
    }
