"""A data set: its records, their meaning, and their source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exhume.protocol.records import Records
from exhume.protocol.schema import Schema


class Task(Enum):
    """The kind of label, and so of a model's answers. The value is shown in tables."""

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
    """The number of records in a data set; ``test`` is None without a test part."""

    train: int
    test: int | None = None


@dataclass(frozen=True, eq=False)
class DataSet:
    """Records to train on, and their format.

    Images are float32 in [0, 1] (``value_range``), grey ones (n, height, width), coloured ones
    (n, height, width, 3). Tables are float64 in the units they were measured in, and
    ``value_range`` is None; scikit-learn's digits are float64 in [0, 1]. Class labels are int64 and
    index ``classes``, counts are int64, responses of a regression float64. ``source`` says where
    the records were read from. ``schema`` says what the entries of a mixed table's records mean.
    """

    name: str
    train: Records
    test: Records | None
    value_range: tuple[float, float] | None
    task: Task
    classes: tuple[str, ...] | None
    source: str
    schema: Schema | None = None
