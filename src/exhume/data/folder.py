"""Image sets in the user's data folder: the search path, and the accepted files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exhume.data.dataset import DataSet
from exhume.data.layout import FolderLayout, RawParts
from exhume.data.source import Found, ImageSource, Where
from exhume.protocol.errors import InputError

VARIABLE = "EXHUME_DATA"
SYSTEM_FOLDERS: tuple[Path, ...] = (Path("/usr/share/datasets"),)
"""The folder of Debian's data packages; searched after the user's own folder."""


def search_folders(folder: Path | None = None) -> tuple[Path, ...]:
    """Return the folders to search: ``folder`` alone if given, else $EXHUME_DATA and the system's.

    InputError if the given folder, or the variable's, does not exist.
    """
    if folder is not None:
        if not folder.is_dir():
            raise InputError(f"data folder {str(folder)!r} does not exist or is not a folder")
        return (folder,)
    named = os.environ.get(VARIABLE)
    if not named:
        return SYSTEM_FOLDERS
    if not Path(named).is_dir():
        raise InputError(f"{VARIABLE} is {named!r}, which does not exist or is not a folder")
    return (Path(named), *SYSTEM_FOLDERS)


@dataclass(frozen=True)
class FolderImages(ImageSource):
    """A known image set, in any of several ``layouts``."""

    layouts: tuple[FolderLayout, ...]
    also: str = ""
    """Another way to get it, as a sentence."""

    @property
    def where(self) -> Where:
        """In files."""
        return Where.FILE

    @property
    def remedy(self) -> str:
        """Which files to store in which folder."""
        wanted = "; or ".join(layout.wanted for layout in self.layouts)
        return f"set {VARIABLE} to a folder that holds {wanted}. {self.also}".rstrip()

    def find(self, folders: Sequence[Path]) -> Found | None:
        """Return the first folder that contains it, or None."""
        held = self._held(folders)
        return None if held is None else Found(held.path, held.layout.sizes(held.path))

    def read(self, folders: Sequence[Path]) -> RawParts:
        """Read it from its files: bytes, unchecked."""
        held = self._required(folders)
        return held.layout.read(held.path)

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read and check it."""
        parts = self.read(folders)
        self._check_classes(parts)
        return self._data_set(parts.train, parts.test, str(self._required(folders).path))

    def _required(self, folders: Sequence[Path]) -> _Held:
        held = self._held(folders)
        if held is None:
            raise InputError(f"data set '{self.name}' is missing: {self.remedy}")
        return held

    def _held(self, folders: Sequence[Path]) -> _Held | None:
        for folder in folders:
            for layout in self.layouts:
                path = layout.find(folder)
                if path is not None:
                    return _Held(layout, path)
        return None

    def _check_classes(self, parts: RawParts) -> None:
        # With another order of names, the labels would have another meaning.
        if parts.classes is None or self.kind.classes is None or parts.classes == self.kind.classes:
            return
        raise InputError(
            f"{parts.train[0].file}: 'classes' are not those of {self.name}, in its order: "
            f"{', '.join(self.kind.classes[:3])}, …"
        )


@dataclass(frozen=True)
class _Held:
    layout: FolderLayout
    path: Path
