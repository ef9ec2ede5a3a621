"""Which values of a target the adversary knows, by columns' numbers or names."""

from __future__ import annotations

import numpy as np

from exhume.config.audit import SettingTable
from exhume.protocol.errors import InputError
from exhume.protocol.images import channels_are_first, sides_of
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema


def known_entries(
    table: SettingTable, fixed_set: Records, schema: Schema | None = None
) -> tuple[int, ...]:
    """Return the known entries of a flattened record, in order."""
    shape, known = fixed_set.record_shape, table.knowledge.attributes
    index = np.arange(int(np.prod(shape))).reshape(shape)
    if isinstance(known, tuple):
        chosen = np.array(_entries(table, known, index.size, schema), dtype=np.int64)
    else:
        if len(shape) not in (2, 3):
            raise InputError(f"knowledge.attributes = {known!r} is for images, got shape {shape}")
        side, half = known.split("-")[0], [size // 2 for size in sides_of(shape)[:2]]
        index = np.moveaxis(index, 0, -1) if channels_are_first(shape) else index
        chosen = {
            "upper": index[: half[0]],
            "lower": index[half[0] :],
            "left": index[:, : half[1]],
            "right": index[:, half[1] :],
        }[side].ravel()
    found = tuple(sorted({int(entry) for entry in chosen}))
    if len(found) == index.size:
        raise InputError("knowledge.attributes names every value: there is nothing to rebuild")
    return found


def _entries(
    table: SettingTable, known: tuple[int | str, ...], size: int, schema: Schema | None
) -> list[int]:
    """Return the entries that columns take, by number or by name."""
    names = schema.names if schema is not None else column_names_of(table, (size,))
    found: list[int] = []
    for column in known:
        if isinstance(column, str):
            if column not in names:
                there = ", ".join(names[:20]) or "not known by name: give their numbers"
                raise InputError(f"knowledge.attributes names {column!r}; the columns are {there}")
            column = names.index(column)
        if column >= (size if schema is None else len(names)):
            raise InputError(
                f"knowledge.attributes names column {column}, but there are only "
                f"{size if schema is None else len(names)}"
            )
        place = slice(column, column + 1) if schema is None else schema.places[column]
        found += range(place.start, place.stop)
    return found


def column_names_of(table: SettingTable, record_shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of a record's values, where the data names as many as there are."""
    from exhume.data.columns import column_names

    data, given = table.data, table.knowledge.fixed_set
    name = None if data is None else data.name
    file, label = (given, None) if data is None else (data.file, data.label)
    found = column_names(name, file, label)
    return found if record_shape == (len(found),) else ()
