"""CIFAR's binary version: records of one or two label bytes and 3,072 bytes of image.

Format: "Binary version" on the page of CIFAR-10 and CIFAR-100 (Krizhevsky 2009). An image is its
red plane, then green, then blue, each 32×32 row by row. CIFAR-100 puts the coarse label before the
fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.dataset import Sizes
from exhume.data.images import RawImages
from exhume.data.layout import FolderLayout, RawParts, first_existing
from exhume.data.reading import explained, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

IMAGE_BYTES = 3 * 32 * 32
_KIND = "a file of CIFAR's binary version"


def channels_last(planes: Array) -> Array:
    """Turn (n, 3072) rows of colour planes into (n, 32, 32, 3) images."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def read_cifar_binary(path: Path, *, label_bytes: int) -> RawImages:
    """Read one file; the last of a record's ``label_bytes`` is its (fine) label."""
    count = _record_count(path, label_bytes)
    with explained(path, _KIND):
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    rows = content.reshape(count, label_bytes + IMAGE_BYTES)
    return RawImages(channels_last(rows[:, label_bytes:]), rows[:, label_bytes - 1], path)


def _record_count(path: Path, label_bytes: int) -> int:
    require_file(path, _KIND)
    size, record = path.stat().st_size, label_bytes + IMAGE_BYTES
    if size % record:
        raise InputError(
            f"{path}: holds {size:,} bytes, not a whole number of {record}-byte records: it is "
            "truncated, or not CIFAR's binary version"
        )
    return size // record


@dataclass(frozen=True)
class CifarBinaryLayout(FolderLayout):
    """The official files ``train`` and ``test`` in one of ``folders``."""

    folders: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    label_bytes: int

    @property
    def wanted(self) -> str:
        """The official names, in the official folder."""
        return f"{self.folders[0]}/ (the binary version: {', '.join((*self.train, self.test))})"

    def find(self, folder: Path) -> Path | None:
        """Return the first of the folders that holds the first training file, or None."""
        files = tuple(f"{name}/{self.train[0]}" for name in self.folders)
        found = first_existing(folder, files)
        return None if found is None else found.parent

    def sizes(self, path: Path) -> Sizes:
        """Count the records by the files' sizes."""
        counts = [_record_count(path / name, self.label_bytes) for name in self.train]
        return Sizes(sum(counts), _record_count(path / self.test, self.label_bytes))

    def read(self, path: Path) -> RawParts:
        """Read every file; a missing one is an error, so that no part is silently smaller."""
        files = tuple(
            read_cifar_binary(path / name, label_bytes=self.label_bytes)
            for name in (*self.train, self.test)
        )
        return RawParts(files[:-1], files[-1:])
