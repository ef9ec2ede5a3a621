"""The IDX format of MNIST and similar sets: a magic number, the sides, then bytes; gzipped or not.

Format: the page of the MNIST database (LeCun, Cortes, Burges), "File formats". The magic number's
third byte is the type (8: unsigned byte), its fourth the number of dimensions; all integers are
big-endian.
"""

from __future__ import annotations

import gzip
import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from exhume.data.dataset import Sizes
from exhume.data.images import RawImages
from exhume.data.layout import FolderLayout, RawParts, first_existing
from exhume.data.reading import explained, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

_Stream: TypeAlias = gzip.GzipFile | io.BufferedReader
_KIND = "an IDX file"
_UNSIGNED_BYTE = 8
_MOST_BYTES = 2**31
"""Larger than any data set of this family: a damaged header must not allocate all memory."""


def read_idx(path: Path) -> Array:
    """Return the array of unsigned bytes in an IDX file; ``.gz`` is unpacked on the way."""
    require_file(path, _KIND)
    with explained(path, _KIND), _opened(path) as file:
        shape = _read_shape(file, path)
        size = int(np.prod(shape, dtype=np.int64))
        # One byte more than expected, to notice extra bytes.
        content = file.read(size + 1)
    if len(content) != size:
        held = f"only {len(content):,}" if len(content) < size else "more"
        raise InputError(
            f"{path}: holds {held} bytes of data, "
            f"its header promises {size:,} ({'×'.join(str(side) for side in shape)})"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def read_idx_shape(path: Path) -> tuple[int, ...]:
    """Return the shape that an IDX file's header states."""
    require_file(path, _KIND)
    with explained(path, _KIND), _opened(path) as file:
        return _read_shape(file, path)


def _opened(path: Path) -> _Stream:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _read_shape(file: _Stream, path: Path) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or not 1 <= magic[3] <= 4:
        raise InputError(
            f"{path}: is not an IDX file of unsigned bytes: it starts with 0x{magic.hex()}, "
            "expected 0x0000080n with n from 1 to 4"
        )
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise InputError(f"{path}: is truncated within its header")
    shape = struct.unpack(f">{magic[3]}I", header)
    size = 1
    for side in shape:
        size *= side
    if size > _MOST_BYTES:
        raise InputError(f"{path}: its header promises {size:,} bytes, more than {_MOST_BYTES:,}")
    return shape


@dataclass(frozen=True)
class IdxLayout(FolderLayout):
    """The four official files in one of ``folders``; the test pair may be left out."""

    folders: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """The official names, in one of the folders."""
        folders = ", ".join(f"{name}/" for name in self.folders)
        return f"{{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte[.gz] in one of {folders}"

    def find(self, folder: Path) -> Path | None:
        """Return the first of the folders that holds any training file, or None."""
        for name in self.folders:
            for half in ("images-idx3", "labels-idx1"):
                if _file(folder / name, "train", half) is not None:
                    return folder / name
        return None

    def sizes(self, path: Path) -> Sizes:
        """Count the images by the files' headers."""
        test = _file(path, "t10k", "images-idx3")
        train = read_idx_shape(_required(path, "train", "images-idx3"))[0]
        return Sizes(train, None if test is None else read_idx_shape(test)[0])

    def read(self, path: Path) -> RawParts:
        """Read both pairs of files."""
        # An incomplete test part must not count as none.
        halves = [_file(path, "t10k", half) for half in ("images-idx3", "labels-idx1")]
        test = () if halves == [None, None] else (_part(path, "t10k"),)
        return RawParts((_part(path, "train"),), test)


def _part(folder: Path, part: str) -> RawImages:
    images = _required(folder, part, "images-idx3")
    labels = _required(folder, part, "labels-idx1")
    return RawImages(read_idx(images), read_idx(labels), images)


def _file(folder: Path, part: str, half: str) -> Path | None:
    dotted = half.replace("-idx", ".idx")
    names = (f"{part}-{half}-ubyte", f"{part}-{dotted}-ubyte")
    return first_existing(folder, (*names, *(f"{name}.gz" for name in names)))


def _required(folder: Path, part: str, half: str) -> Path:
    file = _file(folder, part, half)
    if file is None:
        raise InputError(f"{folder}: has no {part}-{half}-ubyte (or .gz), but the others exist")
    return file
