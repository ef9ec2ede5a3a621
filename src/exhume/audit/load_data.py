"""The records that a [data] table names: sets known by name, arrays, tables of mixed columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.audit.setting import Range
from exhume.config import DataTable
from exhume.data.dataset import Task
from exhume.data.frames import TABLES, read_table
from exhume.data.infer_schema import ColumnWish
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema


@dataclass(frozen=True, eq=False)
class Loaded:
    """Records with what is known about them in addition to their values."""

    records: Records
    value_range: Range | None
    task: Task
    schema: Schema | None = None
    left_out: int = 0


def load_data(
    table: DataTable, *, mixed: bool = False, features: tuple[str, ...] | None = None
) -> Loaded:
    """Read the records that a [data] table names; ``mixed`` tables have columns of every kind.

    A file counts as mixed where asked for; a table known by name where it is. Of a file, only the
    columns in ``features`` are read, in this order.
    """
    if mixed and table.file is not None and table.file.suffix.lower() in TABLES:
        return _load_table(table, features)
    if table.columns:
        raise InputError(
            "data.columns goes with release.estimator, a gradient or an update, and with a .csv or "
            ".parquet file"
        )
    return _load_numbers(table)


def has_columns(table: DataTable) -> bool:
    """Return whether the records are rows of a table that may have columns of several kinds."""
    from exhume.data.catalogue import MIXED

    if table.file is not None:
        return table.file.suffix.lower() in TABLES
    return table.name in {source.name for source in MIXED}


def _load_table(table: DataTable, features: tuple[str, ...] | None) -> Loaded:
    """Read a table with names, levels and missing cells."""
    assert table.file is not None
    wishes = {n: ColumnWish(c.kind, c.levels, c.unit) for n, c in table.columns}
    if table.classes is not None or table.units != "raw":
        raise InputError("data.classes and units are for records of numbers, not for a table")
    found = read_table(table.file, label=table.label, wishes=wishes, features=features)
    labels = found.records.labels
    task = Task.MULTICLASS if labels.dtype.kind == "U" else task_of(found.records)
    return Loaded(found.records, None, task, found.schema, found.left_out)


def _load_numbers(table: DataTable) -> Loaded:
    from exhume.data import load, read_records, restrict_classes
    from exhume.data.images import shrunk

    schema = None
    if table.name is not None:
        found = load(table.name)
        schema = found.schema
        records, value_range, task = found.train, found.value_range, found.task
        if table.whole and found.test is not None:
            labels = np.concatenate([found.train.labels, found.test.labels])
            records = Records(np.concatenate([found.train.x, found.test.x]), labels)
    else:
        assert table.file is not None
        records, value_range = read_records(Path(table.file), label=table.label), None
        task = task_of(records)
    if table.shrink > 1:
        records = Records(shrunk(records.x, table.shrink), records.y, records.weight)
    if table.classes is not None:
        records = restrict_classes(records, table.classes)
        task = Task.BINARY if len(table.classes) == 2 else Task.MULTICLASS
    return Loaded(records, value_range, task, schema)


def task_of(records: Records) -> Task:
    """Return what labels of this kind are for."""
    labels = records.labels
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        return Task.REGRESSION
    return Task.BINARY if len(np.unique(labels)) == 2 else Task.REGRESSION
