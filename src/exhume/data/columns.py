"""The names of a table's columns, where its source has them."""

from __future__ import annotations

from pathlib import Path

from exhume.data.catalogue import SOURCES
from exhume.data.csv_table import read_csv_names
from exhume.data.tables import SklearnTable


def column_names(name: str | None, file: Path | None, label: str | None) -> tuple[str, ...]:
    """Return the names of the values of a record, without the label; empty if nothing names them.

    >>> column_names("breast-cancer", None, None)[:2]
    ('mean radius', 'mean texture')
    """
    if file is not None:
        return read_csv_names(file, label=label) if file.suffix == ".csv" else ()
    found = next((source for source in SOURCES if source.name == name), None)
    return found.columns() if isinstance(found, SklearnTable) else ()
