"""One way to store a known data set in a folder: file names, and a reader for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from exhume.data.dataset import Sizes
from exhume.data.images import RawImages


@dataclass(frozen=True, eq=False)
class RawParts:
    """A data set's parts, each with its files; ``classes`` if the files name them."""

    train: tuple[RawImages, ...]
    test: tuple[RawImages, ...] = ()
    classes: tuple[str, ...] | None = None


class FolderLayout(ABC):
    """File names and a format. Subclasses are frozen dataclasses: their fields are the names."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """The expected file names, for a user who must provide the files."""

    @abstractmethod
    def find(self, folder: Path) -> Path | None:
        """Return the file or folder that holds the data set inside ``folder``, or None."""

    @abstractmethod
    def sizes(self, path: Path) -> Sizes:
        """Count the records at ``path`` from the headers of its files."""

    @abstractmethod
    def read(self, path: Path) -> RawParts:
        """Read everything at ``path``; InputError names the file and what is wrong with it."""


def first_existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of ``names`` that exists inside ``folder``, or None."""
    return next((folder / name for name in names if (folder / name).exists()), None)
