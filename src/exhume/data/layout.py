"""One way of holding a known data set in a folder: file names, and a reader for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from exhume.data.dataset import Sizes
from exhume.data.images import RawImages


@dataclass(frozen=True, eq=False)
class RawParts:
    """A data set's parts, each the files it is made of; ``classes`` where the files name them."""

    train: tuple[RawImages, ...]
    test: tuple[RawImages, ...] = ()
    classes: tuple[str, ...] | None = None


class Layout(ABC):
    """File names and a format. Subclasses are frozen dataclasses: their fields are the names."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """The names it goes by, for a person who must put the files there."""

    @abstractmethod
    def find(self, folder: Path) -> Path | None:
        """Return the file or folder that holds the data set inside ``folder``, or None."""

    @abstractmethod
    def sizes(self, path: Path) -> Sizes:
        """Count the records at ``path`` from what its files' headers say."""

    @abstractmethod
    def read(self, path: Path) -> RawParts:
        """Read everything at ``path``; InputError names the file and what is wrong with it."""


def first_existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of ``names`` that exists inside ``folder``, or None."""
    return next((folder / name for name in names if (folder / name).exists()), None)
