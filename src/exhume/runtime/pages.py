"""The memory of files that are mapped: what was read of them can be given back at any time."""

from __future__ import annotations

import mmap

import numpy as np

from exhume.protocol.arrays import Array


def forget(array: Array) -> None:
    """Give back the memory of a mapped file's pages; they are read again when they are needed.

    Arrays that are not mapped stay as they are.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
