"""Where a data set known by name comes from: what every source can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from exhume.data.dataset import DataSet, Sizes, Task


class Where(Enum):
    """The kind of place a data set is kept in. The value is what a table shows."""

    EMBEDDED = "embedded"
    SCIKIT_LEARN = "scikit-learn"
    FILE = "file"


@dataclass(frozen=True)
class Found:
    """A data set's size, and its path where it is a file or folder of the user's."""

    path: Path | None
    sizes: Sizes


class Source(Protocol):
    """A data set known by name; the kinds of source are frozen dataclasses.

    ``folders`` are searched in their order, by sources that keep their files in one.
    """

    @property
    def name(self) -> str:
        """The name to load it by."""

    @property
    def where(self) -> Where:
        """The kind of place it is kept in."""

    @property
    def task(self) -> Task:
        """What its labels are."""

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The shape of one record."""

    @property
    def remedy(self) -> str:
        """How to get it where it is missing: a sentence."""

    def find(self, folders: Sequence[Path]) -> Found | None:
        """Say where it is and how large, from file headers only; None where it is missing.

        InputError where it is there, but broken.
        """

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read and check it whole."""
