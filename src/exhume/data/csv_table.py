"""A .csv table of numbers with a header: every cell is checked, every error names its line."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.reading import explained, listed, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

_KIND = "a comma-separated table in UTF-8"


def read_csv_table(path: Path, *, label: str | None) -> tuple[Array, Array]:
    """Return x (n, columns − 1) as float64, and the column ``label`` (or else the last) as y.

    y is int64 if all of its cells are written as whole numbers, else float64.
    """
    header, *lines = _lines(path)
    names = _checked_header(header.cells, path)
    place = _label_place(names, label, path)
    values = np.array([_numbers(line, names, path) for line in lines]).reshape(-1, len(names))
    labels = [line.cells[place] for line in lines]
    whole = all(_is_whole(cell) for cell in labels)
    y = np.array([int(cell) for cell in labels], dtype=np.int64) if whole else values[:, place]
    return np.delete(values, place, axis=1), y


def read_csv_names(path: Path, *, label: str | None) -> tuple[str, ...]:
    """Return the columns' names, without the column ``label`` (or else the last)."""
    names = _checked_header(_lines(path)[0].cells, path)
    place = _label_place(names, label, path)
    return (*names[:place], *names[place + 1 :])


@dataclass(frozen=True)
class _Line:
    number: int
    cells: list[str]


def _lines(path: Path) -> list[_Line]:
    require_file(path, _KIND)
    with explained(path, _KIND), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        try:
            lines = [
                _Line(reader.line_num, [c.strip() for c in cells]) for cells in reader if cells
            ]
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: is not {_KIND}: {error}") from None
    if not lines:
        raise InputError(f"{path}: is empty, expected {_KIND}")
    return lines


def _checked_header(names: list[str], path: Path) -> list[str]:
    if len(names) < 2:
        hint = "; are its columns separated by commas?" if ";" in "".join(names) else ""
        raise InputError(
            f"{path}: needs a header with at least two columns, a feature and a label{hint}"
        )
    if all(_parsed(name) is not None for name in names):
        raise InputError(
            f"{path}: its first line is all numbers; it must be a header with the columns' names"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are called {twice!r}; names must differ")
    return names


def _label_place(names: Sequence[str], label: str | None, path: Path) -> int:
    if label is None:
        return len(names) - 1
    if label not in names:
        raise InputError(f"{path}: has no column {label!r}; its columns are {listed(names)}")
    return names.index(label)


def _numbers(line: _Line, names: Sequence[str], path: Path) -> list[float]:
    if len(line.cells) != len(names):
        raise InputError(
            f"{path}, line {line.number}: has {len(line.cells)} cells, "
            f"the header has {len(names)} columns"
        )
    return [
        _number(cell, name, line.number, path) for cell, name in zip(line.cells, names, strict=True)
    ]


def _number(cell: str, name: str, number: int, path: Path) -> float:
    value = _parsed(cell)
    if value is not None and math.isfinite(value):
        return value
    wrong = "is empty" if not cell else f"holds {cell!r}, which is not a finite number"
    hint = "; code names as numbers, classes as 0, 1, …" if cell and value is None else ""
    raise InputError(f"{path}, line {number}, column {name!r}: {wrong}{hint}")


def _parsed(cell: str) -> float | None:
    # Python reads 1_000 as a thousand; a table with it means something else.
    if "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    try:
        return abs(int(cell)) < 2**63
    except ValueError:
        return False
