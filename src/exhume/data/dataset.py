"""A data set: its records, what they mean, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exhume.records import Records


class Task(Enum):
    """What the labels are, and so what a model learns to say. The value is what a table shows."""

    BINARY = "binary"
    """Two classes, 0 and 1."""
    MULTICLASS = "multiclass"
    """Classes 0, 1, …, as integers."""
    REGRESSION = "regression"
    """A real response."""
    COUNTS = "counts"
    """A response that counts something: 0, 1, 2, …"""


@dataclass(frozen=True)
class Sizes:
    """How many records a data set holds; ``test`` is None where it has no test part."""

    train: int
    test: int | None = None


@dataclass(frozen=True, eq=False)
class DataSet:
    """Records to train on, and how to read them.

    Images are float32 in [0, 1] (``value_range``), grey ones (n, height, width), coloured ones
    (n, height, width, 3). Tables are float64 in the units they were measured in, and
    ``value_range`` is None; scikit-learn's digits are float64 in [0, 1]. Class labels are int64 and
    index ``classes``, counts are int64, responses of a regression float64. ``source`` says where
    the records were read from.
    """

    name: str
    train: Records
    test: Records | None
    value_range: tuple[float, float] | None
    task: Task
    classes: tuple[str, ...] | None
    source: str
