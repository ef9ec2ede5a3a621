"""A table of numbers and named levels, made from scikit-learn's diabetes table.

Clinicians read most of these columns in classes: ages by decade, the body mass index by the WHO's
limits (18.5, 25, 30), cholesterol by the NCEP's (LDL 100, 130, 160, 190; HDL 40, 60 mg/dl). Blood
pressure, total cholesterol, the cholesterol ratio and the logarithm of triglycerides stay numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.dataset import DataSet, Sizes, Task
from exhume.data.source import Found, Where
from exhume.protocol.arrays import FloatArray
from exhume.protocol.records import Records
from exhume.protocol.schema import Cell, Column, ColumnKind, Schema


@dataclass(frozen=True)
class _Levels:
    """A column of the original in named levels: a value belongs after each limit it reaches."""

    name: str
    place: int
    limits: tuple[float, ...]
    levels: tuple[str, ...]

    def of(self, x: FloatArray) -> tuple[Column, list[Cell]]:
        cells = [self.levels[i] for i in np.digitize(x[:, self.place], self.limits)]
        counts = tuple(cells.count(level) for level in self.levels)
        return Column(self.name, ColumnKind.CATEGORICAL, self.levels, counts=counts), [*cells]


@dataclass(frozen=True)
class _Number:
    """A column of the original as it is."""

    name: str
    place: int
    unit: str = ""

    def of(self, x: FloatArray) -> tuple[Column, list[Cell]]:
        return Column(self.name, ColumnKind.CONTINUOUS, unit=self.unit), x[:, self.place].tolist()


_DECADES = ("under 30", "30-39", "40-49", "50-59", "60-69", "70 and over")
_COLUMNS = (
    _Levels("age", 0, (30, 40, 50, 60, 70), _DECADES),
    _Levels("sex", 1, (1.5,), ("1", "2")),
    _Levels("bmi", 2, (18.5, 25, 30), ("underweight", "normal", "overweight", "obese")),
    _Number("bp", 3, "mm Hg"),
    _Number("tc", 4, "mg/dl"),
    _Levels(
        *("ldl", 5, (100, 130, 160, 190)),
        ("optimal", "near optimal", "borderline high", "high", "very high"),
    ),
    _Levels("hdl", 6, (40, 60), ("low", "normal", "high")),
    _Number("tch", 7),
    _Number("ltg", 8),
    _Levels("glucose", 9, (80, 90, 100), ("under 80", "80-89", "90-99", "100 and over")),
)
_FASTER = 140
"""A progression above it counts as fast: about the median."""


@dataclass(frozen=True)
class DiabetesLevels:
    """Ten columns of 442 patients: six in named levels, four numbers; the label is two classes."""

    name: str = "diabetes-mixed"
    task: Task = Task.BINARY
    record_shape: tuple[int, ...] = (28,)

    @property
    def where(self) -> Where:
        """Its numbers are in another package."""
        return Where.SCIKIT_LEARN

    @property
    def remedy(self) -> str:
        """It comes with a package that Exhume itself needs."""
        return "install scikit-learn"

    def find(self, folders: Sequence[Path]) -> Found:
        """It is always available."""
        return Found(None, Sizes(442))

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read it from scikit-learn."""
        import sklearn
        from sklearn.datasets import load_diabetes

        x, y = load_diabetes(return_X_y=True, scaled=False)
        made = [column.of(x) for column in _COLUMNS]
        schema = Schema(tuple(column for column, _ in made), "progression")
        rows = schema.encode({column.name: cells for column, cells in made})
        return DataSet(
            name=self.name,
            train=Records(rows, (y > _FASTER).astype(np.int64)),
            test=None,
            value_range=None,
            task=self.task,
            classes=("slower", "faster"),
            source=f"scikit-learn {sklearn.__version__}, binned",
            schema=schema,
        )
