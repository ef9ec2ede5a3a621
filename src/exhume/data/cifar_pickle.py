"""CIFAR's "python version": pickles, read without executing any call in them.

A pickle is a program. This reader runs it with two harmless classes in place of the types that it
may name; they only store their arguments. Not even NumPy's own constructors are called; the array
is rebuilt here from the stored bytes. Any other name in a pickle is refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.cifar import IMAGE_BYTES, channels_last
from exhume.data.dataset import Sizes
from exhume.data.images import RawImages
from exhume.data.layout import FolderLayout, RawParts, first_existing
from exhume.data.reading import explained, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

_KIND = "a file of CIFAR's python version"
_INSTEAD = "use CIFAR's binary version (*.bin) instead"


class _KeptArray:
    """Stands in for numpy.ndarray and its constructor."""

    __slots__ = ("state",)

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _KeptType:
    """Stands in for numpy.dtype: keeps the name of the type."""

    __slots__ = ("name",)

    def __init__(self, *arguments: object) -> None:
        self.name = arguments[0] if arguments else None

    def __setstate__(self, _: object) -> None:
        """Ignore byte order and flags: single bytes have none."""


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _KeptArray,
    ("numpy._core.multiarray", "_reconstruct"): _KeptArray,
    ("numpy", "ndarray"): _KeptArray,
    ("numpy", "dtype"): _KeptType,
}


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> type:
        stand_in = _STAND_INS.get((module_name, global_name))
        if stand_in is None:
            raise InputError(f"it names {module_name}.{global_name}, which a CIFAR file never does")
        return stand_in


def read_cifar_pickle(path: Path, *, label_key: str) -> RawImages:
    """Read one file of the python version; ``label_key`` is "labels" or "fine_labels"."""
    content = _unpickled(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, expected a dictionary")
    values = {
        key.decode("latin-1") if isinstance(key, bytes) else key: content[key] for key in content
    }
    for key in ("data", label_key):
        if key not in values:
            raise InputError(f"{path}: has no '{key}'; {_INSTEAD}")
    images = channels_last(_rebuilt(values["data"], path))
    return RawImages(images, _labels(values[label_key], path), path)


def _unpickled(path: Path) -> object:
    require_file(path, _KIND)
    with explained(path, _KIND):
        raw = path.read_bytes()
    try:
        _refuse_large_memo(raw)
        # Made by Python 2: its strings are bytes.
        return _InertUnpickler(io.BytesIO(raw), encoding="bytes").load()
    # A hostile or damaged pickle can raise any error; a traceback would not help.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: is not {_KIND}: {reason}; {_INSTEAD}") from None


def _refuse_large_memo(raw: bytes) -> None:
    # The unpickler allocates memory for every memo index up to the largest.
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name == "LONG_BINPUT" and isinstance(argument, int) and argument > len(raw):
            raise InputError(f"it asks for {argument:,} memo entries")


def _rebuilt(kept: object, path: Path) -> Array:
    match kept:
        case _KeptArray(
            state=(_, (int(count), int(width)), _KeptType(name=name), False, bytes(content))
        ) if (
            name in ("u1", b"u1", "|u1", b"|u1")
            and width == IMAGE_BYTES
            and count * width == len(content)
        ):
            return np.frombuffer(content, dtype=np.uint8).reshape(count, width)
    raise InputError(f"{path}: 'data' is not n×{IMAGE_BYTES} bytes, or is truncated; {_INSTEAD}")


def _labels(labels: object, path: Path) -> Array:
    if not isinstance(labels, list) or not all(
        isinstance(label, int) and 0 <= label < 256 for label in labels
    ):
        raise InputError(f"{path}: labels must be a list of whole numbers from 0 to 255")
    return np.array(labels, dtype=np.uint8)


@dataclass(frozen=True)
class CifarPickleLayout(FolderLayout):
    """The official files ``train`` and ``test`` in one of ``folders``."""

    folders: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    label_key: str

    @property
    def wanted(self) -> str:
        """The official names, in the official folder."""
        return f"{self.folders[0]}/ (the python version: {', '.join((*self.train, self.test))})"

    def find(self, folder: Path) -> Path | None:
        """Return the first of the folders that holds the first training file, or None."""
        found = first_existing(folder, tuple(f"{name}/{self.train[0]}" for name in self.folders))
        return None if found is None else found.parent

    def sizes(self, path: Path) -> Sizes:
        """Count the records by reading the files: a pickle has no header."""
        parts = self.read(path)
        train, test = (sum(len(raw.labels) for raw in part) for part in (parts.train, parts.test))
        return Sizes(train, test)

    def read(self, path: Path) -> RawParts:
        """Read every file; a missing one is an error, so that no part is silently smaller."""
        files = tuple(
            read_cifar_pickle(path / name, label_key=self.label_key)
            for name in (*self.train, self.test)
        )
        return RawParts(files[:-1], files[-1:])
