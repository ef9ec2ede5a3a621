"""Tables of rows that may be larger than memory: written as they are made, and mapped when read.

A table is a safetensors file of the cache with one array, float32. Reading it needs no memory of
its own: pages that were read are given back block by block (``forget``).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import StoreError
from exhume.runtime.cache import Cache
from exhume.runtime.cache_files import seal_of
from exhume.runtime.durable import explained, make_folder
from exhume.runtime.pages import forget

_HEAD = 512
"""The bytes of the header, whose length must be known before the number of rows is."""
_BLOCK_BYTES = 1 << 26


def blocks_of(rows: Array, most: int = 0) -> Iterator[tuple[slice, Array]]:
    """Yield the rows of a table in blocks of 64 MB or ``most`` rows, with their places.

    >>> [(part.start, len(block)) for part, block in blocks_of(np.ones((5, 2)), 2)]
    [(0, 2), (2, 2), (4, 1)]
    """
    size = most or max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), size):
        part = slice(start, min(start + size, len(rows)))
        yield part, rows[part]
        forget(rows)


def subtract(rows: Array, row: Array) -> None:
    """Subtract one row from all rows of a table, in place."""
    for _, block in blocks_of(rows):
        block -= row


def keep_rows(
    cache: Cache,
    shelf: str,
    name: str,
    shape: tuple[int, int],
    blocks: Iterable[Array],
    *,
    finish: Callable[[Array], None],
    about: str,
) -> None:
    """Store a table of at most ``shape`` from its blocks, all or nothing.

    ``finish`` may change the table in place when it is whole. Where it cannot be stored, the cache
    has a ``problem`` afterwards.
    """
    path = cache.place(shelf, name)
    if path is None or cache.problem:
        return
    try:
        if not cache.make_room(_HEAD + 4 * shape[0] * shape[1]):
            return
        for folder in (path.parent.parent, path.parent):
            make_folder(folder)
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "w+b") as file:
                file.write(b" " * _HEAD)
                count = 0
                for block in blocks:
                    file.write(np.ascontiguousarray(block, dtype=np.float32).data)
                    count += len(block)
                file.flush()
                table = np.memmap(made, np.float32, "r+", _HEAD, (count, shape[1]))
                finish(table)
                table.flush()
                file.seek(0)
                file.write(_header(table, f"{shelf}/{name}", about))
                file.flush()
                os.fsync(file.fileno())
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
    except StoreError as error:
        cache.problem = str(error)
    except OSError as error:
        cache.problem = explained(path, error)


def kept_rows(cache: Cache, shelf: str, name: str) -> Array | None:
    """Return a stored table, mapped and read-only; None if there is none or it is damaged."""
    path = cache.place(shelf, name)
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = json.loads(file.read(length)) if length == _HEAD - 8 else {}
        shape = tuple(head["rows"]["shape"])
        table = np.memmap(path, np.float32, "r", _HEAD, shape)
        sound = path.stat().st_size == _HEAD + table.nbytes
        if sound and head["__metadata__"]["seal"] == seal_of({"rows": table}, f"{shelf}/{name}"):
            os.utime(path)
            return table
    except (OSError, ValueError, KeyError, TypeError):
        pass
    path.unlink(missing_ok=True)
    return None


def _header(table: Array, place: str, about: str) -> bytes:
    told = {
        "__metadata__": {"seal": seal_of({"rows": table}, place), "about": about},
        "rows": {"dtype": "F32", "shape": list(table.shape), "data_offsets": [0, table.nbytes]},
    }
    text = json.dumps(told).encode().ljust(_HEAD - 8)
    return len(text).to_bytes(8, "little") + text
