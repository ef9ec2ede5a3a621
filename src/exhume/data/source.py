"""The protocol of sources of named data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from exhume.data.dataset import DataSet, Sizes, Task
from exhume.data.images import ImageKind, RawImages


class Where(Enum):
    """The kind of place in which a data set is stored. The value is shown in tables."""

    EMBEDDED = "embedded"
    SCIKIT_LEARN = "scikit-learn"
    FILE = "file"


@dataclass(frozen=True)
class Found:
    """A data set's size, and its path if it is the user's file or folder."""

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
        """The kind of place in which it is stored."""

    @property
    def task(self) -> Task:
        """What its labels are."""

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The shape of one record."""

    @property
    def remedy(self) -> str:
        """How to get it if it is missing: a sentence."""

    def find(self, folders: Sequence[Path]) -> Found | None:
        """Return its place and size, from file headers only; None if it is missing.

        InputError if it is damaged.
        """

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read and check all of it."""


@dataclass(frozen=True)
class ImageSource:
    """The common base of sources of images."""

    name: str
    kind: ImageKind

    @property
    def task(self) -> Task:
        """Images are classified."""
        return Task.MULTICLASS

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.kind.record_shape

    def _data_set(
        self, train: Sequence[RawImages], test: Sequence[RawImages], source: str
    ) -> DataSet:
        """Check the images; without a test part, the set has none."""
        return DataSet(
            name=self.name,
            train=self.kind.records(train),
            test=self.kind.records(test) if test else None,
            value_range=(0.0, 1.0),
            task=self.task,
            classes=self.kind.classes,
            source=source,
        )
