"""``[data.columns]``: what the user says of a table's columns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from exhume.config.base import Table


class ColumnTable(Table):
    """A column: its kind, or ``ignored``; the levels of a category; its unit."""

    kind: Literal["continuous", "integer", "categorical", "boolean", "date", "ignored"] | None = (
        None
    )
    levels: tuple[str | int | float, ...] = ()
    unit: str = ""


def _named(tables: object) -> object:
    """Take ``age = "integer"`` for a table with that kind; a configuration is hashed."""
    if not isinstance(tables, dict):
        return tables
    return tuple(
        (name, {"kind": one} if isinstance(one, str) else one) for name, one in tables.items()
    )


ColumnTables = Annotated[tuple[tuple[str, ColumnTable], ...], BeforeValidator(_named)]
