"""NumPy's .npz archives, with no pickle ever read: single arrays, and whole data sets."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.dataset import Sizes
from exhume.data.images import RawImages
from exhume.data.layout import FolderLayout, RawParts, first_existing
from exhume.data.reading import explained, listed, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

_KIND = "a NumPy .npz archive"


def npz_keys(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in the archive, in its order."""
    require_file(path, _KIND)
    with explained(path, _KIND):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path}: is not {_KIND}, or is truncated")
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())


def npz_array(path: Path, key: str) -> Array:
    """Return one array of the archive; arrays of Python objects are refused unread."""
    dtype, _ = _header(path, key)
    if dtype.hasobject:
        raise InputError(
            f"{path}: array '{key}' holds pickled Python objects, which may run code and are not "
            "read; save it as an array of numbers"
        )
    with explained(path, _KIND), np.load(path, allow_pickle=False) as archive:
        return np.asarray(archive[key])


def npz_shape(path: Path, key: str) -> tuple[int, ...]:
    """Return the shape of one array of the archive, reading no more than its header."""
    return _header(path, key)[1]


def _header(path: Path, key: str) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    keys = npz_keys(path)
    if key not in keys:
        raise InputError(f"{path}: has no array '{key}'; it holds {listed(keys)}")
    with (
        explained(path, f"{_KIND} with an array '{key}'"),
        zipfile.ZipFile(path) as archive,
        archive.open(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key) as member,
    ):
        version = np.lib.format.read_magic(member)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if reader is None:
            raise InputError(f"{path}: array '{key}' is in an unknown format version {version}")
        shape, _, dtype = reader(member)
    return dtype, shape


@dataclass(frozen=True)
class NpzLayout(FolderLayout):
    """One archive, under one of ``files``: x_train, y_train and, if there is a test part, x_test,
    y_test; or only x and y. ``classes`` may name the classes.
    """  # noqa: D205

    files: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """The names of the archive."""
        return " or ".join(self.files)

    def find(self, folder: Path) -> Path | None:
        """Return the archive's path inside ``folder``, or None."""
        return first_existing(folder, self.files)

    def sizes(self, path: Path) -> Sizes:
        """Count the records by the shapes in the archive's headers."""
        keys = npz_keys(path)
        if "x" in keys:
            return Sizes(_length(path, "x"))
        test = _length(path, "x_test") if "x_test" in keys else None
        return Sizes(_length(path, "x_train"), test)

    def read(self, path: Path) -> RawParts:
        """Read every part."""
        keys = npz_keys(path)
        classes = _class_names(path) if "classes" in keys else None
        if "x" in keys:
            return RawParts((_part(path, "x", "y"),), (), classes)
        # An incomplete test part must not count as none.
        has_test = "x_test" in keys or "y_test" in keys
        test = (_part(path, "x_test", "y_test"),) if has_test else ()
        return RawParts((_part(path, "x_train", "y_train"),), test, classes)


def _length(path: Path, key: str) -> int:
    shape = npz_shape(path, key)
    return shape[0] if shape else 0


def _part(path: Path, images: str, labels: str) -> RawImages:
    return RawImages(npz_array(path, images), npz_array(path, labels), path)


def _class_names(path: Path) -> tuple[str, ...]:
    names = npz_array(path, "classes")
    if names.dtype.kind != "U" or names.ndim != 1:
        raise InputError(f"{path}: 'classes' must be a list of names, got {names.dtype}")
    return tuple(str(name) for name in names)
