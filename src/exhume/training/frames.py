"""Records as frames of pandas or polars, for pipelines that read columns by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.schema import ColumnKind, Schema


@dataclass(frozen=True)
class Frames:
    """Makes frames of records. ``library`` is ``pandas``, ``polars`` or empty for either.

    ``dtypes`` are the names of pandas' types of the user's own columns, where these are not made
    from the cells alone, such as ``category``.
    """

    schema: Schema
    library: str = ""
    dtypes: tuple[tuple[str, str], ...] = ()

    def __call__(self, x: Array) -> Any:
        """Return records (n, entries) as a frame with the schema's columns."""
        cells = {name: self._typed(name, one) for name, one in self.schema.decode(x).items()}
        for name in (self.library,) if self.library else ("pandas", "polars"):
            try:
                if name == "polars":
                    import polars

                    return polars.DataFrame({n: _in_milliseconds(c) for n, c in cells.items()})
                import pandas

                return pandas.DataFrame(cells).astype(dict(self.dtypes))
            except ImportError:
                continue
        raise InputError("columns by name need pandas or polars: pip install pandas")

    def _typed(self, name: str, values: Array) -> Array:
        """Return whole numbers as integers, where all of them are."""
        whole = self.schema.columns[self.schema.place(name)].kind is ColumnKind.INTEGER
        if whole and np.array_equal(values, np.rint(values)):
            return values.astype(np.int64)
        return values


def _in_milliseconds(cells: Array) -> Array:
    """Return dates in the unit that polars reads; anything else as it is."""
    return cells.astype("datetime64[ms]") if cells.dtype.kind == "M" else cells


def dtypes_of(frame: Any, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Return the types of a pandas frame that its cells alone don't tell: of text and categories.

    >>> dtypes_of(object(), Schema(()))
    ()
    """
    types = getattr(frame, "dtypes", None)
    if types is None or not type(frame).__module__.startswith("pandas"):
        return ()
    kinds = {column.name: column.kind for column in schema.columns}
    return tuple(
        (str(name), str(types[name]))
        for name in frame.columns
        if kinds.get(str(name)) is ColumnKind.CATEGORICAL
    )
