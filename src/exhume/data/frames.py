"""Tables as people have them: CSV, Parquet, frames of pandas and polars; cells by column."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exhume.data.infer_schema import ColumnWish, infer_schema
from exhume.data.reading import explained, listed, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import Cell, Schema

_MISSING = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "?"}
"""How files write a missing cell."""
_TRUTH = {"true": True, "false": False}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")
PARQUET = (".parquet", ".pq")
TABLES = (".csv", *PARQUET)

Cells = dict[str, list[Cell]]


@dataclass(frozen=True, eq=False)
class MixedTable:
    """Records with their schema. ``left_out`` rows had no label; ``source`` is where it was read.

    ``library`` makes frames for pipelines: ``pandas``, ``polars``, or empty for either.
    """

    records: Records
    schema: Schema
    left_out: int = 0
    source: str = "the table"
    library: str = ""


def read_table(
    path: Path,
    *,
    label: str | None = None,
    wishes: Mapping[str, ColumnWish] | None = None,
    features: Sequence[str] | None = None,
) -> MixedTable:
    """Read a .csv or .parquet file; the column ``label``, or else the last, is y.

    ``features`` are the other columns that are read, in their order; None for all.
    """
    path, first = Path(path), 1
    if path.suffix.lower() == ".csv":
        cells, first = _csv_cells(path, wishes or {}), 2
    elif path.suffix.lower() in PARQUET:
        cells = _parquet_cells(path)
    else:
        raise InputError(f"{path}: a table is {', '.join(TABLES)}, got {path.suffix!r}")
    if len(cells) < 2:
        raise InputError(f"{path}: needs at least two columns, a feature and a label")
    name = next(reversed(cells)) if label is None else label
    if name not in cells:
        raise InputError(f"{path}: has no column {name!r}; its columns are {listed([*cells])}")
    answers = cells.pop(name)
    if features is not None:
        absent = [one for one in features if one not in cells]
        if absent:
            raise InputError(
                f"{path}: has no column {absent[0]!r}, on which the estimator was fitted; its "
                f"columns are {listed([*cells])}, and the label is {name}"
            )
        cells = {one: cells[one] for one in features}
    return table_of(cells, answers, label=name, wishes=wishes, source=str(path), first=first)


def table_of(
    cells: Cells,
    answers: Sequence[Cell],
    *,
    label: str = "",
    wishes: Mapping[str, ColumnWish] | None = None,
    source: str = "the table",
    first: int = 1,
    library: str = "",
) -> MixedTable:
    """Return records and schema from cells by column; rows without a label are left out."""
    count = len(answers)
    for name, column in cells.items():
        if len(column) != count:
            raise InputError(f"{source}: column {name!r} has {len(column)} rows, y has {count}")
    labelled = [row for row, answer in enumerate(answers) if answer is not None]
    if len(labelled) < 2:
        raise InputError(f"{source}: {len(labelled)} rows have a label, at least 2 are needed")
    if len(labelled) < count:
        cells = {name: [column[row] for row in labelled] for name, column in cells.items()}
        answers = [answers[row] for row in labelled]
    schema = infer_schema(cells, wishes, source=source, first=first)
    records = Records(schema.encode(cells), _labels(answers, label, source))
    return MixedTable(
        records, Schema(schema.columns, label), count - len(labelled), source, library
    )


def cells_of_frame(frame: Any) -> tuple[Cells, str]:
    """Return the cells of a frame of pandas or polars, and the library's name."""
    library = type(frame).__module__.split(".")[0]
    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}; names must differ")
    values = {name: _listed(frame[own]) for name, own in zip(names, frame.columns, strict=True)}
    return {name: _single(name, column) for name, column in values.items()}, library


def is_frame(value: Any) -> bool:
    """Return whether something is a table with named columns."""
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def answers_of(y: Any) -> list[Cell]:
    """Return labels as cells, None where one is missing."""
    return [_plain(one) for one in _listed(y)]


def _single(name: str, column: Sequence[Any]) -> list[Cell]:
    """Return a column's cells; InputError if one holds several values."""
    for row, value in enumerate(column):
        if isinstance(value, list | tuple | dict | set | bytes) or np.ndim(value) > 0:
            raise InputError(
                f"column {name!r}, row {row + 1}: holds a {type(value).__name__}; a cell is one "
                "number, date, truth value or text"
            )
    return [_plain(one) for one in column]


def _listed(column: Any) -> list[Any]:
    if hasattr(column, "to_list"):
        return list(column.to_list())
    return list(np.asarray(column).tolist())


def _plain(value: Any) -> Cell:
    """Return a cell of a frame as Python has it; None for every kind of missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float | np.floating):
        return None if math.isnan(value) else float(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if hasattr(value, "isoformat") and not hasattr(value, "utcoffset"):
        return np.datetime64(value.isoformat(), "s")
    if hasattr(value, "isoformat") and hasattr(value, "year"):
        return np.datetime64(value.replace(tzinfo=None).isoformat(timespec="seconds"), "s")
    return str(value)


def _csv_cells(path: Path, wishes: Mapping[str, ColumnWish]) -> Cells:
    header, rows = _csv_rows(path)
    texts: dict[str, list[str]] = {
        name: [row[place] for row in rows] for place, name in enumerate(header)
    }
    wish = {name: wishes.get(name, ColumnWish()).kind for name in header}
    return {name: _typed(column, wish[name]) for name, column in texts.items()}


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    kind = "a comma-separated table in UTF-8"
    require_file(path, kind)
    with explained(path, kind), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        header = [cell.strip() for cell in next(reader, [])]
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{path}: two columns are called {twice!r}; names must differ")
        if header and all(_as_number(name) is not None for name in header):
            raise InputError(
                f"{path}: its first line is all numbers; it must be a header with the columns' "
                "names"
            )
        rows = []
        for cells in reader:
            if cells and len(cells) != len(header):
                raise InputError(
                    f"{path}, line {reader.line_num}: has {len(cells)} cells, the header has "
                    f"{len(header)} columns"
                )
            rows += [[cell.strip() for cell in cells]] if cells else []
    return header, rows


def _typed(texts: Sequence[str], kind: str | None) -> list[Cell]:
    """Return a column of a file as numbers, dates, truth values or text, cell by cell."""
    if kind == "categorical":
        return [None if text in _MISSING else text for text in texts]
    there = {text for text in texts if text not in _MISSING}
    if there and all(text.lower() in _TRUTH for text in there):
        return [None if text in _MISSING else _TRUTH[text.lower()] for text in texts]
    return [None if text in _MISSING else _from_text(text) for text in texts]


def _from_text(text: str) -> Cell:
    number = _as_number(text)
    if number is not None and math.isfinite(number):
        return number
    if _DATE.fullmatch(text):
        try:
            return np.datetime64(text, "s")
        except ValueError:
            return text
    return text


def _as_number(text: str) -> int | float | None:
    # Python reads 1_000 as a thousand; a table with it means something else.
    if "_" in text:
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return None


def _parquet_cells(path: Path) -> Cells:
    from importlib.util import find_spec

    kind = "a Parquet table"
    require_file(path, kind)
    for library, read in (("pyarrow", _by_pyarrow), ("polars", _by_polars)):
        if find_spec(library) is not None:
            with explained(path, kind):
                return read(path)
    raise InputError(f"{path}: a Parquet table needs pyarrow or polars: pip install pyarrow")


def _by_pyarrow(path: Path) -> Cells:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: _single(name, table[name].to_pylist()) for name in table.column_names}


def _by_polars(path: Path) -> Cells:
    import polars

    return cells_of_frame(polars.read_parquet(path))[0]


def _labels(answers: Sequence[Cell], label: str, source: str) -> Array:
    """Return y: int64 for whole numbers, float64 for numbers, text otherwise."""
    name = f"the label column {label!r}" if label else "y"
    kinds = {type(one) for one in answers}
    if kinds <= {int}:
        return np.array(answers, dtype=np.int64)
    if kinds <= {int, float}:
        return np.array(answers, dtype=np.float64)
    if kinds == {bool}:
        return np.array(answers, dtype=bool).astype(np.int64)
    if kinds == {str}:
        return np.array(answers, dtype=str)
    if any(issubclass(kind, np.datetime64) for kind in kinds):
        raise InputError(f"{source}: {name} holds dates; a label is a number or a class")
    raise InputError(f"{source}: {name} mixes numbers and text: {_two_kinds(answers)}")


def _two_kinds(answers: Sequence[Cell]) -> str:
    first = answers[0]
    other = next(one for one in answers if type(one) is not type(first))
    return f"{first!r} and {other!r}"
